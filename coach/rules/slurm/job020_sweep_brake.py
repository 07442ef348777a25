"""JOB020: a run of a sweep did not begin, because the first runs had all failed in the same way."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class SweepBrake(EndingRule):
    """The sweep's brake stopped the run before it began.

    What it sees
        The batch script's message that the first runs of its sweep had failed in the same way (`--brake N`):
        in exit.json, and as the line "coach: sweep_brake: …" in its log.
    Why it matters
        The run itself did not fail, and used its allocation for only a few seconds. The error of the first
        runs would most likely have ended it too.
    When it stays silent
        On the runs that failed themselves, and on sweeps without a brake.
    What to do
        Correct the error of the first runs, and launch the sweep again. Without `--brake` each run begins,
        even if the others failed.
    Sources
        coach's own batch script (`coach launch --sweep … --brake N`).
    """

    code = "JOB020"
    name = "sweep-brake"
    cause = "sweep_brake"
    severity = Severity.WARNING
    sentences = by_field(
        otherwise="{text}",
    )

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        point = snapshot.run.sweep if snapshot.run is not None else None
        first = f"coach check {point.group_id}" if point is not None else None
        yield Fix(
            "See what ended the first runs of the sweep, fix it, and launch the sweep again", command=first
        )
