"""Read which GPUs running jobs have.

The queue does not contain this: only `scontrol show job -d` reports the job of each GPU. The request is
expensive (3 RPCs, and slow for a long queue), so it is made once for all jobs, and only on demand. All
functions are pure.
"""

from __future__ import annotations

import re

from coach.model.slurm.cluster import GpuAllocation
from coach.sources.io import Query
from coach.sources.slurm.gres import PARTS_OF_GPUS, parse_gres
from coach.sources.slurm.node_sets import expand_nodes

ALLOCATIONS_QUERY = Query("allocations", ("scontrol", "-a", "-d", "show", "jobs"))

RECORD = re.compile(r"^JobId=(?P<raw>\d{1,15})(?: (?P<ids>(?:(?:Array|Het)\w+=\S+ )*))", re.MULTILINE)
"""The first words of a job's record."""
_STATE = re.compile(r"^   JobState=(\S+) ", re.MULTILINE)
_NODES = re.compile(r"^     Nodes=(?P<nodes>\S+) CPU_IDs=\S* Mem=\S* GRES=(?P<gres>\S*)$", re.MULTILINE)
_HOLDING = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING"}
)


def parse_allocations(text: str) -> tuple[tuple[GpuAllocation, ...], int]:
    """(GPUs of all running jobs, number of jobs with more than one record).

    The name of a job is at the beginning of its record and may imitate whole records. The true record then
    has the same job id, and neither is used. If a name claims GPUs for its own job, analysis.free_gpus
    detects that by comparison with the nodes.
    """
    starts = list(RECORD.finditer(text))
    seen: dict[str, list[GpuAllocation] | None] = {}
    num_bad = 0
    ends = [*(each.start() for each in starts), len(text)][1:]
    for match, end in zip(starts, ends, strict=True):
        raw = match["raw"]
        if raw in seen:
            num_bad += seen[raw] is not None
            seen[raw] = None
            continue
        seen[raw] = _allocations(job_id_of(match), text[match.start() : end])
    return tuple(each for found in seen.values() for each in found or ()), num_bad


def job_id_of(record: re.Match[str]) -> str:
    """`17`, `17_3` or `20+1`, from a match of `RECORD`."""
    pairs = dict(word.split("=", 1) for word in record["ids"].split())
    if "ArrayJobId" in pairs and pairs.get("ArrayTaskId", "").isdecimal():
        return f"{pairs['ArrayJobId']}_{pairs['ArrayTaskId']}"
    if "HetJobId" in pairs and "HetJobOffset" in pairs:
        return f"{pairs['HetJobId']}+{pairs['HetJobOffset']}"
    return record["raw"]


def _allocations(job_id: str, record: str) -> list[GpuAllocation]:
    state = _STATE.search(record)
    if state is None or state[1] not in _HOLDING:
        return []
    found = []
    for line in _NODES.finditer(record):
        for item in parse_gres(line["gres"]):
            if item.name in {"gpu", *PARTS_OF_GPUS} and item.count:
                nodes = expand_nodes(line["nodes"])
                found.append(GpuAllocation(job_id, nodes, item.indices or ()))
    return found
