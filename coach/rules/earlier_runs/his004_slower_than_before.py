"""HIS004: a run does not reach the throughput of recent runs with the same settings."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import join

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.judging.verdict import Pace, PastRun
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule, Threshold
from coach.rules.earlier_runs.wording import when

_MAX_TOLD = 5


class SlowerThanBefore(Rule):
    """A run is slower than runs with the same settings in the last two weeks.

    What it sees
        Samples per second in the steady part, compared with at least three earlier runs of the same recipe
        with the same parameters, device and number of ranks. The ratio has a 95 % interval, from the spread
        of the earlier runs and this run's own noise.
    Why it matters
        The program is the same, so something around it has changed. Every run is slower until somebody finds
        it.
    When it stays silent
        With fewer than three earlier runs, while the interval includes the threshold, and if a parameter that
        affects speed was changed. It is info for a run on CPUs of a node that others used meanwhile: they
        took the missing CPU time.
    What to do
        Compare with the last fast run (`coach compare OLD NEW`): data time points to storage, GPU clocks
        point to heat and power. The finding lists versions and nodes that differ.
    Sources
        Prediction interval of a further value (Student's t, on logarithms); the noise within a run as in
        `coach compare`.
    """

    code = "HIS004"
    name = "slower-than-before"
    cause = "slower_than_before"
    severity = Severity.WARNING
    max_ratio = Threshold(0.95, "of the earlier throughput", "placement and clocks alone make some percent")
    others_cpu_pct = Threshold(
        20, "percent of a node's CPUs", "on a node shared this much, the pace depends on others"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        across = snapshot.across
        pace = across.pace if across is not None else None
        if across is None or pace is None or max(pace.ratio, pace.high) >= self.max_ratio:
            return
        last = max(pace.before, key=lambda past: past.ended_s or 0.0)
        others_pct = across.this.others_cpu_pct or 0.0
        is_shared = others_pct >= self.others_cpu_pct and _is_on_cpus(snapshot.run)
        yield Hit(
            summary=f"{pace.samples_per_s:.4g} samples/s, {1 - pace.ratio:.0%} below the "
            f"{len(pace.before)} equal runs of the two weeks before",
            evidence=tuple(_evidence(pace, across.this, last)),
            confidence=0.85,
            since_s=across.this.started_s,
            fixes=(
                Fix(
                    "Compare it with the last fast run",
                    command=join(["coach", "compare", last.target, across.this.target]),
                ),
            ),
            severity=Severity.INFO if is_shared else None,
        )


def _is_on_cpus(run: Run | None) -> bool:
    return run is not None and (run.num_gpus == 0 or run.device.get("type") == "cpu")


def _evidence(pace: Pace, this: PastRun, last: PastRun) -> Iterable[Evidence]:
    interval = f"{pace.low:.2f} to {pace.high:.2f}"
    yield Evidence(
        f"ratio to the median of the earlier runs, 95 % interval {interval}", value=round(pace.ratio, 3)
    )
    for past in pace.before[-_MAX_TOLD:]:
        yield Evidence(f"{past.target}, {when(past)}", value=past.samples_per_s, unit="samples/s")
    if this.others_cpu_pct is not None:
        yield Evidence(
            "CPUs of its node that other jobs used meanwhile", value=round(this.others_cpu_pct), unit="%"
        )
    for name in sorted({*last.versions, *this.versions}):
        if last.versions.get(name) != this.versions.get(name):
            yield Evidence(f"{name}: {last.versions.get(name) or '–'} → {this.versions.get(name) or '–'}")
    if last.nodes and this.nodes and last.nodes != this.nodes:
        yield Evidence(f"nodes: {','.join(last.nodes)} → {','.join(this.nodes)}")
