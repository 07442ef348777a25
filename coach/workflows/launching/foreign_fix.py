"""Fixes for a job that coach did not launch: its batch script, the change as a diff, and the script's source.

Nothing is overwritten: the script belongs to its author, who alone knows what else depends on it. Its options
are read as if a launch had set them, so the rules' own fixes, with their preconditions and limits, apply to
it too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from coach.analysis.jobs.batch_script import Script, change_script, read_script
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule
from coach.rules.engine import Engine
from coach.sources.io import Io
from coach.sources.slurm.kept_script import FoundScript, find_script

_TITLE = "its batch script"


@dataclass(frozen=True, slots=True)
class ForeignFix:
    """One fix, written into the script. Without a diff it is advice; `unsaid` lists the changes for which the
    script has no option."""

    finding: Finding
    fix: Fix
    diff: tuple[str, ...]
    unsaid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForeignFixes:
    """All fixes for one job. `problem` says why there are no diffs."""

    origin: str | None
    framework: str | None
    fixes: tuple[ForeignFix, ...]
    problem: str | None = None


def fixes_of_job(
    snapshot: TargetSnapshot, history: History, told: Diagnosis, rules: Iterable[Rule], io: Io
) -> ForeignFixes:
    """Fixes with diffs if some source still has the job's script, else the advice of the findings."""
    job = snapshot.job
    try:
        found = find_script(
            io,
            *(
                (snapshot.target, None, None, "")
                if job is None
                else (job.job_id, job.command, job.work_dir, job.user)
            ),
        )
    except UserError as error:
        fixes = tuple(ForeignFix(each, fix, (), ()) for each in told.findings for fix in each.fixes)
        return ForeignFixes(None, None, fixes, f"{error.message} ({error.hint})")
    return foreign_fixes(snapshot, history, told, found, rules)


def foreign_fixes(
    snapshot: TargetSnapshot, history: History, told: Diagnosis, found: FoundScript, rules: Iterable[Rule]
) -> ForeignFixes:
    """The fixes of these findings as changes of the script."""
    tails = "\n".join(line for tail in snapshot.log_tails for line in tail.plain)
    script = read_script((found.text, *found.files.values()), tails)
    launched = replace(snapshot, run=as_launched(script, snapshot, history))
    typed = {
        (finding.rule, finding.subject): finding.fixes
        for finding in Engine(rules).diagnose(launched, history).findings
    }
    fixes = tuple(
        _made(finding, fix, script, found)
        for finding in told.findings
        for fix in typed.get((finding.rule, finding.subject), finding.fixes)
    )
    return ForeignFixes(found.origin, script.framework.name, fixes)


def as_launched(script: Script, snapshot: TargetSnapshot, history: History) -> Run:
    """The script as coach would have recorded it for a launch: its options, and the resources it runs on."""
    job, asked, parameters = snapshot.job, script.asked, dict(script.parameters)
    started = parameters.pop("nproc_per_node", None)
    resources = _resources(job, started, asked)
    names = [gpu.name for key in history.gpus for gpu in list(history.gpu(*key))[-1:] if gpu.name]
    return Run(
        *(snapshot.target, "", "", "slurm", job.job_id if job is not None else None, snapshot.state),
        parameters=MappingProxyType(parameters),
        resources=MappingProxyType(resources),
        launch={},
        created_time_s=None,
        started_time_s=job.start_time_s if job is not None else None,
        ended_time_s=job.end_time_s if job is not None else None,
        parent_run_id=None,
        fix=None,
        device={"type": "cuda", "name": names[0]} if names else {},
        dataset={},
        versions={},
    )


def _resources(job: Job | None, started: int | None, asked: Mapping[str, str]) -> dict[str, Any]:
    """The job's resources on each node. `started`: number of ranks that the script starts."""
    nodes = (job.num_nodes if job is not None else None) or 1
    gpus = _on_each(nodes, job.num_gpus if job is not None else None)
    tasks = int(asked["ntasks_per_node"]) if asked.get("ntasks_per_node", "").isdecimal() else 1
    return {
        "num_nodes": nodes,
        "gpus_per_node": gpus,
        "nproc_per_node": started or max(tasks, gpus or 1),
        "cpus_per_task": _on_each(nodes, job.num_cpus if job is not None else None),
        "time_limit_s": job.time_limit_s if job is not None else None,
        **{key: asked[key] for key in ("mem", "exclude", "signal") if key in asked},
    }


def _on_each(nodes: int, count: int | None) -> int | None:
    return None if count is None else count // nodes


def _made(finding: Finding, fix: Fix, script: Script, found: FoundScript) -> ForeignFix:
    if not fix.changes:
        return ForeignFix(finding, fix, (), ())
    changes = dict(fix.changes)
    tasks = script.asked.get("ntasks_per_node", "")
    if "cpus_per_task" in changes and tasks.isdecimal() and int(tasks) > 1:
        changes["cpus_per_task"] = -(-changes["cpus_per_task"] // int(tasks))  # coach counts CPUs per node
    texts, unsaid = change_script(script, changes)
    lines: list[str] = []
    for name, old, new in zip((_TITLE, *found.files), script.texts, texts, strict=True):
        lines += difflib.unified_diff(
            old.splitlines(), new.splitlines(), name, f"{name}, changed", n=1, lineterm=""
        )
    return ForeignFix(finding, fix, tuple(lines), tuple(_unsaid(script, key, changes[key]) for key in unsaid))


def _unsaid(script: Script, key: str, value: Any) -> str:
    if key == "env" and isinstance(value, Mapping):
        return "in the script, where it is set: " + ", ".join(
            f"{name}={text}" for name, text in value.items()
        )
    said = script.framework.in_code.get(key)
    where = (
        f"in the program: {said.format(value)}"
        if said
        else f"in the program: {key.replace('_', ' ')} {value}"
    )
    return where + (", if it accumulates nothing yet" if key == "gradient_accumulation" else "")
