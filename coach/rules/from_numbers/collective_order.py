"""Find the rank that differs in a hanging training, by comparing the collectives that each rank called.

Two rules use it: a timeout and a hang show different signs, but the same flight records explain both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coach.model.judging.finding import Evidence
from coach.model.training.flight import Call, FlightRecord

_SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "reduce", "all_gather", "allgather")
"""Operations to which every rank contributes the same number of elements."""
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class OddRanks:
    """The ranks that differ from the others of their process group, and how."""

    ranks: tuple[int, ...]
    how: str
    is_mismatch: bool = False
    """True if these ranks called another operation; False if they only made fewer calls."""
    evidence: tuple[Evidence, ...] = ()


def odd_ranks(records: Iterable[FlightRecord]) -> OddRanks | None:
    """The odd ranks of all process groups, or None. Checked in this order: another call under the same
    number, an older call unfinished than on the others, fewer calls, no dump at all."""
    groups: dict[str, dict[int, FlightRecord]] = {}
    for record in records:
        groups.setdefault(record.group, {})[record.rank] = record
    for find in (_otherwise, _stuck, _behind, _absent):
        found = [(each, of_rank) for of_rank in groups.values() if (each := find(of_rank)) is not None]
        if found:
            (_, how, is_mismatch), _ = found[0]
            odd = {rank for (ranks, _, _), _ in found for rank in ranks}
            table = [line for (ranks, _, _), of_rank in found for line in _table(of_rank, ranks)]
            return OddRanks(tuple(sorted(odd)), how, is_mismatch, tuple(dict.fromkeys(table))[:_MAX_SHOWN])
    return None


_Found = tuple[tuple[int, ...], str, bool]
"""Ranks, how they differ, and whether they called another operation."""


def _otherwise(of_rank: Mapping[int, FlightRecord]) -> _Found | None:
    calls = {rank: {call.number: call for call in record.calls} for rank, record in of_rank.items()}
    shared = sorted(set.intersection(*(set(numbers) for numbers in calls.values())))
    for number in shared:
        said = {rank: _said(numbers[number]) for rank, numbers in calls.items()}
        counts = Counter(said.values())
        if len(counts) > 1:
            common = counts.most_common(1)[0][0]
            ranks = tuple(sorted(rank for rank, words in said.items() if words != common))
            return ranks, f"called {said[ranks[0]]} as number {number} where the others called {common}", True
    return None


def _stuck(of_rank: Mapping[int, FlightRecord]) -> _Found | None:
    """The ranks whose GPU stopped first: there a call is unfinished that the others have finished."""
    oldest = {
        rank: each.first_unfinished for rank, each in of_rank.items() if each.first_unfinished is not None
    }
    least, most = min(oldest.values(), default=0), max(oldest.values(), default=0)
    ranks = tuple(sorted(rank for rank, number in oldest.items() if number == least))
    if least == most:
        return None
    return ranks, f"did not finish call {least}, which others finished: they wait in call {most}", False


def _behind(of_rank: Mapping[int, FlightRecord]) -> _Found | None:
    last = {rank: record.calls[-1].number for rank, record in of_rank.items()}
    least, most = min(last.values()), max(last.values())
    ranks = tuple(sorted(rank for rank, number in last.items() if number == least))
    if least == most:
        return None
    waiting = next(record.calls[-1] for record in of_rank.values() if record.calls[-1].number == most)
    return ranks, f"called {least} collectives where others called {most} and wait in {_said(waiting)}", False


def _absent(of_rank: Mapping[int, FlightRecord]) -> _Found | None:
    members = {rank for record in of_rank.values() for rank in record.members}
    absent = tuple(sorted(members - of_rank.keys()))
    return (absent, "left no dump", False) if absent and len(absent) < len(of_rank) else None


def _said(call: Call) -> str:
    operation = call.operation.rpartition(":")[2].removeprefix("_")
    has_same = operation in _SAME_SIZES
    return (
        f"{call.operation} of {'x'.join(map(str, call.sizes[0])) or '1'}"
        if has_same and call.sizes
        else call.operation
    )


def _table(of_rank: Mapping[int, FlightRecord], odd: Sequence[int]) -> Iterable[Evidence]:
    """A line for each rank of a group, the odd ones first."""
    for rank, record in sorted(of_rank.items(), key=lambda each: (each[0] not in odd, each[0])):
        call, oldest = record.calls[-1], record.first_unfinished
        waits = f", unfinished since {oldest}" if oldest is not None else ""
        yield Evidence(f"rank {rank}: last called {call.number}, {_said(call)}{waits}", file=record.file)
