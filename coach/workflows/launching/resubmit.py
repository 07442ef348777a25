"""Launch a job again: a run of coach from its request, another own job from the script that Slurm kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coach.config import Settings, Switch
from coach.launch import submit as slurm
from coach.launch.record import request_from
from coach.launch.resubmission import submit_again
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Outcome
from coach.model.training.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.workflows.jobs.own_jobs import run_of
from coach.workflows.launching.find_again import find_again
from coach.workflows.readonly import refuse_if_readonly


def request_again(run: Run) -> LaunchRequest:
    """The request that made the run. The new run is its child, so that the two can be compared."""
    request = request_from(run.launch, run.recipe)
    is_mended = True if run.fix is not None else request.is_mended
    return replace(request, backend=run.backend, parent_run_id=run.run_id, is_mended=is_mended)


def plan_resubmit(
    target: str, settings: Settings, env: Mapping[str, str], io: Io
) -> LaunchRequest | JobAction:
    """The request to launch a run again, or the exact sbatch for a job that coach did not launch. Raises
    UserError."""
    refuse_if_readonly(settings, "submits nothing", Switch.LAUNCH, Switch.RESUBMIT)
    run = run_of(target, settings, env, io)
    if run is not None:
        return request_again(run)
    return submit_again(find_again(target, settings, env, io))


def perform_resubmit(action: JobAction, env: Mapping[str, str]) -> Outcome:
    """Submit it. Raises UserError in Slurm's own words if it is refused, and if its script cannot be kept."""
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
