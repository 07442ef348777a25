"""Which fixes fit a target: what a fix presupposes must be shown by its log, its script or its run.

A fix names as data what it needs, so that one place decides for the rules and for the tables of wordings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from coach.model.judging.finding import PRIMARY, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit

MAX_FIXES = 3
"""A finding shows this many fixes: of a longer list the later ones are not read."""
UNKNOWN_SCHEDULER = "scheduler:unknown"
"""Needed by advice for a target whose scheduler is not shown."""
OTHER_SCHEDULER = "scheduler:other"
"""Needed by advice in the words of no scheduler, for a job of PBS, LSF or SGE."""
NO_OTHER_SCHEDULER = "not scheduler:other"
"""Needed by commands of Slurm that only look: coach runs where Slurm is, so they fit unless the log names
another scheduler."""
NOT = "not "
"""Begins a need that must not be shown."""
_SHOWN_BY: Mapping[str, re.Pattern[str]] = {
    "dataloader": re.compile(r"(?i)data_?loader|num_workers"),
    "checkpoint": re.compile(
        r"(?i)\b(?:sav|writ|load|restor|resum)\w{0,8}\b.{0,60}(?:checkpoint|ckpt)"
        r"|(?:checkpoint|ckpt).{0,60}\b(?:saved|written|loaded)|\bcheckpoint-\d|\.ckpt\b"
    ),
    "torch": re.compile(r"\btorch\b"),
    "torchrun": re.compile(r"torchrun|torch[./]distributed[./](?:run|elastic|launch)"),
    "torch.compile": re.compile(r"torch\.compile|torch[./]_(?:dynamo|inductor)"),
    "accelerate": re.compile(r"accelerate"),
    "deepspeed": re.compile(r"(?i)deepspeed|sigkill_handler"),
    "transformers": re.compile(r"transformers|huggingface"),
    "lightning": re.compile(r"(?i)lightning"),
    "conda": re.compile(r"(?i)conda|mamba"),
    "ranks": re.compile(r"(?i)\brank|\btasks? \d|torchrun|srun: "),
    "inodes": re.compile(
        r"\bIUse%|\bInodes\b|\binodes? (?:quota|limit)|\bfiles? (?:quota|limit)|\bnumber of files\b"
        r"|\bfiles +quota\b"
    ),
    "container": re.compile(r"(?i)apptainer|singularity|docker|podman|enroot|pyxis"),
}
"""Need → words in a log that show it."""
_SCHEDULERS: Mapping[str, re.Pattern[str]] = {
    "slurm": re.compile(r"slurmstepd|\bsrun\b|\bsbatch\b|\bsalloc\b|SBATCH|SLURM_"),
    "pbs": re.compile(r"\bPBS\b|PBS_|\bpbs[./]"),
    "lsf": re.compile(r"\bLSF\b|LSB_|BSUB|\bbsub\b|\bTERM_[A-Z]{3}"),
    "sge": re.compile(r"\bSGE\b|SGE_|Grid Engine|\bh_(?:vmem|rt)\b|\bq(?:conf|acct)\b"),
}
"""Scheduler → its words in a log. The first one that is shown counts."""
NEEDS = frozenset(
    {*_SHOWN_BY, *(f"scheduler:{name}" for name in (*_SCHEDULERS, "none", "unknown", "other"))}
) | {PRIMARY, "run", "recipe"}
"""All needs that a target can show."""
_SLURM_LOG = re.compile(r"\bslurm[-_.]?[^\W\d]{0,60}\d[\w.]*$")
_FIELD = re.compile(r"(?<!\$)\{(\w+)\}")


def fitting(fixes: Iterable[Fix], snapshot: TargetSnapshot) -> tuple[Fix, ...]:
    """The first fixes whose needs the target shows, at most MAX_FIXES."""
    fixes = tuple(fixes)
    shown = _shown(snapshot) if any(fix.needs for fix in fixes) else set()
    return tuple(fix for fix in fixes if all(_is_met(need, shown) for need in fix.needs))[:MAX_FIXES]


def fixes_of_wording(hit: LogHit, snapshot: TargetSnapshot) -> tuple[Fix, ...]:
    """The fixes of the row that matched, with the values of its line; empty if it has none that fits."""
    fixes = hit.wording.fixes if hit.wording is not None else ()
    return fitting((_filled(fix, hit.fields) for fix in fixes if _fields(fix) <= hit.fields.keys()), snapshot)


def _shown(snapshot: TargetSnapshot) -> set[str]:
    """The needs that the logs, the script or the run show."""
    known = (
        line for hit in snapshot.log_hits for line in (hit.text, *(hit.block.lines if hit.block else ()))
    )
    text = "\n".join([*snapshot.lines, *dict.fromkeys(known)])
    run, scheduler = snapshot.run, _scheduler_of(snapshot, text)
    shown = {need for need, words in _SHOWN_BY.items() if words.search(text)}
    shown |= {PRIMARY, f"scheduler:{scheduler}"}
    if scheduler in ("pbs", "lsf", "sge"):
        shown.add(OTHER_SCHEDULER)
    if run is not None:
        shown.add("run")
    if run is not None and run.launch.get("recipe"):
        shown.add("recipe")
    if run is not None and run.parameters.get("num_workers"):
        shown.add("dataloader")
    if snapshot.checkpoints:
        shown.add("checkpoint")
    return shown


def _is_met(need: str, shown: Set[str]) -> bool:
    return (need.removeprefix(NOT) in shown) is not need.startswith(NOT)


def _scheduler_of(snapshot: TargetSnapshot, text: str) -> str:
    """`slurm`, `pbs`, `lsf`, `sge`, `none` for a run without one, or `unknown`."""
    run = snapshot.run
    if snapshot.job is not None or (run is not None and run.backend == "slurm"):
        return "slurm"
    if run is not None and run.backend == "local":
        return "none"
    is_slurm_log = any(_SLURM_LOG.search(tail.file) for tail in snapshot.log_tails)
    named = (name for name, words in _SCHEDULERS.items() if words.search(text))
    return next(named, "slurm" if is_slurm_log else "unknown")


def _fields(fix: Fix) -> set[str]:
    return {*_FIELD.findall(fix.title), *_FIELD.findall(fix.command or "")}


def _filled(fix: Fix, fields: Mapping[str, str]) -> Fix:
    """A command gets the values quoted: they are a program's words, and may be pasted into a shell."""
    command = fix.command and _FIELD.sub(lambda found: shlex.quote(fields[found[1]]), fix.command)
    return replace(fix, title=_FIELD.sub(lambda found: fields[found[1]], fix.title), command=command)
