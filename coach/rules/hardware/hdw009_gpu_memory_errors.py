"""HDW009: a GPU's memory has uncorrectable errors, or rows that still wait to be remapped."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import GpuHealth
from coach.rules.advice.remedies import without
from coach.rules.base import Need, Rule


class GpuMemoryErrors(Rule):
    """A GPU's memory has uncorrectable errors.

    What it sees
        Uncorrectable ECC errors that were counted during this run; a failed row remapping; a row or page that
        waits for a reset of the GPU to be remapped or retired.
    Why it matters
        An uncorrectable error kills the program that reads the memory, or corrupts its results. It recurs
        until the GPU is reset or replaced.
    When it stays silent
        On corrected errors, on errors before this run, and on rows and pages that are already remapped or
        retired: the GPU is then healthy again.
    What to do
        Leave the node out (`--exclude=NODE`), resume from the last checkpoint, and report node and GPU to the
        site. Do not switch ECC off.
    Sources
        NVIDIA GPU memory error management (row remapping, page retirement); NVML,
        nvmlDeviceGetTotalEccErrors, nvmlDeviceGetRemappedRows.
    """

    code = "HDW009"
    name = "gpu-memory-errors"
    cause = "gpu_memory_errors"
    severity = Severity.WARNING
    needs = (frozenset({Need.GPU_TELEMETRY, Need.GPU_HEALTH}),)
    keep_s = 30.0

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for node, gpu in history.gpus:
            looks = history.gpu_health(node, gpu)
            found = _worst(*looks) if looks is not None else None
            if found is None or looks is None:
                continue
            what, value, is_critical = found
            yield Hit(
                summary=f"GPU {gpu} on {node}: {what}",
                evidence=(Evidence(what, value=value),),
                confidence=0.95,
                subject=Subject(node=node, gpu=gpu),
                fixes=(
                    Fix(
                        f"Leave {node} out, resume from the last checkpoint, and tell the site node and GPU",
                        without(snapshot.run, node),
                    ),
                ),
                severity=Severity.CRITICAL if is_critical else None,
                since_s=looks[0].time_s,
            )


def _worst(first: GpuHealth, newest: GpuHealth) -> tuple[str, float | None, bool] | None:
    """The fault, its count, and True if the run's results can no longer be trusted."""
    before, now = first.ecc_volatile_uncorrected, newest.ecc_volatile_uncorrected
    if before is not None and now is not None and now > before:
        return "memory errors that could not be corrected, since this run began", now - before, True
    if newest.has_row_remap_failed:
        return "a row of memory is broken and could not be mapped out", None, True
    if newest.is_row_remap_pending:
        return "a broken row of memory waits for a reset of the GPU to be mapped out", None, False
    if newest.is_page_retirement_pending:
        return "a broken page of memory waits for a restart to be retired", None, False
    return None
