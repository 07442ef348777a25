"""The choices that Slurm offers, as its clients print them."""

from __future__ import annotations

from coach.sources.io import CommandResult, Query, SystemIo
from coach.sources.slurm.allowed_choices import admitting, read_allowed
from coach.sources.slurm.reservations import parse_reservations

ASSOCIATIONS = "Account|QOS\nlab|normal,long\nteaching|normal\n|\nlab|long\n"
RESERVATIONS = """\
ReservationName=workshop StartTime=2026-11-21T06:59:49 EndTime=2026-11-21T07:59:49 Duration=01:00:00 Nodes=node2 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=ada,nobody Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=repair StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=16 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=course StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=(null) Groups=(null) Accounts=teaching Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=others StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=-ada Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
"""


class Answering(SystemIo):
    """Every command prints this."""

    def __init__(self, text: str) -> None:
        super().__init__({})
        self._text = text

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        return CommandResult(query, 0, self._text.encode(), "", 0.0, 0.0)


def test_accounts_and_qos_come_from_the_users_associations_without_repeats() -> None:
    io = Answering(ASSOCIATIONS)
    assert read_allowed(io, "account", "ada") == ("lab", "teaching")
    assert read_allowed(io, "qos", "ada") == ("normal", "long")


def test_offered_reservations_may_admit_the_user_and_are_never_maintenance() -> None:
    reservations, num_bad = parse_reservations(RESERVATIONS)
    assert num_bad == 0
    assert admitting(reservations, "ada") == ("workshop", "course")
    assert admitting(reservations, "bob") == ("course", "others")
    assert read_allowed(Answering("No reservations in the system\n"), "reservation", "ada") == ()


def test_a_cluster_without_accounting_offers_nothing() -> None:
    io = SystemIo({"PATH": "/nonexistent"})
    assert read_allowed(io, "account", "ada") == ()
    assert read_allowed(io, "mem", "ada") == ()
