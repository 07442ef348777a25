"""The stacks of a training as lines of text: what the command prints, what is kept beside the dumps, and what the screen shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from coach.analysis.measured.stack_groups import Group, Merged, spell
from coach.model.training.stacks import Frame, RankStack, Stacks

MAX_FRAMES = 40

_INSTALLED = re.compile(r"^.*/(site|dist)-packages/")


class Kind(Enum):
    """What a line is, for those who show it in colour."""

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
    """The answer first, then each group with its stack, and for every rank by which means it was seen."""
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
    """A library's file by its own name: where it is installed is the same for all, and long."""
    file = _INSTALLED.sub("", frame.file)
    return file if frame.line is None else f"{file}:{frame.line}"


def _heading(group: Group) -> str:
    line = group.place.line
    return f"{group.sentence}{f', at {line}' if line else ''}"


def _means(rank: RankStack) -> str:
    """By which rung, and why by no higher one."""
    missed = "; ".join(f"{each.rung}: {each.because}" for each in rank.missed)
    return f"seen by {rank.rung}" + (f" (not by {missed})" if missed else "")


def _kernel(rank: RankStack) -> str:
    """What the kernel says of the process, whatever else was seen."""
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
