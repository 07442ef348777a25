"""Where a job writes its output: Slurm's file name patterns, expanded as slurmd expands them.

Slurm itself tells the paths half expanded, each version and each client in its own way (22.05's `scontrol
show job` leaves %N, %J and %5j as they are, its `squeue` everything); what slurmd makes of them was the same
in all versions that were tried. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from coach.model.slurm.cluster import Job
from coach.sources.slurm.node_sets import expand_nodes

DEFAULT_NAME = "slurm-%j.out"
DEFAULT_ARRAY_NAME = "slurm-%A_%a.out"
NOWHERE = Path("/dev/null")

_PATTERN = re.compile(r"%(\d*)(.?)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PADDED = frozenset("aAbjnst")
_MAX_WIDTH = 10
_NO_TASK = str(2**32 - 2)
"""What slurmd writes for the array index of a job that is no array's."""
_JOB_ID = re.compile(r"(\d+)(?:_(\d+))?(?:\+\d+)?")


@dataclass(frozen=True, slots=True)
class Names:
    """What patterns stand for. None: not known yet, as the node before a job has started."""

    job_id: str
    """The job's own number, of an array's task too."""
    array_job_id: str
    array_task: str | None
    job_name: str
    user: str
    node: str | None
    step: str = "batch"
    node_index: str = "0"
    task: str = "0"


def expand(pattern: str, names: Names, work_dir: Path) -> Path | None:
    """sbatch(1), "filename pattern"; None where it depends on what is not known yet. A backslash takes the
    meaning from all patterns."""
    if "\\" in pattern:
        return work_dir / _ESCAPED.sub(r"\1", pattern)
    values = _values(names)
    if any(letter in values and values[letter] is None for _, letter in _PATTERN.findall(pattern)):
        return None
    return work_dir / _PATTERN.sub(lambda found: _expanded(found, values), pattern)


def output_paths(job: Job) -> tuple[Path, ...] | None:
    """The logs of a job, its output first; none where it writes to /dev/null. None where they are not known,
    or not yet."""
    names = names_of(job)
    if names is None or job.work_dir is None:
        return None
    given = job.stdout or DEFAULT_NAME
    # squeue expands the default of an array's task as if it were a job by itself; slurmd does not.
    of_task = names.array_task is not None and PurePath(given).name in (
        DEFAULT_NAME,
        f"slurm-{names.job_id}.out",
    )
    if of_task:
        given = str(PurePath(given).with_name(DEFAULT_ARRAY_NAME))
    errors = given if of_task and job.stderr == job.stdout else job.stderr or given
    found = [expand(pattern, names, Path(job.work_dir)) for pattern in (given, errors)]
    paths = [path for path in dict.fromkeys(found) if path is not None and path != NOWHERE]
    return None if None in found else tuple(paths)


def names_of(job: Job) -> Names | None:
    """None for what is no single job: the tasks of an array that have not started."""
    number = _JOB_ID.fullmatch(job.job_id)
    if number is None:
        return None
    nodes = expand_nodes(job.nodes)
    return Names(
        job_id=job.raw_job_id or number[1],
        array_job_id=number[1],
        array_task=number[2],
        job_name=job.name,
        user=job.user,
        node=nodes[0].split(".")[0] if nodes else None,
    )


def _values(names: Names) -> Mapping[str, str | None]:
    task = _NO_TASK if names.array_task is None else names.array_task
    return {
        "%": "%",
        "A": names.array_job_id,
        "a": task,
        "b": str(int(task) % 10) if task.isdecimal() else None,
        "J": names.job_id if names.step == "batch" else f"{names.job_id}.{names.step}",
        "j": names.job_id,
        "N": names.node,
        "n": names.node_index,
        "s": names.step,
        "t": names.task,
        "u": names.user,
        "x": names.job_name,
    }


def _expanded(found: re.Match[str], values: Mapping[str, str | None]) -> str:
    width, letter = found.groups()
    value = values.get(letter)
    if value is None:  # no pattern: it stays, but for the sign where a width follows it
        return f"{width}{letter}" if width else found[0]
    if width and letter in _PADDED and value.isdecimal():
        return value.zfill(min(int(width[:3]), _MAX_WIDTH))
    return value
