"""HIS001: the same failure several times in a row, although settings were changed in between."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.judging.verdict import PastRun
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule, Threshold
from coach.rules.earlier_runs.wording import when

_FROM_OUTSIDE = frozenset(
    {
        *("slurm_cancelled", "slurm_preempted", "slurm_timeout", "slurm_node_fail", "node_failure"),
        *("sigterm_signal", "user_interrupt"),
    }
)
"""Ends caused by a person, a time limit or the machine. Such an attempt does not show whether the cause is
gone."""
_MAX_TOLD = 6


class SameFailureAgain(Rule):
    """The same work failed with the same cause several times in a row.

    What it sees
        Earlier attempts at the same recipe, or at the same batch script in the same directory, as coach
        recorded them: the newest ones in a row that all ended with this run's root cause. Two errors of the
        program are the same if their messages differ only in numbers. The finding lists the changes between
        attempts: parameters, resources and nodes of a launch; for other jobs the fields of the queue.
    Why it matters
        Each attempt waits in the queue and holds GPUs. The changes so far did not help, and another one like
        them will not either.
    When it stays silent
        If an attempt in between completed or failed differently. Tasks of one array, and jobs that were
        submitted before the last attempt failed, do not count as attempts. Time limits, preemption,
        cancellation and failed nodes neither count nor interrupt the row: a long training resumes after them
        as planned. Failures that a recipe or a drill causes on purpose do not count.
    What to do
        Stop changing settings that did not help. Reproduce the failure at a small size (one GPU, few steps,
        an interactive job) and follow the advice for its cause.
    Sources
        slurmpast (repeated failures of one workload).
    """

    code = "HIS001"
    name = "same-failure-again"
    cause = "same_failure_again"
    severity = Severity.WARNING
    times = Threshold(
        3, "failures in a row", "the second may be a retry to see whether it was chance", at_least=1
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if snapshot.across is None or not snapshot.has_ended:
            return
        this = snapshot.across.this
        if this.failure is None or this.cause in _FROM_OUTSIDE or _is_on_purpose(this, snapshot.run):
            return
        streak = [this]
        for past in reversed(snapshot.across.attempts):
            if past.cause in _FROM_OUTSIDE or past.state == "CANCELLED":
                continue
            if past.failure != this.failure:
                break
            streak.insert(0, past)
        if len(streak) < self.times:
            return
        tried = _tried(streak)
        told = f"; tried in between without success: {'; '.join(tried[:3])}" if tried else ""
        more = f" and {len(tried) - 3} more" if len(tried) > 3 else ""
        yield Hit(
            summary=f"{len(streak)} times in a row it ended with {this.cause} ({this.rule}){told}{more}",
            evidence=tuple(_evidence(streak)),
            confidence=0.9,
            since_s=streak[0].ended_s,
            fixes=(
                Fix(
                    f"Do not try another variation before the cause of {this.rule} is understood: "
                    "reproduce it on one GPU in a few steps"
                ),
            ),
        )


def _is_on_purpose(this: PastRun, run: Run | None) -> bool:
    return run is not None and (run.drill is not None or this.rule in run.expects)


def _tried(streak: list[PastRun]) -> list[str]:
    found = [change for old, new in pairwise(streak) for change in new.changes_since(old)]
    return list(dict.fromkeys(found))


def _evidence(streak: list[PastRun]) -> Iterable[Evidence]:
    left_out = max(0, len(streak) - _MAX_TOLD)
    if left_out:
        yield Evidence(f"{left_out} earlier ones, the first {when(streak[0])}")
    for before, past in zip([None, *streak], streak, strict=False):
        if past in streak[:left_out]:
            continue
        changed = past.changes_since(before) if before is not None else []
        same = "no change is known" if before is not None else "the first known run"
        yield Evidence(f"{past.target}, {when(past)}: {'; '.join(changed) or same}")
