"""ENV002: the node's NVIDIA driver is older than the CUDA that torch was built for."""

from __future__ import annotations

from collections.abc import Sequence

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.launched_with import num_gpus_asked
from coach.rules.from_logs.ending_rule import EndingRule


class DriverTooOld(EndingRule):
    """The node's NVIDIA driver is too old for the CUDA that torch was built for.

    What it sees
        torch's "The NVIDIA driver on your system is too old (found version 12080)", CUDA's "driver version is
        insufficient for CUDA runtime version", "the provided PTX was compiled with an unsupported toolchain",
        a container's "unsatisfied condition: cuda>=…", "forward compatibility was attempted on non supported
        HW"; or the result of the job's own check at its start, which compares the CUDA of the torch wheel
        with the one that the driver supports.
    Why it matters
        No CUDA kernel of this torch runs there. torch only warns and finds no GPU. A program that chooses its
        device automatically then trains on the CPU while it holds GPUs.
    When it stays silent
        If the job requested no GPU. The finding is info if losses follow and no request for GPUs is known.
    What to do
        Use an environment whose torch is built for the driver's CUDA major version or an older one: a CUDA 12
        build runs on every driver that supports CUDA 12, a CUDA 13 build does not. `nvidia-smi` on the node
        shows the supported version. Or use a node with a newer driver. Only the site can update the driver.
    Sources
        torch/csrc/cuda/Module.cpp and c10/cuda/CUDAFunctions.cpp; NVIDIA CUDA Compatibility guide, minor
        version compatibility.
    """

    code = "ENV002"
    name = "driver-too-old"
    cause = "driver_too_old"
    general = (
        Fix(
            "Take an environment whose torch is built for a CUDA that the driver supports (nvidia-smi "
            "shows it)"
        ),
    )
    other_node = "whose driver is older than the others'"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        found = hit.fields.get("found")
        supports = f": it supports CUDA up to {int(found) // 1000}.{int(found) % 1000 // 10}" if found else ""
        return f"The NVIDIA driver is too old for this torch{supports}"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return num_gpus_asked(snapshot) != 0

    def severity_of(self, hit: LogHit) -> Severity | None:
        # A warning did not end the program; the fatal error may stand further down.
        is_said = "UserWarning" in hit.text or "Failed to initialize NVML" in hit.text
        return Severity.WARNING if is_said else None

    def severity_if_it_goes_on(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> Severity:
        # The program went on, on the CPU: requested GPUs are held and not used.
        return Severity.WARNING if num_gpus_asked(snapshot) else Severity.INFO
