"""JOB019: the run will reach its time limit before its last step, and has saved no checkpoint yet."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.launched_with import float_parameter, int_parameter, saves_in_run_dir
from coach.rules.advice.remedies import saved_before_limit
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.training_windows import newest_times

_TITLE = (
    "Save checkpoints regularly, and request a signal before the limit: the next job then resumes the run"
)


class NoCheckpoint(Rule):
    """At its present pace the run needs more time than its limit leaves, and it has saved no checkpoint.

    What it sees
        The remaining steps need more time than is left until the limit, at the pace of the newest hundred
        steps. Its run directory holds no checkpoint, and it has reported none.
    Why it matters
        At the limit Slurm kills the job, and the training is lost.
    When it stays silent
        On your own program: it may save its checkpoints anywhere. If the run has no `max_steps`, if it will
        be done in time, if its `max_seconds` end it before the limit, and if it was launched with a signal
        before the limit (`--signal`). In the job's first ten minutes, and in the first hundred steps.
    What to do
        Save checkpoints regularly (`checkpoint_every`), and let Slurm send a signal before the limit
        (`--signal=B:USR1@300`). The next job then resumes from the last checkpoint.
    Sources
        sbatch(1), --signal; scontrol(1): only an administrator can raise a job's time limit.
    """

    code = "JOB019"
    name = "no-checkpoint-before-limit"
    cause = "no_checkpoint"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS, Need.JOB_STATE}),)
    min_steps = Threshold(100, "steps", "the first steps are slower than the others", at_least=1)
    min_s = Threshold(600, "seconds", "a younger job loses little work")
    margin = Threshold(1.1, "times the time left", "the pace varies by about a tenth", at_least=1)
    critical_share = Threshold(0.8, "of the limit", "after it, hardly any time is left to save a checkpoint")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        job, run = snapshot.job, snapshot.run
        if job is None or run is None or snapshot.state != "RUNNING" or _may_be_saved(snapshot, run):
            return
        goal, used, limit = int_parameter(run, "max_steps"), job.time_used_s, job.time_limit_s
        if not goal or used is None or not limit or used < self.min_s or _is_told_to_end(run, limit):
            return
        steps, times = history.steps(history.ranks[0]), newest_times(history, history.ranks[0])
        if history.num_steps(history.ranks[0]) < self.min_steps or not times:
            return
        needed, left = max(0, goal - steps[-1].step) * fmean(times), limit - used
        if needed <= self.margin * left:
            return
        yield Hit(
            summary=(
                f"No checkpoint is saved yet: the training needs {needed / 60:.0f} min more, and the time "
                f"limit leaves {left / 60:.0f} min"
            ),
            evidence=(
                Evidence("steps done", value=steps[-1].step, unit=f"of {goal}"),
                Evidence("mean step time, newest hundred steps", value=round(fmean(times), 3), unit="s"),
                Evidence("time left until the limit", value=left, unit="s"),
            ),
            confidence=0.85,
            fixes=tuple(saved_before_limit(run, limit, fmean(times), _TITLE)),
            severity=Severity.CRITICAL if used >= self.critical_share * limit else None,
        )


def _is_told_to_end(run: Run, limit_s: float) -> bool:
    """True if a signal, or its own `max_seconds`, end the run before the limit: it then saves a
    checkpoint."""
    return bool(run.resources.get("signal")) or 0 < (float_parameter(run, "max_seconds") or 0.0) < limit_s


def _may_be_saved(snapshot: TargetSnapshot, run: Run) -> bool:
    """True if the run has a checkpoint, or may have one that coach cannot see."""
    has_reported = any(event.event == "checkpoint" for event in snapshot.events)
    return bool(snapshot.checkpoints) or has_reported or not saves_in_run_dir(run)
