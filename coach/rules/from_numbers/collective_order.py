"""Find the rank that differs in a hanging training, by comparing the collectives that each rank called.

Two rules use it: a timeout and a hang show different signs, but the same flight records explain both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.flight import Call, FlightRecord
from coach.rules.from_logs.outcome import has_good_end
from coach.rules.from_logs.quoted_evidence import hits_of, ranks_text
from coach.rules.from_numbers.rhythm import started_s
from coach.rules.from_numbers.stack_bursts import newest_bursts
from coach.rules.from_numbers.training_windows import last_sign, newest_end

_SAME_SIZES = re.compile(
    r"(?:\w+:)?_?(?:all_?reduce|broadcast|reduce|all_?gather(?:_base)?|reduce_scatter(?:_base)?)",
    re.IGNORECASE,
)
"""Operations to which every rank contributes the same number of elements."""
_MAX_SHOWN = 8
_SETTLED_S = 60.0
"""Seconds in which the dumps of all ranks are written, and within which clocks agree."""


@dataclass(frozen=True, slots=True)
class OddRanks:
    """The ranks that differ from the others of their process group, and how."""

    ranks: tuple[int, ...]
    how: str
    is_mismatch: bool = False
    """True if these ranks called another operation; False if they only made fewer calls."""
    calls: Mapping[int, Evidence] = field(default_factory=dict)
    """Rank → its last call in the process group that shows the difference, from its dump."""


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
            last: dict[int, Evidence] = {}
            for _, of_rank in found:
                for rank, record in of_rank.items():
                    last.setdefault(rank, _last_call(record))
            absent = {rank: Evidence("left no dump") for rank in odd - last.keys()}
            return OddRanks(tuple(sorted(odd)), how, is_mismatch, last | absent)
    return None


def hit_by_dumps(
    code: str, words: str, fixes: tuple[Fix, ...], snapshot: TargetSnapshot, history: History
) -> Iterator[Hit]:
    """The hit of the rule `code` from dumps alone, where no line of a log reports a timeout. Other calls are
    a mismatch (DST006); else a running job hangs (DST007), and any other had a timeout (DST005)."""
    odd = odd_ranks(snapshot.flight) if _do_dumps_count(snapshot, history) else None
    if odd is None:
        return
    if code == ("DST006" if odd.is_mismatch else "DST007" if snapshot.state == "RUNNING" else "DST005"):
        yield Hit(
            summary=f"{words}: {ranks_text(odd.ranks)} {odd.how}",
            evidence=(
                Evidence("no line of a log reports it: the dumps of torch's flight recorder show it"),
                *rank_table(snapshot, odd),
            ),
            confidence=0.8,
            subject=Subject(rank=odd.ranks[0]) if len(odd.ranks) == 1 else Subject(),
            fixes=fixes,
            severity=Severity.WARNING if snapshot.state is None else None,
        )


def _do_dumps_count(snapshot: TargetSnapshot, history: History) -> bool:
    """False if there are none, if the training went on after them, was started again or ended well, or if a
    line of a log reports the timeout; in a running job also while the dumps of some ranks may still come."""
    settled_s = max((record.written_s or 0.0 for record in snapshot.flight), default=0.0) + _SETTLED_S
    is_reported = any(hit.signature != "status" for hit in hits_of(snapshot, "DST005"))
    if not snapshot.flight or is_reported or snapshot.state == "COMPLETED" or has_good_end(snapshot):
        return False
    if snapshot.state == "RUNNING" and (
        (snapshot.now_s or 0.0) < settled_s or last_sign(snapshot, history) > settled_s
    ):
        return False
    return max(newest_end(history) or 0.0, started_s(snapshot) or 0.0) <= settled_s


def rank_table(
    snapshot: TargetSnapshot, odd: OddRanks | None, logged: Mapping[int, str] | None = None
) -> tuple[Evidence, ...]:
    """A row for each rank, the odd ones first: its last call by its dump, its lines in a log (`logged`), and
    its place by the stacks that were sampled in the silence, and by those that somebody took."""
    calls = odd.calls if odd is not None else {}
    first = odd.ranks if odd is not None else ()
    rows: dict[int, list[str]] = {}
    for rank, words in _words_of_ranks(snapshot, calls, logged or {}):
        rows.setdefault(rank, []).append(words)
    ranks = sorted(rows, key=lambda rank: (rank not in first, rank))[:_MAX_SHOWN]
    table = [
        replace(calls.get(rank, Evidence("")), text=f"rank {rank}: {'; '.join(rows[rank])}") for rank in ranks
    ]
    num_left_out = snapshot.num_dumps_left_out
    apart = [place.rank for place in snapshot.places if place.is_odd]
    return (
        *(disagreement(first, apart, "the stacks that were taken") if calls else ()),
        *table,
        *([Evidence("older dumps that were not read", value=num_left_out)] if num_left_out else []),
    )


def _words_of_ranks(
    snapshot: TargetSnapshot, calls: Mapping[int, Evidence], logged: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    for rank, call in calls.items():
        yield rank, call.text
    for rank, words in logged.items():
        yield rank, f"its log: {words}" if calls else words
    for burst in newest_bursts(snapshot, is_stall=True):
        if burst.rank is not None:
            yield burst.rank, burst.words
    for place in snapshot.places:
        yield place.rank, f"its stack: {place.words}"


def disagreement(recorded: Sequence[int], others: Sequence[int], source: str) -> tuple[Evidence, ...]:
    """One sentence if the dumps and another source name different ranks."""
    if not others or not set(recorded).isdisjoint(others):
        return ()
    text = f"the dumps point to {ranks_text(recorded)}, {source} to {ranks_text(others)}"
    return (Evidence(f"{text}: the dumps count, as they hold the calls of each rank"),)


_Found = tuple[tuple[int, ...], str, bool]
"""Ranks, how they differ, and whether they called another operation."""


def _otherwise(of_rank: Mapping[int, FlightRecord]) -> _Found | None:
    calls = {rank: {call.number: call for call in record.calls} for rank, record in of_rank.items()}
    shared = sorted(set.intersection(*(set(numbers) for numbers in calls.values())))
    for number in shared:
        said = {rank: _said(numbers[number]) for rank, numbers in calls.items()}
        counts = Counter(said.values())
        if len(counts) > 1:
            (common, most), (_, second), *_ = counts.most_common()
            if most == second:  # no call is that of most ranks: nothing tells which was wrong
                each = ", ".join(f"rank {rank} called {words}" for rank, words in sorted(said.items())[:8])
                return tuple(sorted(said)), f"did not make the same call: {each}", True
            ranks = tuple(sorted(rank for rank, words in said.items() if words != common))
            calls_of_them = " or ".join(list(dict.fromkeys(said[rank] for rank in ranks))[:_MAX_SHOWN])
            return ranks, f"called {calls_of_them} as number {number} where the others called {common}", True
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
    if not call.sizes or not _SAME_SIZES.fullmatch(call.operation):
        return call.operation
    return f"{call.operation} of {'x'.join(map(str, call.sizes[0])) or '1'}"


def _last_call(record: FlightRecord) -> Evidence:
    call, oldest = record.calls[-1], record.first_unfinished
    waits = f", unfinished since {oldest}" if oldest is not None else ""
    place = f", from {call.place}" if call.place else ""
    return Evidence(f"last called {call.number}, {_said(call)}{place}{waits}", file=record.file)
