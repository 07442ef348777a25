"""The choices that Slurm offers, as its clients print them."""

from __future__ import annotations

from coach.sources.io import SystemIo
from coach.sources.slurm.allowed_choices import parse_associations, parse_reservations, read_allowed

ASSOCIATIONS = "lab|normal,long\nteaching|normal\n|\nlab|long\n"
RESERVATIONS = """\
ReservationName=workshop StartTime=2026-11-21T06:59:49 EndTime=2026-11-21T07:59:49 Duration=01:00:00 Nodes=node2 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=ada,nobody Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=repair StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=16 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=course StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=(null) Groups=(null) Accounts=teaching Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=others StartTime=2026-11-22T00:00:00 EndTime=2026-11-22T01:00:00 Duration=01:00:00 Nodes=node1 NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=-ada Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
"""


def test_accounts_and_qos_come_from_the_users_associations_without_repeats() -> None:
    assert parse_associations(ASSOCIATIONS) == (("lab", "teaching"), ("normal", "long"))


def test_offered_reservations_may_admit_the_user_and_are_never_maintenance() -> None:
    assert parse_reservations(RESERVATIONS, "ada") == ("workshop", "course")
    assert parse_reservations(RESERVATIONS, "bob") == ("course", "others")
    assert parse_reservations("No reservations in the system\n", "ada") == ()


def test_a_cluster_without_accounting_offers_nothing() -> None:
    io = SystemIo({"PATH": "/nonexistent"})
    assert read_allowed(io, "account", "ada") == ()
    assert read_allowed(io, "mem", "ada") == ()
