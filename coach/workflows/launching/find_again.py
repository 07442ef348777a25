"""Find all that is needed to resubmit a job that coach did not launch: its script and its resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coach.analysis.queueing.arrays import group_id
from coach.config import Settings, Switch
from coach.launch.resubmission import Resubmission, read_job
from coach.launch.spelling import format_time
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job, has_failed
from coach.sources.io import Io, Query
from coach.sources.machine.user import user_name
from coach.sources.slurm.kept_script import FoundScript, find_script, split_command
from coach.workflows.jobs.own_jobs import Named, look_up
from coach.workflows.readonly import refuse_if_readonly

_FORGOTTEN = ("Invalid job id", "Slurm does not know it")
"""Slurm's and coach's words for a job that is no longer in the queue."""


def find_again(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, known: Job | None = None
) -> Resubmission:
    """The script and resources of a job that coach did not launch. `known` is the job as it was seen before,
    for a job that Slurm has forgotten. Raises UserError, also if no source has the script."""
    refuse_if_readonly(settings, "submits nothing", Switch.LAUNCH, Switch.RESUBMIT)
    try:
        found, wrong = look_up((target,), settings, env, io)
        if wrong:
            raise wrong[0][1]
    except UserError as error:
        is_forgotten = any(words in error.message for words in _FORGOTTEN)
        if not is_forgotten or known is None or known.user != user_name():
            raise
        return _forgotten(known, settings, io)
    (named,) = found
    if not isinstance(named, Named):
        raise UserError(f"{target}: it ran without Slurm: it has no batch script")
    job_id = group_id(named.job_id)
    text = _ask(io, Query("job-detail", ("scontrol", "show", "job", named.rows[0].raw_job_id)), job_id)
    facts = read_job(text)
    return _made(job_id, _name_of(text), facts, named, settings, io)


def _forgotten(job: Job, settings: Settings, io: Io) -> Resubmission:
    """Made from the job as it was last seen, and from the script that accounting or its file has."""
    limit = format_time(job.time_limit_s) if job.time_limit_s is not None else ""
    seen = {
        "BatchFlag": "1",
        "WorkDir": job.work_dir,
        "Command": job.command,
        "Partition": job.partition,
        "TimeLimit": limit,
    }
    facts = {name: value for name, value in seen.items() if value}
    return _made(group_id(job.job_id), job.name, facts, None, settings, io)


def _made(
    job_id: str, name: str, facts: Mapping[str, str], named: Named | None, settings: Settings, io: Io
) -> Resubmission:
    found = find_script(io, job_id, facts.get("Command"), facts.get("WorkDir"))
    script = found.text
    submitted = split_command(io, facts.get("Command", ""), facts.get("WorkDir"))
    file, arguments = submitted or (None, ())
    kept = settings.cache_dir / "resubmit" / f"{job_id}.sh"
    is_there = file is not None and _holds(io, file, script)
    return Resubmission(
        job_id,
        name,
        facts,
        script,
        file if file is not None and is_there else kept,
        is_there,
        (*_unkept(found), *_notes(arguments, named, file, is_there)),
        settings.sbatch_timeout_s,
        _tasks(named),
        kept,
        arguments,
    )


def _tasks(named: Named | None) -> str:
    """The failed tasks of an array, else the named task; empty for a job that is no array."""
    if named is None:
        return ""
    rows = {row.job_id.partition("_")[2]: row.state for row in named.rows if "_" in row.job_id}
    failed = sorted((int(task) for task, state in rows.items() if task.isdecimal() and has_failed(state)))
    task = named.job_id.partition("_")[2]
    return ",".join(map(str, failed)) or (task if task.isdecimal() else "")


def _unkept(found: FoundScript) -> tuple[str, ...]:
    """A note where only the file of the script is left, which may have changed since the submission."""
    if found.why_not_kept is None:
        return ()
    return (
        f"the script is its file as it is now: the submitted copy is not available ({found.why_not_kept})",
    )


def _notes(
    arguments: Sequence[str], named: Named | None, file: Path | None, is_there: bool
) -> tuple[str, ...]:
    notes = ["the job gets the environment variables that you have now, and waits for no other job"]
    if named is None:
        notes.append("Slurm has forgotten the job: only the options of its script and those shown hold")
    if file is not None and not is_there:
        notes.append(f"{file} is not there any more or has changed: the script is taken as Slurm kept it")
    if arguments:
        notes.append(
            "Slurm does not report where one argument of the script ends and the next begins: check them"
        )
    if named is not None and (
        len(named.rows) > 1 or "_" in named.rows[0].job_id or "+" in named.rows[0].job_id
    ):
        notes.append("only options in its script make it an array, or a job of several parts, again")
    return tuple(notes)


def _ask(io: Io, query: Query, job_id: str) -> str:
    result = io.run(query)
    if result.returncode != 0:
        raise UserError(
            f"job {job_id}: {result.error or ' '.join(result.stderr.split())}",
            "Slurm keeps a job's script only for some minutes after its end",
        )
    return result.stdout.decode("utf-8", "surrogateescape")


def _name_of(text: str) -> str:
    """The text between `JobName=` and the line of the user: a job name may contain any character."""
    name = text.partition("JobName=")[2].partition("\n   UserId=")[0]
    return "".join(char if char.isprintable() else "_" for char in name) or "job"


def _holds(io: Io, file: Path, script: str) -> bool:
    data = script.encode("utf-8", "surrogateescape")
    try:
        return io.read(file, 0, len(data) + 2).rstrip(b"\n") == data.rstrip(b"\n")
    except OSError:
        return False
