"""One node as lines: its state in words, each GPU with the job that has it, and the reason if an idle GPU is
not free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coach.analysis.queueing.free_gpus import GpuSlot, NodeGpus
from coach.analysis.queueing.node_state import explain_state
from coach.model.errors import OTHERS_JOBS, hidden_by_site
from coach.model.slurm.cluster import Job, Node
from coach.render.severity import job_state_tone, node_state_sign, node_state_tone
from coach.render.text import (
    UNKNOWN,
    Line,
    Span,
    age,
    clip,
    clock,
    fit,
    line,
    mib_of,
    muted,
    of_total,
    printable,
    strong,
    whole,
)
from coach.tui.render.pending import labelled


def node_fact_lines(node: Node, free: Sequence[NodeGpus], now_s: float, width: int) -> list[Line]:
    """The facts of the node, and the resources that a job could get there now."""
    state = explain_state(node.state)
    sign = node_state_sign(node.state).strip() or "●"
    rows = [
        line(
            Span(f" {sign} {printable(node.state)}", node_state_tone(node.state) or "good"),
            muted("   takes jobs" if state.takes_jobs else "   takes no new jobs"),
        ),
        *labelled("state", state.meaning, width, is_strong=True),
    ]
    if node.reason is not None:
        rows += labelled("reason", node.reason, width)
        given = "" if node.reason_time_s is None else f", {age(now_s - node.reason_time_s)} ago"
        rows += labelled("given by", f"{node.reason_user or UNKNOWN}{given}", width)
    if node.owner is not None:
        rows += labelled("shared with", f"jobs of {node.owner} alone", width)
    rows += labelled("cpus", f"{of_total(node.num_cpus_allocated, node.num_cpus)} in use", width)
    rows += labelled("memory", f"{mib_of(node.memory_allocated_mib, node.memory_mib)} in use", width)
    rows += labelled("partitions", ", ".join(node.partitions) or UNKNOWN, width)
    if node.features:
        rows += labelled("features", ", ".join(node.features), width)
    for gpus in free:
        kind = gpus.type or "of no named type"
        counts = f"{whole(gpus.free)} free of {gpus.total} {kind}, {whole(gpus.allocated)} in use"
        rows += labelled("gpus", counts, width, is_strong=True)
        if gpus.why_not is not None:
            rows += labelled("", f"the idle ones are not available: {gpus.why_not}", width)
    return rows


def slot_lines(
    slots: Sequence[GpuSlot],
    jobs: Mapping[str, Job],
    is_known: bool,
    width: int,
    *,
    are_others_hidden: bool = False,
) -> list[Line]:
    """Each GPU by its index: idle, or the job that has it. `is_known`: Slurm reported which job has which
    GPU."""
    untold = " by a job that the site hides" if are_others_hidden else " by an unknown job"
    rows = []
    for slot in slots:
        job = jobs.get(slot.job_id or "")
        if not slot.is_used:
            what: tuple[Span, ...] = (muted(UNKNOWN if slot.is_used is None else "idle"),)
        elif slot.job_id is None:
            what = (Span("in use"), muted(untold if is_known else ""))
        else:
            what = (strong(f"job {printable(slot.job_id)}"), *_whose(job))
        sign = Span("■ " if slot.is_used else "□ ", "accent" if slot.is_used else "muted")
        rows.append(clip(line(f"   gpu {slot.index:<3} ", sign, *what), width))
    return rows


def _whose(job: Job | None) -> tuple[Span, ...]:
    if job is None:
        return ()
    return (
        Span(f" of {printable(job.user)}"),
        muted(f"  {printable(job.name)}, {clock(job.time_left_s)} left"),
    )


def node_job_lines(
    jobs: Sequence[Job], width: int, *, are_others_hidden: bool = False, all_key: str | None = None
) -> list[Line]:
    """The jobs of the queue on this node. `all_key`: the key that reads everybody's jobs, if the queue holds
    only the user's."""
    if not jobs and are_others_hidden:
        return [line(muted(f"   no job of yours; {hidden_by_site(OTHERS_JOBS)}"))]
    if not jobs:
        others = f"; {all_key} in the queue shows everybody's" if all_key is not None else ""
        return [line(muted(f"   no job {'of yours ' if others else ''}runs here{others}"))]
    rows = [line(muted("   JOB         USER      STATE        CPUS   USED        LEFT        NAME"))]
    for job in jobs:
        rows.append(
            clip(
                line(
                    f"   {fit(printable(job.job_id), 10)}  {fit(printable(job.user), 8)}  ",
                    Span(fit(printable(job.state), 11), job_state_tone(job.state)),
                    (
                        f"  {whole(job.num_cpus):<5}  {clock(job.time_used_s):<10}  "
                        f"{clock(job.time_left_s):<10}  "
                    ),
                    Span(printable(job.name)),
                ),
                width,
            )
        )
    return rows
