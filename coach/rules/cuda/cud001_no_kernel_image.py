"""CUD001: a library has no machine code for this GPU: it was built for older or newer GPUs."""

from __future__ import annotations

from coach.model.judging.finding import Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.launched_with import num_gpus_asked
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class NoKernelImage(EndingRule):
    """A library has no machine code for this GPU.

    What it sees
        CUDA's "no kernel image is available for execution on the device" and "invalid device function", its
        run-time compiler's "invalid value for --gpu-architecture", torch's "with CUDA capability sm_XX is not
        compatible with the current PyTorch installation", "FlashAttention only supports Ampere GPUs or
        newer", rocBLAS' missing TensileLibrary; a compute capability that vLLM, TransformerEngine, xformers
        or torch's FP8 requires and the GPU lacks.
    Why it matters
        A wheel holds code for a list of architectures. It cannot run on a GPU that is newer than the wheel,
        or too old for newer wheels. The GPU is not faulty.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on without that
        library.
    What to do
        Compare `torch.cuda.get_arch_list()` with the GPU's compute capability. For a new GPU install a newer
        torch, for an old one the last release that supports it (CUDA 13 builds begin at 7.5). Rebuild
        extensions for the GPU (TORCH_CUDA_ARCH_LIST). FlashAttention 2 needs Ampere or newer: choose another
        attention kernel, or request such a GPU.
    Sources
        CUDA runtime error 209; torch/cuda/__init__.py `_check_capability`; flash-attn.
    """

    code = "CUD001"
    name = "no-kernel-image"
    cause = "no_kernel_image"
    general = (
        Fix(
            "Take a build that lists this GPU: compare the two",
            command=(
                "python -c 'import torch; print(torch.cuda.get_arch_list(), "
                "torch.cuda.get_device_capability())'"
            ),
        ),
    )
    confidence = 0.95
    sentences = by_field(
        found="This torch has no code for this GPU ({found})",
        needed="{kernel} needs a GPU of the {needed} generation or newer",
        capability="It needs a GPU of compute capability {capability} or above",
        otherwise="A library has no code for this GPU: it was built for others",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return num_gpus_asked(snapshot) != 0

    def severity_of(self, hit: LogHit) -> Severity | None:
        # torch only warns here; the fatal error stands further down.
        return Severity.WARNING if hit.signature == "not_compatible" else None
