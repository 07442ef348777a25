"""Read reservations: the reserved nodes, their users, start and end.

A pending job often waits for a reservation, mostly for maintenance; the nodes themselves only report that
they are reserved now. One request returns all reservations. All functions are pure.
"""

from __future__ import annotations

from coach.model.slurm.cluster import Reservation
from coach.sources.io import Query
from coach.sources.slurm.text import BadRow, optional, parse_count, parse_time

RESERVATIONS_QUERY = Query("reservations", ("scontrol", "-a", "-o", "show", "reservations"))


def parse_reservations(text: str) -> tuple[tuple[Reservation, ...], int]:
    """(reservations, number of malformed lines)."""
    found: list[Reservation] = []
    num_bad = 0
    for line in text.split("\n"):
        if not line.strip() or line.startswith("No reservations in the system"):
            continue
        try:
            found.append(_parse(line))
        except BadRow:
            num_bad += 1
    return tuple(found), num_bad


def _parse(line: str) -> Reservation:
    pairs: dict[str, str] = {}
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals:
            pairs.setdefault(key, value)
    name = pairs.get("ReservationName")
    if not name or not line.startswith("ReservationName="):
        raise BadRow("not a reservation")
    return Reservation(
        name=name,
        state=pairs.get("State", "").lower(),
        start_time_s=parse_time(pairs.get("StartTime", "")),
        end_time_s=parse_time(pairs.get("EndTime", "")),
        nodes=optional(pairs.get("Nodes", "")),
        num_nodes=parse_count(pairs.get("NodeCnt", "")),
        flags=_list(pairs.get("Flags", "")),
        users=_list(pairs.get("Users", "")),
        accounts=_list(pairs.get("Accounts", "")),
        partition=optional(pairs.get("PartitionName", "")),
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (optional(text) or "").split(",") if part)
