"""HIS005: the batch was enlarged between two attempts, without a gain in samples per second."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import join

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.judging.verdict import LENGTH_PARAMETERS, PastRun
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Rule, Threshold
from coach.rules.earlier_runs.wording import when

_BATCH = "batch_size"
_NO_MATTER = LENGTH_PARAMETERS | {_BATCH, "lr", "warmup_steps"}
"""The batch itself, and parameters that do not affect the step time."""


class BatchWithoutGain(Rule):
    """The batch grew, but samples per second did not.

    What it sees
        The newest earlier attempt at the same recipe that differs in `batch_size` and in nothing else that
        affects the step time. The batch is now at least twice as large, device and number of ranks are the
        same, and samples per second are equal within the noise of both runs.
    Why it matters
        The larger batch takes more memory, changes the training, and brought no speed. The limit is
        elsewhere: data, the host's CPUs, memory bandwidth, or a GPU that was already fully used.
    When it stays silent
        If another parameter that affects speed was changed, on another device or number of ranks, if one of
        the two throughputs is unknown, and if throughput fell or rose by more than noise.
    What to do
        Find out what the steps wait for (`coach compare OLD NEW`: data time, GPU utilization). If they wait
        for nothing, the GPU is fully used: take the smaller batch, unless the training needs the larger one.
    Sources
        Google deep learning tuning playbook (the batch size sets the training's speed, until the throughput
        no longer grows with it).
    """

    code = "HIS005"
    name = "batch-without-gain"
    cause = "batch_without_gain"
    severity = Severity.INFO
    min_growth = Threshold(2.0, "times the batch", "less may be lost in the noise between runs")
    max_gain = Threshold(0.05, "of the throughput", "placement and clocks alone make some percent")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        across = snapshot.across
        if across is None:
            return
        this = across.this
        before = next((past for past in reversed(across.attempts) if _differ_in_batch(past, this)), None)
        batch, rate = _batch(this), this.samples_per_s
        if before is None or batch is None or not rate:
            return
        batch_before, rate_before = _batch(before), before.samples_per_s
        if batch_before is None or not rate_before or batch < self.min_growth * batch_before:
            return
        noise = (this.samples_per_s_noise or 0.0) / rate + (before.samples_per_s_noise or 0.0) / rate_before
        if abs(rate / rate_before - 1) + noise > self.max_gain:
            return
        yield Hit(
            summary=(
                f"The batch grew from {batch_before} to {batch}, the throughput did not: {rate_before:.4g} "
                f"samples/s in {before.target}, {rate:.4g} in {this.target}"
            ),
            evidence=tuple(
                Evidence(f"{past.target}, {when(past)}", value=past.samples_per_s, unit="samples/s")
                for past in (before, this)
            ),
            confidence=0.8,
            since_s=this.started_s,
            fixes=(
                Fix(
                    "See what the steps of both runs wait for",
                    command=join(["coach", "compare", before.target, this.target]),
                ),
                Fix(
                    f"Batch size {batch} → {batch_before}, unless the training needs the larger",
                    {_BATCH: batch_before},
                    changes_learning=True,
                ),
            ),
        )


def _differ_in_batch(past: PastRun, this: PastRun) -> bool:
    """True if the batch is the only difference that affects throughput, and both throughputs are known."""
    if past.samples_per_s is None or this.samples_per_s is None or _batch(past) == _batch(this):
        return False
    if (past.device, past.world_size) != (this.device, this.world_size):
        return False
    names = {*past.parameters, *this.parameters} - _NO_MATTER
    return all(past.parameters.get(name) == this.parameters.get(name) for name in names)


def _batch(past: PastRun) -> int | None:
    value = past.parameters.get(_BATCH)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
