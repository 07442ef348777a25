"""Refuse a further fix of a run if the chain is too long, or if the same fix was tried before.

Kept apart from the offer because it needs the outcome of the other fixes: a launch that was interrupted has
tried nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.comparing.fix_chain import ancestry, is_too_long, siblings, why_no_further
from coach.analysis.jobs.belonging import has_lost_its_job
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from coach.model.training.run import Run, Submission
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.workflows.jobs.lost_submits import ask_for_jobs
from coach.workflows.judging.targets import known_runs


def _launched(beside: Sequence[Run], settings: Settings, io: Io) -> tuple[Run, ...]:
    """Leave out launches that were interrupted and have no job in the queue: they have tried nothing. Slurm
    is asked only if there may be such a launch."""
    lost = [run for run in beside if has_lost_its_job(run)]
    standing = ask_for_jobs(lost, settings, io, user_name()) if lost else {}
    absent = (Submission.NEVER, Submission.NOT_QUEUED)
    never = {run_id for run_id, one in standing.items() if one.submission in absent}
    return tuple(run for run in beside if run.run_id not in never)


def refuse_further(plan: Plan, parent: Run, settings: Settings, io: Io) -> None:
    """Raise UserError if this child is one fix too many, or if it was tried before, in its chain or beside
    it."""
    known = known_runs(settings, io)
    beside = _launched(siblings(parent, known), settings, io)
    why = why_no_further(plan, ancestry(parent, known), beside)
    if why is not None:
        begins = "no further fix" if is_too_long(ancestry(parent, known)) else "this fix was tried before"
        raise UserError(
            f"{begins}: {why}", f"`coach compare {parent.run_id}` shows the chain, and its best run"
        )
