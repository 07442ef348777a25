"""Read the choices that Slurm gives a user: accounts, QOS and reservations. Requested only after a refusal.

None of the three is polled: the accounting database is a separate server, which may be slow, absent or closed
to users, and its answer matters only if a submission was refused because of one of them.
"""

from __future__ import annotations

from coach.model.slurm.cluster import Reservation
from coach.sources.io import Io, Query
from coach.sources.slurm.limits import associations_query, parse_limits
from coach.sources.slurm.reservations import RESERVATIONS_QUERY, parse_reservations

TIMEOUT_S = 2.0
"""The user waits for this answer with a refusal on the screen."""


def read_allowed(io: Io, field: str, user: str) -> tuple[str, ...]:
    """The choices for a field of a launch; empty if Slurm does not answer in time."""
    if field in ("account", "qos"):
        limits, _ = parse_limits(_ask(io, associations_query(user)), "association")
        names = [(each.name,) if field == "account" else each.qos for each in limits]
        return tuple(dict.fromkeys(name for each in names for name in each if name))
    if field == "reservation":
        return admitting(parse_reservations(_ask(io, RESERVATIONS_QUERY))[0], user)
    return ()


def _ask(io: Io, query: Query) -> str:
    result = io.run(query, TIMEOUT_S)
    return result.text if result.returncode == 0 else ""


def admitting(reservations: tuple[Reservation, ...], user: str) -> tuple[str, ...]:
    """Names of those that a user may use, judged by the users listed; without maintenance reservations."""
    return tuple(each.name for each in reservations if "MAINT" not in each.flags and _admits(each, user))


def _admits(reservation: Reservation, user: str) -> bool:
    users = reservation.users
    if not users:
        return True  # restricted by account or group, which only Slurm can check
    if any(name.startswith("-") for name in users):
        return f"-{user}" not in users
    return user in users or bool(reservation.accounts)
