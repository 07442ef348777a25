"""Read the resources of one running job on its nodes, and what its steps have used so far.

This is requested for one job by the user, before a step is added to it: `scontrol -d show job` reports memory
and GPUs per node, `sstat` the peaks. Values that neither reports are None. All functions are pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from coach.model.training.telemetry import StepUse
from coach.sources.io import Query
from coach.sources.slurm.ended_jobs import parse_size_mib
from coach.sources.slurm.gres import parse_gres
from coach.sources.slurm.text import parse_whole

_NUM_NODES = re.compile(r"^   NumNodes=(\d{1,15})", re.MULTILINE)
_ON_NODES = re.compile(r"^     Nodes=\S+ CPU_IDs=\S* Mem=(?P<mem>\d{1,15}) GRES=(?P<gres>\S*)$", re.MULTILINE)
_ASKED_GPUS = re.compile(r"^   TresPer\w+=\S*gpu", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The resources of a job on its nodes."""

    num_nodes: int
    memory_mib: int | None
    """MiB on the node with the least; None: all memory of the node, or not reported."""
    num_gpus_untold: int | None
    """GPUs on each node, if the job did not request them but has them with the whole node: a step gets them
    only on request."""


def allocation_query(raw_job_id: str) -> Query:
    return Query("allocation", ("scontrol", "-d", "show", "job", raw_job_id))


def parse_allocation(text: str) -> Allocation | None:
    """None if the text is not that of a running job."""
    num_nodes = _NUM_NODES.findall(text)
    on_nodes = list(_ON_NODES.finditer(text))
    if not num_nodes or not on_nodes:
        return None
    memory = [int(match["mem"]) for match in on_nodes]
    gpus = {
        sum(item.count or 0 for item in parse_gres(match["gres"]) if item.name == "gpu") for match in on_nodes
    }
    is_untold = len(gpus) == 1 and not _ASKED_GPUS.search(text)
    return Allocation(
        int(num_nodes[-1]),
        min(memory) if min(memory) > 0 else None,
        (gpus.pop() or None) if is_untold else None,
    )


def steps_query(raw_job_ids: Sequence[str]) -> Query:
    """All steps of these running jobs, in one request."""
    argv = (
        "sstat",
        "-a",
        "-n",
        "-P",
        "-j",
        ",".join(raw_job_ids),
        "-o",
        "JobID,NTasks,MaxRSS,TRESUsageInTot",
    )
    return Query("steps", argv)


def parse_steps(text: str) -> tuple[StepUse, ...]:
    """The steps in sstat's output; lines of another form are left out."""
    records = (line.split("|") for line in text.splitlines())
    return tuple(_step(*record) for record in records if len(record) == 4)


def _step(step_id: str, num_tasks: str, max_rss: str, used: str) -> StepUse:
    pairs = dict(item.split("=", 1) for item in used.split(",") if "=" in item)
    utilization, tasks = parse_whole(pairs.get("gres/gpuutil", "")), parse_whole(num_tasks)
    return StepUse(
        step_id,
        1 if tasks is None else tasks,
        parse_size_mib(max_rss),
        None if utilization is None else float(utilization),
        parse_size_mib(pairs.get("gres/gpumem", "")),
    )


def memory_peak_mib(steps: Sequence[StepUse], num_nodes: int) -> float | None:
    """Upper bound of the memory used on one node in MiB, as if all steps had their peaks at once; None if a
    step was not measured."""
    peaks = []
    for step in steps:
        if step.max_rss_mib is None:
            return None
        peaks.append(step.max_rss_mib * math.ceil(step.num_tasks / num_nodes))
    return sum(peaks) if peaks else None
