"""HDW002: CUDA reports that the GPU itself failed: uncorrectable memory errors, a lost device."""

from __future__ import annotations

from coach.model.judging.finding import Fix, Severity
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class GpuFailed(EndingRule):
    """CUDA reports that the GPU itself failed.

    What it sees
        "uncorrectable ECC error encountered", an uncorrectable NVLink error, "GPU is lost", "Unable to
        determine the device handle for GPU", ROCm's "HW Exception by GPU node", "system not yet initialized"
        (the fabric manager does not run); with less certainty "CUDA error: unknown error".
    Why it matters
        No change in the program helps. The next job on that GPU fails as well, until the site resets or
        replaces it.
    When it stays silent
        On corrected ECC errors, and on lines about a setting ("ECC enabled"). The finding is info if the
        program went on.
    What to do
        Leave the node out (`--exclude=NODE`), go on from the last checkpoint, and report node and GPU to the
        site. `nvidia-smi -q -d ECC` and `nvidia-smi -q -d ROW_REMAPPER` on the node show more. Do not switch
        ECC off.
    Sources
        CUDA runtime errors 214, 220, 226, 714, 802, 999; NVIDIA GPU memory error management.
    """

    code = "HDW002"
    name = "gpu-failed"
    cause = "xid_hw_error"
    general = (
        Fix("Leave this node out (--exclude=NODE), resume from the last checkpoint, and tell the site"),
    )
    confidence = 0.9
    sentences = by_field(
        unsure="CUDA knows no name for the error: mostly the GPU, its driver or the node",
        otherwise="The GPU itself failed: {what}",
    )

    def severity_of(self, hit: LogHit) -> Severity | None:
        return Severity.WARNING if "unsure" in hit.fields else None
