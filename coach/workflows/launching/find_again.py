"""Find all that is needed to resubmit a job that coach did not launch: script, resources, tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from coach.analysis.queueing.arrays import format_tasks, group_id, is_part, parse_task_ids
from coach.config import Settings, Switch
from coach.launch.resubmission import (
    Resubmission,
    last_facts,
    read_job,
    task_list,
    tasks_of,
    without_gpus_of_script,
)
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job, has_failed, is_final
from coach.model.slurm.job_action import QueuedJob
from coach.sources.io import Io, Query
from coach.sources.machine.user import user_name
from coach.sources.slurm.kept_script import FoundScript, find_script, split_command
from coach.workflows.jobs.ended_jobs import known_rows
from coach.workflows.jobs.own_jobs import Named, look_up
from coach.workflows.readonly import refuse_if_readonly

_FORGOTTEN = ("Invalid job id", "Slurm does not know it")
"""Slurm's and coach's words for a job that is no longer in the queue."""
_SAME_SUBMISSION_S = 2.0


def find_again(target: str, settings: Settings, env: Mapping[str, str], io: Io) -> Resubmission:
    """The script, the resources and the tasks of a job that coach did not launch; where Slurm has forgotten
    them, as coach saw them in the queue, or as accounting has them. Raises UserError, also if no source has
    the script."""
    refuse_if_readonly(settings, "submits nothing", Switch.LAUNCH, Switch.RESUBMIT)
    try:
        found, wrong = look_up((target,), settings, env, io)
        if wrong:
            raise wrong[0][1]
    except UserError as error:
        if not any(words in error.message for words in _FORGOTTEN):
            raise
        return _forgotten(target, settings, io, error)
    (named,) = found
    if not isinstance(named, Named):
        raise UserError(f"{target}: it ran without Slurm: it has no batch script")
    first = next((row for row in named.rows if row.job_id == named.job_id), named.rows[0])
    text = _ask(io, Query("job-detail", ("scontrol", "show", "job", first.raw_job_id)), first.job_id)
    rows = (*named.rows, *_ended_tasks(named, settings, io))
    return _made(named.job_id, _name_of(text), read_job(text), rows, settings, io)


def _ended_tasks(named: Named, settings: Settings, io: Io) -> list[QueuedJob]:
    """The tasks of an array that Slurm has forgotten: it forgets each some minutes after its end."""
    if not any(is_part(row.job_id) for row in named.rows):
        return []
    since_s = min(row.submit_time_s or 0.0 for row in named.rows) - _SAME_SUBMISSION_S
    known = known_rows(group_id(named.job_id), settings, io, user_name())
    names = {row.name for row in named.rows}
    return [_row(job) for job in known if job.name in names and (job.submit_time_s or 0.0) >= since_s]


def _forgotten(target: str, settings: Settings, io: Io, error: UserError) -> Resubmission:
    """Made from the job as it was last seen. Raises UserError with the words of `error` if no source
    remembers it."""
    jobs = known_rows(group_id(target), settings, io, user_name())
    if not jobs:
        raise UserError(
            f"{error.message}; coach has not seen it in the queue, and accounting has no record of it",
            "submit its script yourself: sbatch SCRIPT",
        )
    with_command = [job for job in jobs if job.command] or jobs
    job = next((job for job in with_command if job.job_id == target), with_command[-1])
    return _made(target, job.name, last_facts(job), list(map(_row, jobs)), settings, io, is_forgotten=True)


def _row(job: Job) -> QueuedJob:
    raw_job_id, used_s = job.raw_job_id or job.job_id, job.time_used_s
    row = QueuedJob(job.job_id, raw_job_id, job.user, job.state, time_used_s=used_s, name=job.name)
    return replace(row, submit_time_s=job.submit_time_s)


def _made(
    target: str,
    name: str,
    facts: Mapping[str, str],
    rows: Sequence[QueuedJob],
    settings: Settings,
    io: Io,
    *,
    is_forgotten: bool = False,
) -> Resubmission:
    """`rows`: the job, or the tasks of its array."""
    job_id, named, tasks = group_id(target), parse_task_ids(target), tasks_of(rows)
    if named is not None and not tasks:
        raise UserError(f"job {job_id}: it is no array, so it has no tasks")
    wanted = named.tasks if named is not None else tuple(tasks)
    failed = [task for task in wanted if task in tasks and has_failed(tasks[task].state)]
    job_ids = (target, *(row.job_id for row in rows))
    found = find_script(io, job_id, facts.get("Command"), facts.get("WorkDir"), rows[0].user)
    script = found.text
    file, arguments = split_command(io, facts.get("Command", ""), facts.get("WorkDir")) or (None, ())
    kept = settings.cache_dir / "resubmit" / f"{job_id}.sh"
    is_there = file is not None and _holds(io, file, script)
    return Resubmission(
        job_id,
        name,
        without_gpus_of_script(facts, script) if is_forgotten else facts,
        script,
        file if file is not None and is_there else kept,
        is_there,
        (
            *_unkept(found),
            *_notes_on_tasks(wanted, tasks, is_forgotten=is_forgotten),
            *_notes(arguments, file, rows, is_there=is_there, is_forgotten=is_forgotten),
        ),
        settings.sbatch_timeout_s,
        task_list(wanted, facts, job_ids),
        kept,
        arguments,
        task_list(failed, facts, job_ids),
        tuple(tasks.values()) or tuple(rows[:1]),
    )


def _notes_on_tasks(
    wanted: Sequence[int], tasks: Mapping[int, QueuedJob], *, is_forgotten: bool
) -> Iterator[str]:
    if unknown := [task for task in wanted if task not in tasks]:
        yield f"no source knows task {format_tasks(unknown)} of it: check that the array had it"
    unended = [task for task in wanted if task in tasks and not is_final(tasks[task].state)]
    if is_forgotten and unended:
        yield f"how task {format_tasks(unended)} of it ended is not known"


def _notes(
    arguments: Sequence[str],
    file: Path | None,
    rows: Sequence[QueuedJob],
    *,
    is_there: bool,
    is_forgotten: bool,
) -> Iterator[str]:
    yield "the job gets the environment variables that you have now, and waits for no other job"
    if is_forgotten:
        yield "Slurm has forgotten the job: only the options of its script and those shown hold"
    if file is not None and not is_there:
        yield f"{file} is not there any more or has changed: the script is taken as Slurm kept it"
    if arguments:
        yield "Slurm does not report where one argument of the script ends and the next begins: check them"
    if any("+" in row.job_id for row in rows):
        yield "only options in its script make it a job of several parts again"


def _unkept(found: FoundScript) -> tuple[str, ...]:
    """A note where only the file of the script is left, which may have changed since the submission."""
    if found.why_not_kept is None:
        return ()
    return (
        f"the script is its file as it is now: the submitted copy is not available ({found.why_not_kept})",
    )


def _ask(io: Io, query: Query, job_id: str) -> str:
    result = io.run(query)
    if result.returncode != 0:
        raise UserError(
            f"job {job_id}: {result.error or ' '.join(result.stderr.split())}",
            "Slurm keeps a job's script only for some minutes after its end",
        )
    return result.text


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
