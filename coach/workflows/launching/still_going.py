"""Find an earlier run that is the same as a new one, and still waits or runs by its own record.

Nothing asks Slurm here: the record may be older than the job's end, so a command says so and lets a person go
on.
"""

from __future__ import annotations

from pathlib import Path

from coach.config import Settings
from coach.model.launching.launch import Plan
from coach.model.slurm.cluster import NOT_RECORDED, is_final
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.judging.targets import known_runs


def going_drill(drill: str, settings: Settings, io: Io) -> Run | None:
    """The newest run of this drill, if it has no recorded end and no answer that settles it."""
    newest = next((run for run in known_runs(settings, io) if run.drill == drill), None)
    return newest if newest is not None and newest.is_open_drill and _is_going(newest) else None


def same_launch(plan: Plan, settings: Settings, io: Io) -> Run | None:
    """The newest run with the recipe, the parameters and the resources of this plan, if it has no recorded
    end. None for an own program, whose code may have changed, and for a sweep."""
    if plan.request.own is not None or plan.request.sweep_point is not None:
        return None
    return next(
        (
            run
            for run in known_runs(settings, io)
            if run.recipe == plan.recipe
            and run.run_dir != plan.run_dir
            and _is_going(run)
            and dict(run.parameters) == dict(plan.parameters)
        ),
        None,
    )


def _is_going(run: Run) -> bool:
    is_known = run.state is not None and run.state != NOT_RECORDED
    return is_known and not is_final(run.state) and Path(run.run_dir).is_dir()
