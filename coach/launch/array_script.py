"""The batch script for a group of runs that is one job array: each task starts its own run's script. Pure.

One call of sbatch submits all runs or none, the array's limit bounds the number of runs at a time, and squeue
shows them as one row. All runs must ask Slurm for the same resources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from coach import runs
from coach.analysis.queueing.arrays import format_tasks
from coach.model.launching.launch import ARRAY_TASK, OwnKind, Plan

_OPTION = re.compile(r"#SBATCH\b.*")
_OF_ONE_RUN = re.compile(r"#SBATCH --(?:output|error|job-name|array)=")
_LOGS = re.compile(r"#SBATCH --(?:output|error)=")


def can_be_array(plans: Sequence[Plan]) -> bool:
    """True for several runs that ask Slurm for the same resources."""
    asked = {tuple(line for line in _options(plan) if not _OF_ONE_RUN.match(line)) for plan in plans}
    return len(plans) > 1 and len(asked) == 1


def tasks_of(plans: Sequence[Plan]) -> list[int]:
    """The array task of each run: the task that the user's batch file names, else the run's index in the
    group."""
    said = [task_of(plan) for plan in plans]
    return [index if task is None else task for index, task in enumerate(said)]


def task_of(plan: Plan) -> int | None:
    """The task of a batch file's array that the run is; None for any other run."""
    point, own = plan.request.sweep_point, plan.request.own
    if point is not None and point.parameter == ARRAY_TASK:
        return int(point.value)
    return own.array_task if own is not None else None


def render(plans: Sequence[Plan], at_once: int | None, coach_version: str) -> str:
    """The array's script. `at_once` is the most runs at a time; None leaves that to Slurm."""
    first = plans[0]
    is_batch = first.request.own is not None and first.request.own.kind is OwnKind.BATCH
    tasks = tasks_of(plans)
    limit = f"%{at_once}" if at_once is not None else ""
    options = _options(first)
    if not is_batch:  # each run has its own logs, like a job by itself
        options = [line for line in options if not _LOGS.match(line)]
        options += ["#SBATCH --output=/dev/null", "#SBATCH --error=/dev/null"]
    lines = [
        "#!/bin/bash",
        *options,
        f"#SBATCH --array={format_tasks(tasks)}{limit}",  # the last counts: a batch file names an array too
        f"# {len(plans)} runs of {first.recipe}, written by coach {coach_version}. Each task is a run: the",
        "# script in its directory says all that it does.",
        f"RUNS={quote(str(Path(first.run_dir).parent))}",
        'case "$SLURM_ARRAY_TASK_ID" in',
        *(f"  {task}) RUN={quote(plan.run_id)} ;;" for task, plan in zip(tasks, plans, strict=True)),
        "esac",
        "# A node may see a new directory late: looking into its parent makes it ask the file server.",
        "for _ in 1 2 3 4 5 6 7 8 9 10; do",
        '  [ -r "$RUNS/$RUN/job.sh" ] && break',
        '  ls -- "$RUNS" > /dev/null',
        "  sleep 1",
        "done",
    ]
    if not is_batch:
        logs = f'"$RUNS/{runs.LOGS_FOLDER}/$RUN'
        lines += [f'exec >> {logs}.out" 2>> {logs}.err"']
    return "\n".join([*lines, 'exec bash "$RUNS/$RUN/job.sh"']) + "\n"


def _options(plan: Plan) -> list[str]:
    """The leading #SBATCH lines of a run's script."""
    found = []
    for line in plan.script.split("\n")[1:]:
        if not _OPTION.match(line):
            break
        found.append(line)
    return found
