"""Prints a user's place in the queue: the second half of `coach jobs --why`.

Apart from the queue's table, because each of its parts may be missing at a site, and is then one line on stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from coach.cli.text import format_count, format_time, print_bad_rows, print_table, printable

if TYPE_CHECKING:
    from coach.workflows.jobs.place_in_queue import PlaceInQueue


def print_place(place: PlaceInQueue) -> None:
    """A table for each part that the site tells."""
    if place.priorities.value:
        print("\nwhat the priority is made of")
        print_table(
            ("JOB", "PRIORITY", "AGE", "FAIR SHARE", "SIZE", "PARTITION", "QOS"),
            [
                (
                    each.job_id,
                    *map(
                        format_count,
                        (
                            each.priority,
                            each.age,
                            each.fair_share,
                            each.job_size,
                            each.partition_factor,
                            each.qos,
                        ),
                    ),
                )
                for each in place.priorities.value
            ],
            "lrrrrrr",
        )
    if place.fair_share.value:
        print("\nfair share (1: first in line; 0: last)")
        print_table(
            ("ACCOUNT", "SHARES", "USED", "FACTOR"),
            [
                (each.account, each.raw_shares, _share(each.effective_usage), _share(each.factor))
                for each in place.fair_share.value
            ],
            "lrrr",
        )
    limits = [*(place.associations.value or ()), *(place.qos.value or ())]
    if any(each.values for each in limits):
        print("\nlimits")
        print_table(
            ("OF", "NAME", "LIMITS"),
            [
                (each.kind, each.name, "  ".join(f"{name}={value}" for name, value in each.values.items()))
                for each in limits
                if each.values
            ],
        )
    if place.reservations.value:
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
                for each in place.reservations.value
            ],
        )
    for what, why in place.missing():
        print(f"coach: not told here: {what}: {printable(why)}", file=sys.stderr)
    parts = (place.priorities, place.fair_share, place.associations, place.qos, place.reservations)
    print_bad_rows(sum(part.num_bad_rows for part in parts))


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
