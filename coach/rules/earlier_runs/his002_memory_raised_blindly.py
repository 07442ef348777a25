"""HIS002: more host memory was requested, although host memory was not the problem."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.judging.verdict import PastRun
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule, Threshold
from coach.rules.earlier_runs.wording import when
from coach.rules.from_logs.quoted_evidence import parse_mib, size_text

_HOST, _DEVICE = "host_oom", "cuda_oom"


class MemoryRaisedBlindly(Rule):
    """Host memory was raised between attempts, although more of it does not help.

    What it sees
        A row of attempts at the same recipe or batch script: out of host memory, more memory requested, out
        of host memory again; out of GPU memory after host memory was raised; or more memory requested
        although the peak use was far below the earlier request.
    Why it matters
        A larger request waits longer in the queue and keeps other jobs off the node. If each request is used
        up, the real need is unknown and may be unlimited: a leak fills any amount of memory.
    When it stays silent
        If the attempt with more memory succeeded, or memory was not requested or not measured. If a fix of
        coach raised it, or it was raised to no more than the recipe needs. For unused memory also if anything
        else in the launch was changed with it.
    What to do
        Measure before the next attempt. Memory use over time tells a leak (it grows until the end) from a
        real need (it rises once, then stays). If the GPU is out of memory, reduce the data on the GPU.
    Sources
        slurmpast (memory bisection); sbatch(1), --mem.
    """

    code = "HIS002"
    name = "memory-raised-blindly"
    cause = "memory_raised_blindly"
    severity = Severity.WARNING
    min_raise = Threshold(1.1, "times as much", "less is rounding")
    idle_share = Threshold(0.5, "of the available memory", "with this much left, memory was not the problem")
    idle_mib = Threshold(4096, "MiB", "less keeps no other job off a node")
    grows_with_time = Threshold(
        1.3, "times as long", "a job that survives longer with more memory is leaking"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        across = snapshot.across
        asked = _asked(across.this) if across is not None else None
        before = across.attempts[-1] if across is not None and across.attempts else None
        asked_before = _asked(before) if before is not None else None
        if across is None or before is None or not asked or not asked_before:
            return
        if not self._is_raised_blindly(snapshot.run, asked_before, asked):
            return
        this = across.this
        rise = f"{size_text(asked_before)} → {size_text(asked)}"
        if snapshot.has_ended and this.cause == before.cause == _HOST:
            fix = _MEASURE if snapshot.run is None else _LOOK
            yield self._hit(_again(this, before, rise, self.grows_with_time), before, this, fix)
        elif snapshot.has_ended and this.cause == before.cause == _DEVICE:
            text = f"--mem was raised ({rise}), which sets host memory, but GPU memory ran out again"
            yield self._hit(text, before, this, Fix("Leave --mem as it is: follow the advice of MEM001"))
        elif before.cause not in (_HOST, _DEVICE) and self._lay_idle(before, asked_before):
            if [each for each in this.changes_since(before) if not each.startswith("mem:")]:
                return
            used = before.memory_used_mib or 0.0
            text = f"More memory was requested ({rise}), though {size_text(used)} was the peak"
            fix = Fix(f"Memory per node → {size_text(1.3 * used)} covers the measured peak")
            yield self._hit(text, before, this, fix, Severity.INFO)

    def _is_raised_blindly(self, run: Run | None, before_mib: float, asked_mib: float) -> bool:
        """False also if a fix of coach, or the plan of the recipe, asked for this memory."""
        if asked_mib < self.min_raise * before_mib:
            return False
        is_fix = run is not None and run.fix is not None and "mem" in run.fix.changes
        return not is_fix and (run is None or asked_mib > (run.mem_need_mib or 0))

    def _lay_idle(self, past: PastRun, asked_mib: float) -> bool:
        used = past.memory_used_mib
        if used is None or past.state not in ("COMPLETED", "FAILED"):
            return False
        return used < self.idle_share * asked_mib and asked_mib - used >= self.idle_mib

    def _hit(
        self, text: str, before: PastRun, this: PastRun, fix: Fix, severity: Severity | None = None
    ) -> Hit:
        return Hit(
            summary=text,
            evidence=tuple(_evidence(past) for past in (before, this)),
            confidence=0.8,
            severity=severity,
            since_s=this.started_s,
            fixes=(fix,),
        )


_MEASURE = Fix(
    "Before you request more, see how the memory grows: launch it with `coach launch`, or `coach attach "
    "JOB` while it runs"
)
_LOOK = Fix(
    "Before you request more, see how the memory grows: telemetry/ in the run's directory shows it for "
    "every node"
)


def _again(this: PastRun, before: PastRun, rise: str, grows: float) -> str:
    lasted, lasted_before = _lasted_s(this), _lasted_s(before)
    text = f"Out of host memory again after it was raised ({rise})"
    if lasted and lasted_before and lasted >= grows * lasted_before:
        return (
            f"{text}: it ran {lasted:.0f} s instead of {lasted_before:.0f} s, so it fills all memory it "
            "gets, as a leak does"
        )
    return text


def _lasted_s(past: PastRun) -> float | None:
    return None if past.started_s is None or past.ended_s is None else past.ended_s - past.started_s


def _asked(past: PastRun) -> float | None:
    """The requested memory, or else the measured limit of the job."""
    return parse_mib(past.resources.get("mem"), "M") or past.memory_asked_mib


def _evidence(past: PastRun) -> Evidence:
    used = f", {size_text(past.memory_used_mib)} used at most" if past.memory_used_mib else ""
    return Evidence(
        f"{past.target}, {when(past)}: {past.cause or past.state}{used}", value=_asked(past), unit="MiB"
    )
