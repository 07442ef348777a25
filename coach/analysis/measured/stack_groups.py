"""Merge equal stacks, name each group by its place in the code, find the rank that delays the others, and
write the report.

Pure. The function that a rank is in says more than its stack: in a collective a rank waits for the others. So
if most ranks are in one, they wait for a rank that is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from coach.analysis.measured.stack_places import IN_LOADER, Place, place_of
from coach.analysis.measured.stack_workers import Workers, merge_workers, spell_pids
from coach.model.training.stacks import Frame, RankStack, Stacks, WorkerStack


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks with the same stack."""

    ranks: tuple[RankStack, ...]
    place: Place
    is_odd: bool = False
    repeated: frozenset[int] = frozenset()
    """Ranks that several processes have: the job runs several programs."""

    @property
    def label(self) -> str:
        return spell(self.ranks, self.repeated)

    @property
    def workers(self) -> list[Workers]:
        return merge_workers(self.ranks, self.label)

    @property
    def sentence(self) -> str:
        return f"{self.label} {self.place.sentence(len(self.ranks) == 1)}"

    @property
    def heading(self) -> str:
        """The sentence, with the line of the training's own code if it is known."""
        return f"{self.sentence}{self.place.where}"


@dataclass(frozen=True, slots=True)
class Merged:
    groups: tuple[Group, ...]
    """Largest group first."""
    absent: tuple[int, ...]
    """Ranks without a process on any node, although all nodes answered."""
    repeated: frozenset[int] = frozenset()

    @property
    def odd(self) -> tuple[RankStack, ...]:
        return tuple(rank for group in self.groups if group.is_odd for rank in group.ranks)

    @property
    def sentence(self) -> str:
        by_place: dict[tuple[str, bool | None], list[RankStack]] = {}
        for group in self.groups:
            by_place.setdefault((group.place.words, group.place.is_waiting), []).extend(group.ranks)
        parts = [
            Group(tuple(ranks), Place(*place), repeated=self.repeated).sentence
            for place, ranks in by_place.items()
        ]
        for group in self.groups:
            if group.place.words == IN_LOADER:
                parts += [workers.sentence for workers in group.workers if workers.is_cause]
        if self.absent:
            parts.append(f"{_numbers(self.absent)} {'has' if len(self.absent) == 1 else 'have'} no process")
        return "; ".join(parts) or "no Python process of this training was found"


def merge(stacks: Stacks) -> Merged:
    """Merge equal stacks, and mark the groups that stand apart."""
    by_key: dict[object, list[RankStack]] = {}
    for rank in sorted(
        stacks.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.node, rank.pid)
    ):
        by_key.setdefault(_key(rank), []).append(rank)
    groups = [Group(tuple(ranks), place_of(ranks[0])) for ranks in by_key.values()]
    groups.sort(key=lambda group: -len(group.ranks))
    repeated = _repeated(stacks.ranks)
    odd = () if repeated else _odd(groups)  # the ranks of one program do not wait for those of another
    marked = tuple(Group(group.ranks, group.place, group in odd, repeated) for group in groups)
    size = max((rank.world_size or 0 for rank in stacks.ranks), default=0)
    present = {rank.rank for rank in stacks.ranks}
    absent = () if stacks.num_silent_nodes else tuple(rank for rank in range(size) if rank not in present)
    return Merged(marked, absent, repeated)


def _repeated(ranks: Sequence[RankStack]) -> frozenset[int]:
    """The ranks that several processes have."""
    count = Counter(rank.rank for rank in ranks if rank.rank is not None)
    return frozenset(rank for rank, number in count.items() if number > 1)


def spell(ranks: Iterable[RankStack], repeated: Set[int] = frozenset()) -> str:
    """`ranks 0-2,4-7`, `rank 3`, `pid 12 on node1`; a repeated rank with its process: `rank 0 (pid 12 on
    node1)`."""
    ranks = tuple(ranks)
    numbers = sorted(rank.rank for rank in ranks if rank.rank is not None and rank.rank not in repeated)
    parts = [_numbers(numbers)] if numbers else []
    by_node: dict[str, list[RankStack]] = {}
    for rank in ranks:
        if rank.rank in repeated:
            by_node.setdefault(rank.node, []).append(rank)
    for node, same in by_node.items():
        named = _numbers(sorted({rank.rank for rank in same if rank.rank is not None}))
        parts.append(f"{named} ({spell_pids([rank.pid for rank in same])} on {node})")
    return ", ".join([*parts, *(rank.label for rank in ranks if rank.rank is None)])


def _numbers(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {text}"


def _key(rank: RankStack) -> object:
    if rank.frames:
        return tuple((frame.name, frame.file, frame.line) for frame in rank.frames)
    if rank.collective is not None:
        return rank.collective
    return place_of(rank).words


def _odd(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups that the others wait for, if that can be determined."""
    return _behind(groups) or _apart_from_waiting(groups) or _smallest(groups)


def _behind(groups: Sequence[Group]) -> list[Group]:
    """Groups with a rank that has begun the fewest collectives, if ranks differ in that number."""
    last = [
        (rank.collective.number, group)
        for group in groups
        for rank in group.ranks
        if rank.collective is not None
    ]
    if len({number for number, _ in last}) <= 1:
        return []
    fewest = min(number for number, _ in last)
    behind = [group for number, group in last if number == fewest]
    return [group for group in groups if group in behind]


def _apart_from_waiting(groups: Sequence[Group]) -> list[Group]:
    """Groups that are elsewhere while the others wait; if most ranks are elsewhere, the groups that wait."""
    elsewhere = [group for group in groups if group.place.is_waiting is False]
    others = [group for group in groups if group.place.is_waiting is not False]
    if not any(group.place.is_waiting for group in others):
        return []
    return elsewhere if 2 * _num_ranks(elsewhere) <= _num_ranks(groups) else others


def _smallest(groups: Sequence[Group]) -> list[Group]:
    """The smallest groups, if they hold less than half of the ranks."""
    smallest = [group for group in groups if len(group.ranks) == len(groups[-1].ranks)]
    return smallest if 2 * _num_ranks(smallest) < _num_ranks(groups) else []


def _num_ranks(groups: Iterable[Group]) -> int:
    return sum(len(group.ranks) for group in groups)


MAX_FRAMES = 40

_INSTALLED = re.compile(r"^.*/(site|dist)-packages/")


class Kind(Enum):
    """The kind of a line, for colours."""

    VERDICT = "verdict"
    ODD = "odd"
    GROUP = "group"
    DETAIL = "detail"
    FRAME = "frame"


@dataclass(frozen=True, slots=True)
class ReportLine:
    kind: Kind
    text: str
    indent: int = 0


def report(stacks: Stacks, merged: Merged) -> list[ReportLine]:
    """The answer first, then each group with its stack, and how each rank was seen."""
    rows = [ReportLine(Kind.VERDICT, merged.sentence)]
    if merged.odd:
        where = ", ".join(dict.fromkeys(f"{rank.node} pid {rank.pid}" for rank in merged.odd))
        rows.append(ReportLine(Kind.ODD, f"not where the others are: {spell(merged.odd)} ({where})"))
    if merged.repeated:
        named = _numbers(sorted(merged.repeated))
        rows.append(ReportLine(Kind.DETAIL, f"{named}: more than one process; the job runs several programs"))
    if stacks.num_silent_nodes:
        silent = f"{stacks.num_silent_nodes} of {stacks.num_nodes} nodes did not answer"
        rows.append(ReportLine(Kind.ODD, f"{silent}: {stacks.because or 'no reason is known'}"))
    for group in merged.groups:
        rows += [ReportLine(Kind.DETAIL, ""), ReportLine(Kind.GROUP, group.heading)]
        by_means: dict[str, list[RankStack]] = {}
        for rank in group.ranks:
            by_means.setdefault(_means(rank), []).append(rank)
        for means, ranks in by_means.items():
            rows.append(ReportLine(Kind.DETAIL, f"{spell(ranks, merged.repeated)}: {means}", 2))
        rows += _frame_rows(group.ranks[0].frames)
        rows += [ReportLine(Kind.DETAIL, f"{rank.label}: {_kernel(rank)}", 2) for rank in group.ranks]
        rows += [row for workers in group.workers for row in _worker_rows(workers)]
        hidden = sum(rank.num_workers - len(rank.workers) for rank in group.ranks)
        if hidden > 0:
            rows.append(ReportLine(Kind.DETAIL, f"{hidden} more processes below them were not looked at", 2))
    rows += [ReportLine(Kind.DETAIL, ""), ReportLine(Kind.DETAIL, f"kept in {stacks.folder}")]
    return rows


def _frame_rows(frames: Sequence[Frame]) -> list[ReportLine]:
    rows = [ReportLine(Kind.FRAME, f"{frame.function}  {_where(frame)}", 4) for frame in frames[:MAX_FRAMES]]
    if len(frames) > MAX_FRAMES:
        rows.append(ReportLine(Kind.FRAME, f"… and {len(frames) - MAX_FRAMES} more", 4))
    return rows


def _worker_rows(workers: Workers) -> list[ReportLine]:
    kind = Kind.GROUP if workers.frames or workers.is_cause else Kind.DETAIL
    about = f"{spell_pids(workers.pids)}, {_process(workers.first)}, seen by {workers.first.rung}"
    return [
        ReportLine(kind, workers.sentence, 2),
        ReportLine(Kind.DETAIL, about, 4),
        *_frame_rows(workers.frames),
    ]


def _where(frame: Frame) -> str:
    """A library's file relative to site-packages: the directory above is the same for all, and long."""
    file = _INSTALLED.sub("", frame.file)
    return file if frame.line is None else f"{file}:{frame.line}"


def _means(rank: RankStack) -> str:
    """The rung by which the rank was seen, and why higher ones failed."""
    missed = "; ".join(f"{each.rung}: {each.because}" for each in rank.missed)
    return f"seen by {rank.rung}" + (f" (not by {missed})" if missed else "")


def _kernel(rank: RankStack) -> str:
    """The kernel's facts about the process, whatever else was seen."""
    parts = [f"{rank.node} pid {rank.pid}", _process(rank)]
    if rank.num_sockets is not None:
        parts.append(f"{rank.num_sockets} sockets")
    last = rank.collective
    if last is not None and last.operation is not None:
        parts.append(f"collective {last.number} ({last.operation}) {'done' if last.is_done else 'under way'}")
    return ", ".join(parts)


def _process(of: RankStack | WorkerStack) -> str:
    channel = f" in {of.wait_channel}" if of.wait_channel else ""
    state = "" if of.state is None else f"state {of.state}{channel}, "
    return state + ("CPU –" if of.cpu_pct is None else f"CPU {of.cpu_pct:.0f} %")
