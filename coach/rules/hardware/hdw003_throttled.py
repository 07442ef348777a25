"""HDW003: the driver slows a GPU down because of heat or its power supply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.telemetry import GpuSample
from coach.rules.advice.remedies import without
from coach.rules.base import Need, Rule, Threshold

_MEANING = {
    "hw_thermal_slowdown": "too hot: the hardware halves its clocks",
    "sw_thermal_slowdown": "too hot: the driver lowers its clocks",
    "hw_power_brake_slowdown": "the power supply told it to slow down",
    "hw_slowdown": "the hardware slows it down (heat, or power)",
}


class Throttled(Rule):
    """The driver slows a GPU down because of heat or its power supply.

    What it sees
        The clocks event reasons of the newest two minutes in which the GPU worked: hw_thermal_slowdown,
        sw_thermal_slowdown, hw_power_brake_slowdown, hw_slowdown. The finding also shows its clock and
        temperature, and the clock of the other GPUs.
    Why it matters
        All ranks wait for one slow GPU in every step. The reason is mostly the node's cooling or power, not
        the program.
    When it stays silent
        On sw_power_cap, which is normal under full load, on idle clocks and on clocks that the site set. On
        fewer than three samples.
    What to do
        Leave the node out (`--exclude=NODE`) for the next launch, and report node, GPU and reason to the
        site.
    Sources
        NVML, nvmlClocksEventReasons; NVIDIA DCGM's clock throttling fields.
    """

    code = "HDW003"
    name = "gpu-throttled"
    cause = "gpu_throttled"
    severity = Severity.WARNING
    needs = (Need.GPU_TELEMETRY,)
    keep_s = 30.0
    window_s = Threshold(120, "seconds", "long enough to tell a state from a peak")
    min_samples = Threshold(3, "samples", "a single one may be a change of the clocks", at_least=1)
    share = Threshold(0.1, "of the samples at work", "rarer slowdowns cost next to nothing")
    critical_samples = Threshold(20, "samples", "then it is not a short peak")
    critical_clock_share = Threshold(0.7, "of the largest SM clock", "a third of the speed is lost")
    working_pct = Threshold(10, "percent", "below it the GPU does nothing that could be slowed down")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for node, gpu in history.gpus:
            series = history.gpu(node, gpu)
            if not _is_slowed(series[-1]) and not snapshot.has_ended and not _was_slowed(series):
                continue
            start = series[-1].time_s - self.window_s
            at_work = [
                sample
                for sample in series
                if (sample.utilization_pct or 0.0) >= self.working_pct
                and (snapshot.has_ended or sample.time_s > start)
            ]
            slowed = [sample for sample in at_work if _is_slowed(sample)]
            needed = max(self.min_samples, self.share * len(at_work))
            if slowed and len(slowed) >= needed:
                yield self._hit(snapshot.run, node, gpu, at_work, slowed)

    def _hit(
        self,
        run: Run | None,
        node: str,
        gpu: int,
        at_work: Sequence[GpuSample],
        slowed: Sequence[GpuSample],
    ) -> Hit:
        counts = {
            reason: sum(reason in (sample.clocks_event_reasons or ()) for sample in slowed)
            for reason in _MEANING
        }
        reason = max(counts, key=lambda key: counts[key])
        clocks = [
            sample.sm_clock_mhz / sample.max_sm_clock_mhz
            for sample in slowed
            if sample.sm_clock_mhz is not None and sample.max_sm_clock_mhz
        ]
        clock_share = fmean(clocks) if clocks else None
        heat = [sample.temperature_c for sample in slowed if sample.temperature_c is not None]
        evidence = [
            Evidence(
                f"clocks event reason {name} in {count} of {len(at_work)} samples at work, over "
                f"{at_work[-1].time_s - at_work[0].time_s:.0f} s"
            )
            for name, count in counts.items()
            if count
        ]
        if clock_share is not None:
            evidence.append(
                Evidence("SM clock meanwhile, mean", value=round(clock_share, 2), unit="of its maximum")
            )
        if heat:
            evidence.append(Evidence("temperature meanwhile, highest", value=max(heat), unit="°C"))
        is_long = len(slowed) >= self.critical_samples
        is_slow = clock_share is not None and clock_share < self.critical_clock_share
        return Hit(
            summary=f"GPU {gpu} on {node} is slowed down: {_MEANING[reason]}",
            evidence=tuple(evidence),
            confidence=0.95 if is_slow else 0.8,
            subject=Subject(node=node, gpu=gpu),
            fixes=(Fix(f"Leave {node} out, and tell the site node, GPU and reason", without(run, node)),),
            severity=Severity.CRITICAL if is_long and is_slow else None,
            since_s=slowed[0].time_s,
        )


def _is_slowed(sample: GpuSample) -> bool:
    return _name_a_slowdown(sample.clocks_event_reasons)


def _name_a_slowdown(reasons: tuple[str, ...] | None) -> bool:
    return not _MEANING.keys().isdisjoint(reasons or ())


def _was_slowed(series: Sequence[GpuSample]) -> bool:
    """Fast path: True if one of the newest ten samples shows a slowdown."""
    return any(map(_name_a_slowdown, {sample.clocks_event_reasons for sample in series[-10:]}))
