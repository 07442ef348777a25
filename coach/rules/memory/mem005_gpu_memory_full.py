"""MEM005: a GPU's memory is almost full: no fault, but no room for a longer batch."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuSample
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.telemetry_windows import WINDOW, gpu_uses


class GpuMemoryFull(Rule):
    """A GPU's memory is almost full.

    What it sees
        The share of device memory in use over the newest window of training.
    Why it matters
        Full memory is good use of a GPU. But a longer sequence or the first evaluation may then run out of
        memory and end the run.
    When it stays silent
        Below `share`. It is never more than info: the framework keeps freed memory in its cache, so much of
        it may be reusable.
    What to do
        Nothing, as long as it runs. If sizes vary, use a smaller micro-batch with more gradient accumulation,
        or activation checkpointing.
    Sources
        TraceML's memory bands (97 %); ML Engineering (Bekman) on the caching allocator.
    """

    code = "MEM005"
    name = "gpu-memory-full"
    cause = "gpu_memory_full"
    severity = Severity.INFO
    needs = (Need.GPU_TELEMETRY,)
    keep_s = 10.0
    share = Threshold(0.97, "of the GPU's memory", "TraceML's upper band")
    window_s, min_samples, startup_s = WINDOW

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        uses = gpu_uses(snapshot, history, self.values)
        share = self.share
        full = [use for use in uses if _is_full(use.newest, share) and (use.memory_share or 0.0) >= share]
        if not full:
            return
        worst = max(full, key=lambda use: use.memory_share or 0.0)
        total = worst.newest.memory_total_mib
        yield Hit(
            summary=f"The memory of GPU {worst.gpu} on {worst.node} is {worst.memory_share or 0.0:.0%} full"
            + (f" (and of {len(full) - 1} more)" if len(full) > 1 else ""),
            evidence=(
                Evidence(
                    f"memory in use, mean of {worst.num_samples} samples"
                    + (f" of {size_text(total)}" if total else ""),
                    value=round(worst.memory_share or 0.0, 3),
                    unit="of memory",
                ),
            ),
            confidence=0.9,
            subject=Subject(node=worst.node, gpu=worst.gpu) if len(full) == 1 else Subject(),
            fixes=(
                Fix(
                    "Where sizes vary: a smaller micro-batch with more gradient accumulation, or "
                    "activation checkpointing"
                ),
            ),
            since_s=worst.first.time_s,
        )


def _is_full(sample: GpuSample, share: float) -> bool:
    return (sample.memory_used_mib or 0.0) >= share * (sample.memory_total_mib or float("inf"))
