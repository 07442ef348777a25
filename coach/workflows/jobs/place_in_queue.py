"""Read the factors of a user's place in the queue: priority, fair share, limits, reservations.

Five questions, each asked once for all jobs and only on demand. A site may lack or hide any of them: that
part then has an error, and the others their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from coach.model.errors import hidden_by_site
from coach.model.slurm.accounting import FairShare, Limits, Part, PriorityFactors
from coach.model.slurm.cluster import Reservation
from coach.sources.io import Io, Query
from coach.sources.slurm.client import ask_private_kinds
from coach.sources.slurm.limits import QOS_QUERY, associations_query, parse_limits
from coach.sources.slurm.priority import (
    fair_share_query,
    parse_fair_share,
    parse_priorities,
    priorities_query,
)
from coach.sources.slurm.reservations import RESERVATIONS_QUERY, parse_reservations
from coach.sources.slurm.text import failure_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlaceInQueue:
    """Each part has a value, or an error in Slurm's own words."""

    priorities: Part[tuple[PriorityFactors, ...]]
    fair_share: Part[tuple[FairShare, ...]]
    associations: Part[tuple[Limits, ...]]
    qos: Part[tuple[Limits, ...]]
    reservations: Part[tuple[Reservation, ...]]

    def missing(self) -> tuple[tuple[str, str], ...]:
        """The parts without a value, each with the reason."""
        parts = {
            "priority factors": self.priorities.error,
            "fair share": self.fair_share.error,
            "limits of accounts": self.associations.error,
            "limits of QOS": self.qos.error,
            "reservations": self.reservations.error,
        }
        return tuple((name, error) for name, error in parts.items() if error is not None)


def read_place(io: Io, user: str) -> PlaceInQueue:
    """Ask once. Never raises: a missing part carries its error."""
    return PlaceInQueue(
        priorities=_ask(
            io,
            priorities_query(user),
            lambda text, query: parse_priorities(text, query.separator, query.record_end),
        ),
        fair_share=_told(
            _ask(io, fair_share_query(user), lambda text, _: parse_fair_share(text)),
            "no accounting of shares here",
        ),
        associations=_ask(io, associations_query(user), lambda text, _: parse_limits(text, "association")),
        qos=_ask(io, QOS_QUERY, lambda text, _: parse_limits(text, "qos")),
        reservations=read_reservations(io, user),
    )


def read_reservations(io: Io, user: str) -> Part[tuple[Reservation, ...]]:
    """The reservations that the user may see. A site that hides the others answers as if there were none."""
    part = _ask(io, RESERVATIONS_QUERY, lambda text, _: parse_reservations(text))
    if part.error is None and "reservations" in (ask_private_kinds(io, user) or ()):
        return replace(part, error=hidden_by_site("others' reservations"))
    return part


def _ask(io: Io, query: Query, parse: Callable[[str, Query], tuple[T, int]]) -> Part[T]:
    result = io.run(query)
    if (why := failure_of(result)) is not None:
        return Part(None, why)
    value, num_bad = parse(result.text, result.query)
    return Part(value, None, num_bad)


def _told(part: Part[tuple[FairShare, ...]], otherwise: str) -> Part[tuple[FairShare, ...]]:
    """Without accounting, sshare prints only headings and no error: report `otherwise` then."""
    return part if part.value or part.error is not None else Part(None, otherwise, part.num_bad_rows)
