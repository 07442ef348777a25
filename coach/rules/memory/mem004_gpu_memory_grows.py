"""MEM004: the memory in use on a GPU grows without end, until it is full."""

from __future__ import annotations

import math
from collections.abc import Iterable

from coach.lookback.history import History
from coach.lookback.series import Series
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuSample
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.telemetry_windows import Growth, steady_growth, training_phases
from coach.rules.from_numbers.training_windows import is_first_of_epochs, training_places

_MIN_SAMPLES = 20


class GpuMemoryGrows(Rule):
    """The memory in use on a GPU grows steadily, until it is full.

    What it sees
        The device memory in use during training, over four equal parts of the kept samples: each part lies
        above the one before, the last pace is at least half of the mean pace, and at this pace the GPU is
        full within `horizon_s`.
    Why it matters
        It ends in "CUDA out of memory" hours into the run, at a line that is not the cause.
    When it stays silent
        Before `min_s` of training, when the growth ends or slows down (the allocator keeps the memory of the
        longest batch), and if the GPU would be full only after `horizon_s`. In the first of several epochs it
        is info: longer batches may still come.
    What to do
        Look for tensors that each step keeps together with their graph: `losses.append(loss)`, `total +=
        loss`, outputs or hidden states in a list; use `.item()` or `.detach()`. `torch.cuda.memory_summary()`
        shows whether live tensors grow, or only the allocator's cache. Against the latter set
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
    Sources
        PyTorch's FAQ, "My model reports CUDA runtime error(2): out of memory"; runmedic's and TraceML's leak
        tests; torch's CUDA memory management notes.
    """

    code = "MEM004"
    name = "gpu-memory-grows"
    cause = "gpu_memory_leak"
    severity = Severity.WARNING
    needs = (Need.GPU_TELEMETRY,)
    keep_s = 30.0
    min_s = Threshold(600, "seconds of training", "the allocator has met most shapes of batches by then")
    growth = Threshold(1.1, "times the first quarter", "less may be fragmentation")
    min_growth_mib = Threshold(1024, "MiB", "TraceML's bound: workspaces and caches come in hundreds")
    horizon_s = Threshold(14400, "seconds", "a limit that is further away than this can wait")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        found: list[tuple[float, str, int, Series[GpuSample], Growth]] = []
        for node, gpu in history.gpus:
            series = history.gpu_series(node, gpu)
            growth = self._growth(snapshot, history, series) if self._may_grow(series) else None
            if growth is not None:
                newest = series.samples[-1]
                free_mib = (newest.memory_total_mib or 0.0) - (newest.memory_used_mib or 0.0)
                left_s = max(0.0, free_mib / growth.pace_per_s)
                if newest.memory_total_mib and left_s <= self.horizon_s:
                    found.append((left_s, node, gpu, series, growth))
        if not found:
            return
        left_s, node, gpu, series, growth = min(found, key=lambda each: each[:3])
        others = f" (and of {len(found) - 1} more)" if len(found) > 1 else ""
        newest = series.samples[-1]
        grows, is_full = (
            ("grew", "would have been full after") if snapshot.has_ended else ("grows", "is full in about")
        )
        yield Hit(
            summary=f"The memory in use on GPU {gpu} of {node}{others} {grows} by "
            f"{size_text(growth.pace_per_s * 3600)} an hour"
            f" and {is_full} {max(1, left_s / 60):.0f} {'more ' if snapshot.has_ended else ''}min",
            evidence=(
                Evidence("memory in use by quarters: " + ", ".join(map(size_text, growth.by_quarters))),
                Evidence(
                    f"newest of {len(series.samples)} samples", value=newest.memory_used_mib, unit="MiB"
                ),
                Evidence("memory of the GPU", value=newest.memory_total_mib, unit="MiB"),
            ),
            confidence=0.75,
            subject=Subject(node=node, gpu=gpu) if len(found) == 1 else Subject(),
            fixes=(
                Fix(
                    "Look for tensors that are kept per step with their graph: losses or outputs in a list "
                    "(`.item()`, `.detach()`)"
                ),
            ),
            severity=Severity.INFO if is_first_of_epochs(snapshot, history) else None,
            since_s=series.times[0],
        )

    def _may_grow(self, series: Series[GpuSample]) -> bool:
        """Fast path: False if the memory has not grown since the middle of the samples."""
        if len(series.samples) < _MIN_SAMPLES:
            return False
        middle = series.samples[len(series.samples) // 2].memory_used_mib
        newest = series.samples[-1].memory_used_mib
        return middle is not None and newest is not None and newest - middle >= self.min_growth_mib / 4

    def _growth(self, snapshot: TargetSnapshot, history: History, series: Series[GpuSample]) -> Growth | None:
        places = training_places(series, training_phases(snapshot, history), None, 0)
        if len(places) < _MIN_SAMPLES:
            return None
        times = [series.times[place] for place in places]
        used = series.column("memory_used_mib", places)
        return None if any(map(math.isnan, used)) else steady_growth(used, times, self.values)
