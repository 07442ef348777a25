"""Let an ended run go on in its own directory, from its newest whole checkpoint, as a requeued job does.

The run's batch script and its trainer resume by themselves: the script removes the record of the earlier end,
and the trainer takes the newest checkpoint of the run directory. So the same script is started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.launching.launch import OwnKind, Submitted
from coach.model.slurm.job_action import JobAction, Step, Verb
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.workflows.jobs.known_runs import read_known_run
from coach.workflows.jobs.own_checkpoints import newest_of_run
from coach.workflows.jobs.own_jobs import run_of
from coach.workflows.launching.prepare import check_startable, leave_index
from coach.workflows.launching.start import TORN, read_script, start_again, start_words
from coach.workflows.readonly import refuse_if_readonly

if TYPE_CHECKING:
    from coach.model.training.run import Checkpoint, Run


def plan_resume(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, backend: str = "auto"
) -> JobAction:
    """The exact command that lets an own, ended run go on. Raises UserError with the reason if it cannot, and
    if it is not of this backend."""
    run, checkpoint, torn = _find(target, settings, env, io)
    if backend not in ("auto", run.backend):
        raise UserError(f"{run.run_id}: its batch script is for the backend {run.backend}, not {backend}")
    name = Path(checkpoint.path).name
    notes = [f"the same run goes on from {name} (step {checkpoint.step}); its logs and metrics grow"]
    notes += [f"incomplete, gets {TORN} before its name: {path}: {why}" for path, why in torn.items()]
    if run.launch.get("own"):
        notes.append("your program must find its checkpoint by itself, in $COACH_CHECKPOINT_DIR")
    return JobAction(Verb.RESUME, (Step(start_words(run), (run.run_id,), run.run_dir),), notes=tuple(notes))


def perform_resume(action: JobAction, settings: Settings, env: Mapping[str, str], io: Io) -> Submitted:
    """Start the run again. Raises UserError if it is refused, or cannot be resumed any more."""
    run, checkpoint, torn = _find(action.job_ids[0], settings, env, io)
    leave_index(run.run_id, settings)
    return start_again(run, checkpoint.path, torn, settings, env, io)


def _find(
    target: str, settings: Settings, env: Mapping[str, str], io: Io
) -> tuple[Run, Checkpoint, Mapping[str, str]]:
    """An own run that has ended, the checkpoint from which it goes on, and path → reason for newer ones that
    are incomplete."""
    refuse_if_readonly(settings, "resumes nothing", Switch.LAUNCH, Switch.RESUBMIT)
    run = run_of(target, settings, env, io)
    if run is None:
        raise UserError(f"{target}: no run of coach on this cluster", "`coach runs` lists the runs")
    if run.why_not_mine is not None:
        raise UserError(f"{run.why_not_mine}: coach starts nothing from the run {run.run_id}")
    if run.drill is not None:
        refuse_if_readonly(settings, "resumes no drill", Switch.DRILLS)
    again = f"`coach resubmit {run.run_id}` launches it again, as a new run"
    try:
        known = read_known_run(Path(run.run_dir), settings, io, user_name())
        read_script(run)
        checkpoint, torn = newest_of_run(io, Path(run.run_dir))
    except FileNotFoundError:
        raise UserError(f"{run.run_id}: coach has no batch script of it to start again") from None
    except OSError as error:
        raise UserError(
            f"{run.run_id}: {error.strerror or error}", "coach starts only your own runs"
        ) from None
    run, own = known.run, known.run.launch.get("own")
    if known.alive_because is not None:
        raise UserError(f"{run.run_id}: it has not ended: {known.alive_because}")
    if isinstance(own, dict) and own.get("kind") == OwnKind.BATCH:
        raise UserError(f"{run.run_id}: a batch file of yours decides itself where it goes on", again)
    if run.state == "COMPLETED":
        raise UserError(f"{run.run_id}: it has completed: nothing is left to do", again)
    check_startable(run.backend, settings, env, io)
    if checkpoint is None:
        saves = own or "checkpoint_every" in run.parameters
        how = "" if own else "; at the launch, --set checkpoint_every=N saves one every N steps"
        why = f"it has no whole checkpoint{how}" if saves else "its recipe saves no checkpoint"
        raise UserError(f"{run.run_id}: {why}", again)
    return run, checkpoint, torn
