"""One node as a page: its GPUs with their use, its jobs, its facts, its last hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coach.analysis.queueing.free_gpus import GpuSlot, NodeGpus
from coach.lookback.node_past import NodePast
from coach.model.slurm.cluster import GpuAllocation, Job, Node
from coach.model.training.telemetry import GpuSample
from coach.render.text import (
    BLANK,
    KeyLabel,
    Line,
    Span,
    age,
    beside,
    clip,
    line,
    mib,
    muted,
    printable,
    whole,
)
from coach.tui.question import Answer
from coach.tui.render.allocation import node_fact_lines, node_job_lines, slot_lines
from coach.tui.render.answer import answer_line
from coach.tui.render.curve import bar
from coach.tui.render.node_hours import Measured as Measured
from coach.tui.render.node_hours import past_lines

WIDE = 108
"""From this width on the facts stand beside the GPUs."""
_STALE_S = 30.0
_LEAST_PAST = 10


@dataclass(frozen=True, slots=True)
class NodeSubject:
    """All data about one node."""

    node: Node
    free: Sequence[NodeGpus]
    slots: Sequence[GpuSlot]
    jobs: Sequence[Job]
    """The jobs on it."""
    measured: Sequence[Measured]
    answer: Answer[tuple[GpuAllocation, ...]] | None
    """The answer which job has which GPU; None if no GPU is in use."""
    past: NodePast
    are_others_hidden: bool
    now_s: float
    label: KeyLabel
    are_all_shown: bool = True
    """False if coach has only the user's own jobs."""


def page_lines(page: NodeSubject, width: int, height: int) -> list[Line]:
    """The page: its GPUs and its jobs first, its facts beside or below them, then its last hours."""
    node, is_wide = page.node, width >= WIDE
    left_width = width // 2 if is_wide else width
    facts = node_fact_lines(node, page.free, page.now_s, width - left_width or width)
    gpus = _gpu_rows(page, left_width) if node.gpus else []
    jobs = sorted(page.jobs, key=lambda job: (-(job.num_gpus or 0), -(job.num_cpus or 0), job.job_id))
    all_key = None if page.are_all_shown else page.label("all")
    work = [
        line(muted(" jobs here")),
        *node_job_lines(jobs, width, are_others_hidden=page.are_others_hidden, all_key=all_key),
    ]
    # The state comes first at every width, because it matters most for a node that is down.
    rows = (
        [*beside(gpus, facts, left_width, 2), *work]
        if is_wide
        else [facts[0], *gpus, *work, BLANK, *facts[1:]]
    )
    room = max(_LEAST_PAST, height - len(rows) - 2)
    past = past_lines(node, page.past, page.measured, page.now_s, width, room, page.label)
    return [*rows, BLANK, line(muted(" the last hours while coach was open")), *past]


def _gpu_rows(page: NodeSubject, width: int) -> list[Line]:
    head = (
        answer_line("gpus by index", page.answer, page.now_s, page.label)
        if page.answer is not None
        else line(muted(" gpus by index"))
    )
    is_known = page.answer is not None and page.answer.value is not None
    return [head, *gpu_lines(page, width, is_known=is_known), BLANK]


def measured_samples(
    node: str, slots: Sequence[GpuSlot], measured: Sequence[Measured]
) -> tuple[dict[int, GpuSample], list[tuple[str, GpuSample]]]:
    """The newest sample of each GPU by its index on the node; and the samples of jobs whose GPUs Slurm did
    not report, with the job.

    A job numbers its own GPUs from 0, and nothing maps these numbers to the node's indices. So they are
    matched in order of the indices, and each sample shows its number within the job.
    """
    found: dict[int, GpuSample] = {}
    others = []
    for each in measured:
        own = [slot.index for slot in slots if slot.job_id == each.job_id]
        for key in each.history.gpus:
            if key[0] == node and key[1] < len(own):
                found[own[key[1]]] = each.history.gpu(*key)[-1]
            elif key[0] == node:
                others.append((each.job_id, each.history.gpu(*key)[-1]))
    return found, others


def gpu_lines(page: NodeSubject, width: int, *, is_known: bool) -> list[Line]:
    """Each GPU with its job, and its use if that is measured."""
    by_id: Mapping[str, Job] = {job.job_id: job for job in page.jobs}
    samples, others = measured_samples(page.node.name, page.slots, page.measured)
    rows = slot_lines(page.slots, by_id, is_known, width, are_others_hidden=page.are_others_hidden)
    result: list[Line] = []
    for slot, row in zip(page.slots, rows, strict=True):
        result.append(row)
        sample = samples.get(slot.index)
        if sample is not None:
            result.append(_sample_line(sample, page.now_s, width))
    for job_id, sample in others:
        result.append(clip(line(f"   job {printable(job_id)}"), width))
        result.append(_sample_line(sample, page.now_s, width))
    return result


def _sample_line(sample: GpuSample, now_s: float, width: int) -> Line:
    old_s = now_s - sample.time_s
    share = None if sample.utilization_pct is None else sample.utilization_pct / 100
    used, total = sample.memory_used_mib, sample.memory_total_mib
    held = used / total if used is not None and total else None
    size = 16 if width >= 100 else 8 if width >= 70 else 4
    is_old = old_s > _STALE_S
    use = f"{'▲' if is_old else ' '}{age(old_s)} old"
    return clip(
        line(
            muted(f"   its gpu {sample.gpu:<2} use "),
            Span(bar(share, size), "muted" if is_old else "accent"),
            f" {whole(sample.utilization_pct):>3}% ",
            muted(" mem "),
            Span(bar(held, size), "muted" if is_old else "accent"),
            f" {mib(used)}/{mib(total)}  ",
            Span(f"{use}  ", "warning" if is_old else "muted"),
            f"{whole(sample.power_w)}/{whole(sample.power_limit_w)} W",
        ),
        width,
    )
