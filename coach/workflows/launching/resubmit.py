"""The same again: a run of coach's as a new run of its request, another job of one's own by the script that
Slurm kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coach.analysis.queueing.arrays import group_id
from coach.config import Settings
from coach.launch import submit as slurm
from coach.launch.record import request_from
from coach.launch.resubmission import read_job, resubmit_command, script_file
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Outcome, Step, Verb
from coach.model.training.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io, Query
from coach.workflows.jobs.own_jobs import Named, look_up, run_of
from coach.workflows.readonly import refuse_if_readonly


def request_again(run: Run) -> LaunchRequest:
    """The request that the run was made of. The new run is its child, so that the two can be compared."""
    request = request_from(run.launch, run.recipe)
    is_mended = True if run.fix is not None else request.is_mended
    return replace(request, backend=run.backend, parent_run_id=run.run_id, is_mended=is_mended)


def plan_resubmit(
    target: str, settings: Settings, env: Mapping[str, str], io: Io
) -> LaunchRequest | JobAction:
    """The request to launch a run again, or the exact sbatch for a job that coach did not launch. Raises
    UserError."""
    refuse_if_readonly(settings, "submits nothing")
    run = run_of(target, settings, env, io)
    if run is not None:
        return request_again(run)
    found, wrong = look_up((target,), settings, env, io)
    if wrong:
        raise wrong[0][1]
    (named,) = found
    assert isinstance(named, Named)  # a run was found above
    job_id = group_id(named.job_id)
    script = _ask(io, Query("batch-script", ("scontrol", "write", "batch_script", job_id, "-")), job_id)
    text = _ask(io, Query("job-detail", ("scontrol", "show", "job", named.rows[0].raw_job_id)), job_id)
    facts, name = read_job(text), _name_of(text)
    file, kept = script_file(facts), settings.cache_dir / "resubmit" / f"{job_id}.sh"
    is_there = file is not None and _holds(io, file, script)
    used = file if file is not None and is_there else kept
    return JobAction(
        Verb.RESUBMIT,
        (Step(resubmit_command(facts, name, used), (job_id,)),),
        notes=_notes(facts, named, file, is_there),
        timeout_s=settings.sbatch_timeout_s,
        script=script,
        script_file=None if is_there else str(kept),
    )


def perform_resubmit(action: JobAction, env: Mapping[str, str]) -> Outcome:
    """Submit it. Raises UserError with Slurm's own words when it is refused, and when its script cannot be
    kept."""
    if action.script_file is not None and action.script is not None:
        file = Path(action.script_file)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(action.script, encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise UserError(
                describe(error), "the script of the job is kept there: cache_dir says where"
            ) from None
    (step,) = action.steps
    accepted = slurm.submit_command(step.argv, env, action.timeout_s)
    notes = (f"the new job is {accepted.job_id}", *(f"sbatch: {line}" for line in accepted.lines))
    return Outcome(action.verb, step.job_ids, notes=notes)


def _notes(facts: Mapping[str, str], named: Named, file: Path | None, is_there: bool) -> tuple[str, ...]:
    notes = ["the job gets your environment of now, and waits for no other job"]
    if file is not None and not is_there:
        notes.append(f"{file} is not there any more or has changed: the script is taken as Slurm kept it")
    if len(facts.get("Command", "").split()) > 1:
        notes.append("Slurm does not tell where one argument of the script ends and the next begins: look")
    if len(named.rows) > 1 or "_" in named.rows[0].job_id or "+" in named.rows[0].job_id:
        notes.append("only what its script says makes an array, or several parts, of it again")
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
    """All between `JobName=` and the line of the user: a name may hold anything."""
    name = text.partition("JobName=")[2].partition("\n   UserId=")[0]
    return "".join(char if char.isprintable() else "_" for char in name) or "job"


def _holds(io: Io, file: Path, script: str) -> bool:
    data = script.encode("utf-8", "surrogateescape")
    try:
        return io.read(file, 0, len(data) + 2).rstrip(b"\n") == data.rstrip(b"\n")
    except OSError:
        return False
