"""MEM009: the job's memory on a node grows without end, until it reaches the limit."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import HostSample
from coach.rules.advice.remedies import fewer_workers
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.telemetry_windows import steady_growth, training_host_samples
from coach.rules.from_numbers.training_windows import is_first_of_epochs

_MIN_SAMPLES = 20


class HostMemoryGrows(Rule):
    """The memory that the job uses on a node grows steadily towards its limit.

    What it sees
        The resident memory of the job's processes during training, over four equal parts of the kept samples:
        each part lies above the one before, the last well above the first, and at this pace the limit is
        reached within `horizon_s`.
    Why it matters
        At the limit the kernel kills a process, hours into the run and without a message.
    When it stays silent
        Before `min_s` of training, when the growth ends (a cache that is full), and if the limit is further
        away than `horizon_s`. In the first of several epochs it is info until `first_epoch_share` of the
        limit is used, because samples may be cached in memory or mapped from a file. Memory that processes
        share is counted for each of them, so the sum is too high; therefore the growth counts, not the level.
    What to do
        Look for data that each step keeps: lists of losses with their graph (use `.item()`), Python lists in
        the data set that workers copy page by page (use NumPy, Arrow, memory maps). Until then request more
        `--mem`, and save checkpoints before the limit is reached.
    Sources
        torch issue 13246 (copy-on-read in DataLoader workers); runmedic's leak test (last quarter 1.2 times
        the first).
    """

    code = "MEM009"
    name = "host-memory-grows"
    cause = "host_memory_leak"
    severity = Severity.WARNING
    needs = (Need.HOST_TELEMETRY,)
    keep_s = 30.0
    min_s = Threshold(600, "seconds of training", "caches and workers fill within minutes")
    growth = Threshold(1.2, "times the first quarter", "runmedic's bound: less may be fragmentation")
    min_growth_mib = Threshold(512, "MiB", "small processes may grow by more than a fifth")
    horizon_s = Threshold(14400, "seconds", "a limit that is further away than this can wait")
    critical_share = Threshold(0.9, "of the limit", "one more burst reaches the limit")
    first_epoch_share = Threshold(0.7, "of the limit", "a cache was meant to fit, with some room beside it")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for node in history.nodes:
            kept = history.host(node)
            if len(kept) < _MIN_SAMPLES or not self._may_grow(kept[0], kept[-1]):
                continue
            samples = [
                s for s in training_host_samples(snapshot, history, node) if s.memory_used_mib is not None
            ]
            if len(samples) < _MIN_SAMPLES:
                continue
            used = [sample.memory_used_mib or 0.0 for sample in samples]
            growth = steady_growth(used, [sample.time_s for sample in samples], self.values)
            limit = samples[-1].memory_limit_mib
            if growth is None or limit is None:
                continue
            newest = samples[-1].memory_used_mib or 0.0
            left_s = max(0.0, (limit - newest) / growth.pace_per_s)
            if left_s > self.horizon_s:
                continue
            is_near = newest >= self.critical_share * limit
            may_be_cache = is_first_of_epochs(snapshot, history)
            may_be_cache = may_be_cache and newest < self.first_epoch_share * limit
            yield Hit(
                summary=(
                    f"Memory on {node} grows by {size_text(growth.pace_per_s * 3600)} an hour and reaches "
                    f"its limit in about {max(1, left_s / 60):.0f} min"
                ),
                evidence=(
                    Evidence(
                        (
                            f"job's resident memory on {node} by quarters of "
                            f"{samples[-1].time_s - samples[0].time_s:.0f} s: "
                        )
                        + ", ".join(map(size_text, growth.by_quarters))
                    ),
                    Evidence(f"newest of {len(samples)} samples", value=newest, unit="MiB"),
                    Evidence("memory limit there", value=limit, unit="MiB"),
                ),
                confidence=0.8,
                subject=Subject(node=node),
                fixes=tuple(_fixes(snapshot)),
                severity=Severity.CRITICAL if is_near else Severity.INFO if may_be_cache else None,
                since_s=samples[0].time_s,
            )

    def _may_grow(self, first: HostSample, newest: HostSample) -> bool:
        """Fast path: False if the newest sample shows too little growth since the first."""
        before, now = first.memory_used_mib, newest.memory_used_mib
        return before is None or now is None or now - before >= self.min_growth_mib


def _fixes(snapshot: TargetSnapshot) -> Iterable[Fix]:
    yield Fix(
        "Look for objects that are kept per step: losses with their graph (`.item()`), Python lists in the "
        "data set"
    )
    yield from fewer_workers(snapshot.run)
