"""Launch a job again: a run of coach from its request, another own job from the script that Slurm kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coach.config import Settings, Switch
from coach.launch import submit as slurm
from coach.launch.record import request_from
from coach.launch.resubmission import Resubmission, keep_script, submit_again
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Outcome
from coach.model.training.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.workflows.jobs.own_jobs import Named, run_dirs_of, run_of
from coach.workflows.launching.find_again import find_again
from coach.workflows.readonly import refuse_if_readonly


def request_again(run: Run) -> LaunchRequest:
    """The request that made the run. The new run is its child, so that the two can be compared."""
    request = request_from(run)
    is_mended = True if run.fix is not None else request.is_mended
    return replace(request, backend=run.backend, parent_run_id=run.run_id, is_mended=is_mended)


def plan_resubmit(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, *, only_failed: bool | None = False
) -> LaunchRequest | JobAction:
    """The request to launch a run again, or the exact sbatch for a job that coach did not launch. Raises
    UserError.

    `only_failed`: True: only the tasks of an array that have failed; None: those of a whole array, if it has
    any.
    """
    refuse_if_readonly(settings, "submits nothing", Switch.LAUNCH, Switch.RESUBMIT)
    run = run_of(target, settings, env, io)
    if run is not None:
        if only_failed:
            raise UserError(f"{target}: it is one run, no array: leave out --failed")
        return request_again(run)
    found = find_again(target, settings, env, io)
    _refuse_runs(found, settings)
    if only_failed and not found.failed_tasks:
        why = "none of these tasks is known to have failed" if found.tasks else "it is no array"
        raise UserError(f"job {target}: {why}: leave out --failed")
    if only_failed is None and found.failed_tasks and target == found.job_id:
        note = f"only the tasks that failed: `coach resubmit {target}` submits all"
        found = replace(found, notes=(note, *found.notes), tasks=found.failed_tasks)
    return submit_again(found, {"array": found.failed_tasks} if only_failed else None)


def _refuse_runs(found: Resubmission, settings: Settings) -> None:
    """Raise UserError for an array that coach launched: its tasks would write into the same run
    directories."""
    own = run_dirs_of([Named(job.job_id, (job,)) for job in found.jobs], settings) if found.tasks else {}
    if own:
        jobs = submit_again(found, {"array": found.failed_tasks or found.tasks}).jobs
        raise UserError(
            f"job {found.job_id}: coach launched its tasks, and each is a run: launch them again one by one",
            "; ".join(f"coach resubmit {own[job.job_id].name}" for job in jobs if job.job_id in own),
        )


def perform_resubmit(action: JobAction, env: Mapping[str, str]) -> Outcome:
    """Submit it. Raises UserError in Slurm's own words if it is refused, and if its script cannot be kept."""
    if action.script_file is not None and action.script is not None:
        file = Path(action.script_file)
        try:
            keep_script(file, action.script)
        except OSError as error:
            raise UserError(
                describe(error), "the script of the job is kept there: cache_dir says where"
            ) from None
    (step,) = action.steps
    accepted = slurm.submit_command(step.argv, env, action.timeout_s)
    notes = (f"the new job is {accepted.job_id}", *(f"sbatch: {line}" for line in accepted.lines))
    return Outcome(action.verb, step.job_ids, notes=notes)
