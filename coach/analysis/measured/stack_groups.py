"""Merge equal stacks, name each group by its place in the code, find the rank that delays the others, and
write the report.

Pure. The function that a rank is in says more than its stack: in a collective a rank waits for the others. So
if most ranks are in one, they wait for a rank that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

from coach.model.training.stacks import Frame, RankStack, Stacks

_COLLECTIVE = re.compile(
    r"(all_?(gather|reduce|to_?all)|reduce|broadcast|gather|scatter|(monitored_)?barrier|send|recv|new_group"
    r"|(init|destroy)_process_group)(_\w+)?"
)
_COMMUNICATION = ("/torch/distributed/", "/deepspeed/comm/", "/horovod/")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen", "<string>")
_BUSY_PCT = 20.0
_SLEEPS = ("nanosleep",)


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's place in the code. `is_waiting` for other ranks; None: cannot be determined."""

    words: str
    """The words after `waits in` or `is in`."""
    is_waiting: bool | None
    line: str | None = None
    """The line of the training's own code: `train.py:41 load`."""

    def sentence(self, is_one: bool) -> str:
        verb = ("waits" if is_one else "wait") if self.is_waiting else ("is" if is_one else "are")
        return f"{verb} {self.words}"


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks with the same stack."""

    ranks: tuple[RankStack, ...]
    place: Place
    is_odd: bool = False

    @property
    def label(self) -> str:
        return spell(self.ranks)

    @property
    def sentence(self) -> str:
        return f"{self.label} {self.place.sentence(len(self.ranks) == 1)}"


@dataclass(frozen=True, slots=True)
class Merged:
    groups: tuple[Group, ...]
    """Largest group first."""
    absent: tuple[int, ...]
    """Ranks without a process on any node, although all nodes answered."""

    @property
    def odd(self) -> tuple[RankStack, ...]:
        return tuple(rank for group in self.groups if group.is_odd for rank in group.ranks)

    @property
    def sentence(self) -> str:
        by_place: dict[tuple[str, bool | None], list[RankStack]] = {}
        for group in self.groups:
            by_place.setdefault((group.place.words, group.place.is_waiting), []).extend(group.ranks)
        parts = [Group(tuple(ranks), Place(*place)).sentence for place, ranks in by_place.items()]
        if self.absent:
            one = len(self.absent) == 1
            parts.append(f"{_numbers(self.absent)} {'has' if one else 'have'} no process any more")
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
    odd = _odd(groups)
    marked = tuple(Group(group.ranks, group.place, group in odd) for group in groups)
    size = max((rank.world_size or 0 for rank in stacks.ranks), default=0)
    present = {rank.rank for rank in stacks.ranks}
    absent = () if stacks.num_silent_nodes else tuple(rank for rank in range(size) if rank not in present)
    return Merged(marked, absent)


def place_of(rank: RankStack) -> Place:
    """The place, by the outermost collective, by torch's current work for the training, or by the training's
    own function."""
    frames = rank.frames
    if not frames:
        return _place_by_collective(rank) or _place_by_kernel(rank)
    own = next((frame for frame in frames if not _is_of(frame, _LIBRARIES)), frames[0])
    file = PurePath(own.file).name
    words, is_waiting = (
        _in_collective(frames)
        or _in_torch(frames, _is_idle(rank))
        or (f"in {own.name if own.name != '<module>' else file}", False)
    )
    return Place(words, is_waiting, f"{file}:{own.line} {own.name}")


def _in_collective(frames: Sequence[Frame]) -> tuple[str, bool] | None:
    """The words and `is_waiting` of the outermost collective."""
    for frame in reversed(frames):
        if _COLLECTIVE.fullmatch(frame.name) and _is_of(frame, _COMMUNICATION):
            return f"in {frame.name}", True
    return None


def _in_torch(frames: Sequence[Frame], is_idle: bool) -> tuple[str, bool | None] | None:
    """The words and `is_waiting` of the innermost torch call that has a plain name."""
    for frame in frames:
        if frame.name == "__next__" and frame.file.endswith("torch/utils/data/dataloader.py"):
            return "in DataLoader.__next__", False
        if frame.name == "synchronize" and "/torch/cuda/" in frame.file:
            return "for the GPU in torch.cuda.synchronize", True
        if frame.name == "backward" and "/torch/" in frame.file:
            # DDP exchanges gradients in here: the stack does not show if the rank computes or waits.
            return "in backward", True if is_idle else None
    return None


def _is_idle(rank: RankStack) -> bool:
    return rank.cpu_pct is not None and rank.cpu_pct < _BUSY_PCT


def spell(ranks: Iterable[RankStack]) -> str:
    """`ranks 0-2,4-7`, `rank 3`, `pid 12 on node1`."""
    ranks = tuple(ranks)
    numbers = sorted(rank.rank for rank in ranks if rank.rank is not None)
    parts = [_numbers(numbers)] if numbers else []
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


def _place_by_collective(rank: RankStack) -> Place | None:
    last = rank.collective
    if last is None:
        return None
    if last.is_done:
        return Place(f"after collective {last.number} ({last.operation}), and not yet in the next", False)
    return Place(f"in collective {last.number} ({last.operation})", True)


def _place_by_kernel(rank: RankStack) -> Place:
    channel = rank.wait_channel
    at = f" ({channel})" if channel else ""
    if rank.state is None:
        return Place("not visible: the process has ended, or belongs to another user", None)
    if rank.state == "D":
        return Place(f"held up by a disk or a file server{at}", False)
    if rank.state in ("T", "t"):
        return Place("stopped by a signal or a debugger", False)
    if rank.state == "R" or (rank.cpu_pct or 0.0) > _BUSY_PCT:
        return Place("computing", False)
    if channel is not None and any(word in channel for word in _SLEEPS):
        return Place(f"in a sleep call of its own{at}", False)
    return Place(f"for something{at}", True)


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


def _is_of(frame: Frame, places: Iterable[str]) -> bool:
    return any(place in frame.file for place in places)


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
    if stacks.num_silent_nodes:
        silent = f"{stacks.num_silent_nodes} of {stacks.num_nodes} nodes did not answer"
        rows.append(ReportLine(Kind.ODD, f"{silent}: {stacks.because or 'no reason is known'}"))
    for group in merged.groups:
        rows += [ReportLine(Kind.DETAIL, ""), ReportLine(Kind.GROUP, _heading(group))]
        by_means: dict[str, list[RankStack]] = {}
        for rank in group.ranks:
            by_means.setdefault(_means(rank), []).append(rank)
        for means, ranks in by_means.items():
            rows.append(ReportLine(Kind.DETAIL, f"{spell(ranks)}: {means}", 2))
        frames = group.ranks[0].frames
        for frame in frames[:MAX_FRAMES]:
            rows.append(ReportLine(Kind.FRAME, f"{frame.function}  {_where(frame)}", 4))
        if len(frames) > MAX_FRAMES:
            rows.append(ReportLine(Kind.FRAME, f"… and {len(frames) - MAX_FRAMES} more", 4))
        rows += [ReportLine(Kind.DETAIL, f"{rank.label}: {_kernel(rank)}", 2) for rank in group.ranks]
    rows += [ReportLine(Kind.DETAIL, ""), ReportLine(Kind.DETAIL, f"kept in {stacks.folder}")]
    return rows


def _where(frame: Frame) -> str:
    """A library's file relative to site-packages: the directory above is the same for all, and long."""
    file = _INSTALLED.sub("", frame.file)
    return file if frame.line is None else f"{file}:{frame.line}"


def _heading(group: Group) -> str:
    line = group.place.line
    return f"{group.sentence}{f', at {line}' if line else ''}"


def _means(rank: RankStack) -> str:
    """The rung by which the rank was seen, and why higher ones failed."""
    missed = "; ".join(f"{each.rung}: {each.because}" for each in rank.missed)
    return f"seen by {rank.rung}" + (f" (not by {missed})" if missed else "")


def _kernel(rank: RankStack) -> str:
    """The kernel's facts about the process, whatever else was seen."""
    parts = [f"{rank.node} pid {rank.pid}"]
    if rank.state is not None:
        parts.append(f"state {rank.state}{f' in {rank.wait_channel}' if rank.wait_channel else ''}")
    parts.append("CPU –" if rank.cpu_pct is None else f"CPU {rank.cpu_pct:.0f} %")
    if rank.num_sockets is not None:
        parts.append(f"{rank.num_sockets} sockets")
    last = rank.collective
    if last is not None and last.operation is not None:
        parts.append(f"collective {last.number} ({last.operation}) {'done' if last.is_done else 'under way'}")
    return ", ".join(parts)
