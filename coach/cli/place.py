"""Prints a user's place in the queue, the second half of `coach jobs --why`.

It is apart from the queue's table, because a site may lack each of its parts. A missing part is then one line
on stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coach.cli.text import format_count, format_time, print_bad_rows, print_table, say

if TYPE_CHECKING:
    from coach.model.slurm.accounting import FairShare, Limits, PriorityFactors
    from coach.model.slurm.cluster import Reservation
    from coach.workflows.jobs.place_in_queue import PlaceInQueue


def print_place(place: PlaceInQueue) -> None:
    """Print a table for each part that the site reports."""
    if place.priorities.value:
        _print_priorities(place.priorities.value)
    if place.fair_share.value:
        _print_fair_share(place.fair_share.value)
    limits = [*(place.associations.value or ()), *(place.qos.value or ())]
    if any(each.values for each in limits):
        _print_limits([each for each in limits if each.values])
    if place.reservations.value:
        _print_reservations(place.reservations.value)
    for what, why in place.missing():
        say(f"not available here: {what}: {why}")
    parts = (place.priorities, place.fair_share, place.associations, place.qos, place.reservations)
    print_bad_rows(sum(part.num_bad_rows for part in parts))


def _print_priorities(priorities: Sequence[PriorityFactors]) -> None:
    rows = []
    for each in priorities:
        factors = (each.age, each.fair_share, each.job_size, each.partition_factor, each.qos)
        rows.append((each.job_id, *map(format_count, (each.priority, *factors))))
    print("\nparts of the priority")
    print_table(
        ("JOB", "PRIORITY", "AGE", "FAIR SHARE", "SIZE", "PARTITION", "QOS"),
        rows,
        "lrrrrrr",
    )


def _print_fair_share(shares: Sequence[FairShare]) -> None:
    print("\nfair share (1: first in line; 0: last)")
    print_table(
        ("ACCOUNT", "SHARES", "USED", "FACTOR"),
        [
            (each.account, each.raw_shares, _share(each.effective_usage), _share(each.factor))
            for each in shares
        ],
        "lrrr",
    )


def _print_limits(limits: Sequence[Limits]) -> None:
    print("\nlimits")
    print_table(
        ("OF", "NAME", "LIMITS"),
        [
            (each.kind, each.name, "  ".join(f"{name}={value}" for name, value in each.values.items()))
            for each in limits
        ],
    )


def _print_reservations(reservations: Sequence[Reservation]) -> None:
    print("\nreservations")
    print_table(
        ("NAME", "STATE", "FROM", "TO", "NODES", "FLAGS"),
        [
            (
                each.name,
                each.state,
                format_time(each.start_time_s),
                format_time(each.end_time_s),
                each.nodes,
                ",".join(each.flags) or None,
            )
            for each in reservations
        ],
    )


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
