"""JOB006: far more memory was requested than used."""

from __future__ import annotations

import math
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import parse_mib, size_text
from coach.rules.from_numbers.job_means import CONFIDENCE, PEAK, node_means, peaks_of_memory
from coach.rules.from_numbers.telemetry_windows import has_all_nodes


class MemoryAsked(Rule):
    """A completed run used little of the memory that it requested.

    What it sees
        coach compares the peak of the job's resident memory with the `--mem` of the launch. It samples every
        node over the whole run. For a job that coach did not launch, it compares the peak that the site's
        jobstats left in the accounting with the allocated memory.
    Why it matters
        Unused memory keeps other jobs off the node, and a smaller request starts sooner.
    When it stays silent
        If the run did not complete, on small requests, and on short runs. If a node was sampled for a short
        time, not up to the run's end, or not at all: its peak is not known. If the run was launched without
        `--mem`: the site's default is not the user's choice. If it requested no more than its recipe needs,
        with the headroom that coach plans. coach does not know of a job that it did not launch if `--mem` was
        left out, so there the finding may concern a default.
    What to do
        Request 1.3 times the peak the next time, and not less: sampling misses short bursts.
    Sources
        slurmpast (below 35 % and 32 GiB idle); Princeton jobstats.
    """

    code = "JOB006"
    name = "memory-asked"
    cause = "memory_over_request"
    severity = Severity.INFO
    needs = (
        frozenset({Need.HOST_TELEMETRY, Need.JOB_STATE}),
        frozenset({Need.MEMORY_SUMMARY, Need.JOB_STATE}),
    )
    used_share = Threshold(0.35, "of the request", "slurmpast's bound")
    idle_mib = Threshold(32768, "MiB", "less unused memory keeps no other job off a node")
    min_s = Threshold(300, "seconds", "a shorter run may not have reached its peak")
    headroom = Threshold(
        1.3, "times the peak", "the true peak may be higher: samples miss short bursts", at_least=1
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if snapshot.state != "COMPLETED":
            return
        if snapshot.run is None:
            peaks = peaks_of_memory(node_means(snapshot, self.min_s))
            if peaks:
                # The node with the highest share in use counts: the next request must be enough for it.
                peak, allotted = max(peaks, key=lambda each: each[0] / each[1])
                yield from self._judged(
                    peak, allotted, f"on a node {PEAK}", "memory allotted per node", CONFIDENCE
                )
            return
        asked = parse_mib(snapshot.run.resources.get("mem"), "M")
        if not asked or asked <= (snapshot.run.mem_need_mib or 0):
            return
        sampled = self._sampled_peaks(history, snapshot.run.ended_time_s)
        if not sampled or not has_all_nodes(snapshot, history.nodes):
            return
        yield from self._judged(max(sampled), asked, "on a node, sampled", "memory requested per node", 0.8)

    def _sampled_peaks(self, history: History, ended_s: float | None) -> list[float]:
        """The peak of each node in MiB. Empty if a node was sampled for too short a time, or if its samples
        stop long before the run's end."""
        peaks, min_s = [], self.min_s
        for node in history.nodes:
            samples = [each for each in history.host(node) if each.memory_used_mib is not None]
            if not samples or samples[-1].time_s - samples[0].time_s < min_s:
                return []
            if ended_s is not None and ended_s - samples[-1].time_s > min_s:
                return []
            peaks.append(max(each.memory_used_mib or 0.0 for each in samples))
        return peaks

    def _judged(
        self, peak: float, asked: float, how: str, what_asked: str, confidence: float
    ) -> Iterable[Hit]:
        if peak >= self.used_share * asked or asked - peak < self.idle_mib:
            return
        wanted = f"{max(1, math.ceil(peak * self.headroom / 1024))}G"
        yield Hit(
            summary=(
                f"Of the {size_text(asked)} per node that were requested, at most {size_text(peak)} were used"
            ),
            evidence=(
                Evidence(f"peak of the job's resident memory {how}", value=peak, unit="MiB"),
                Evidence(what_asked, value=asked, unit="MiB"),
            ),
            confidence=confidence,
            fixes=(Fix(f"Memory per node → {wanted} the next time", {"mem": wanted}),),
        )
