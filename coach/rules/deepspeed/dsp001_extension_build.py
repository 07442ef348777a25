"""DSP001: a CUDA or C++ extension could not be built or loaded when the program started."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_BUILD = re.compile(
    UNHEEDED + r".*?(?:Error building extension '(?P<extension>[\w.]+)'|Error compiling objects for extension"
    r"|CalledProcessError: Command '\['(?:ninja'|(?:which|where)', '(?:cl|cc|[cg]\+\+|gcc|clang)')"
    r"|Fused kernels configured but not installed|FileNotFoundError: .*'/\S*/(?:nvcc|ninja)'"
    r"|(?:Error|Exception): .*?(?:Unable to JIT load the (?P<op>\w+) op|CUDA_HOME (?:does not exist"
    r"|environment variable is not set)"
    r"|Ninja is required to load C\+\+ extensions|Unable to run .*nvcc|unable to compile CUDA op)"
    r"|Error: .*?(?:Unable to pre-compile (?P<precompiled>\w+)|Unknown CUDA arch \(\S+\) or GPU not supported"
    r"|Ninja build failed\.|The current installed version of \S+ \([\w.]+\) is (?:less"
    r"|greater) than the m(?:in|ax)imum required version by CUDA|(?:PyTorch|HIP) version mismatch! DeepSpeed "
    r"ops were compiled)"
    r"|nvcc fatal +: Unsupported gpu architecture|Error: \S*torch_extensions/(?:\S*/)?(?P<library>\w++)\.so: "
    r"(?:undefined symbol|cannot open shared object)"
    r"|AttributeError: '(?P<optimizer>DeepSpeedCPU\w+|FusedAdam|FusedLamb|CPUAdam)' object has no attribute "
    r"'ds_opt_\w+'"
    r"|(?:(?:Error|Exception): .*?|^\s*(?:\S+: )?)(?P<versions>CUDA version mismatch! DeepSpeed ops were "
    r"compiled|FlashAttention is only supported on CUDA [\d.]+ and above|The detected CUDA version "
    r"\((?P<detected>[\d.]+)\) mismatches|Installed CUDA version (?P<installed>[\d.]+) does not match the "
    r"version torch|Cuda extensions are being compiled with a version of Cuda that does not match))"
)


class ExtensionBuild(EndingRule):
    """A CUDA or C++ extension (DeepSpeed's operators, or another's) could not be built or loaded at the
    start.

    What it sees
        "Error building extension 'NAME'", "Unable to JIT load the NAME op", "CUDA_HOME does not exist, unable
        to compile CUDA op(s)", "Ninja is required", an undefined symbol in `torch_extensions`,
        "'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", and a toolkit of another version than
        torch's CUDA (cause cuda_version_mismatch).
    Why it matters
        Such operators are compiled when they are first used, on the compute node, with whatever compiler and
        toolkit are there.
    When it stays silent
        On DeepSpeed's table of operators that could be built. Info when the program went on without the
        operator.
    What to do
        Load a compiler and the CUDA toolkit of torch's version in the job (`module load cuda/…`, or `nvcc`
        from conda; CUDA_HOME points to it), and see that ninja is installed. After a change of torch, Python
        or compiler set TORCH_EXTENSIONS_DIR to an empty folder: what lies in the old one was built for the
        old ones. Several nodes that build at once into one home disturb each other: set TORCH_EXTENSIONS_DIR
        to a local folder. torch's own optimizers need no build.
    Sources
        torch/utils/cpp_extension.py; deepspeed/ops/op_builder/builder.py.
    """

    code = "DSP001"
    name = "extension-build"
    cause = "deepspeed_build"
    confidence = 0.95
    signatures = (
        Signature(
            "DSP001",
            "build",
            (
                "Error building extension",
                "Error compiling objects",
                "CalledProcessError",
                "/nvcc'",
                "/ninja'",
                "Unable to JIT load",
                "CUDA_HOME",
                "Ninja is required",
                "Unable to run",
                "unable to compile CUDA op",
                "torch_extensions",
                "has no attribute 'ds_opt_",
                "The detected CUDA version",
                "Installed CUDA version",
                "Cuda extensions are being compiled",
                "FlashAttention is only supported on",
                "nvcc fatal",
                "Fused kernels configured",
                "Unable to pre-compile",
                "Unknown CUDA arch (",
                "Ninja build failed",
                "The current installed version of ",
                "DeepSpeed ops were compiled",
            ),
            _BUILD,
        ),
    )

    def cause_of(self, hit: LogHit) -> str | None:
        return "cuda_version_mismatch" if "versions" in hit.fields else None

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        fields = hit.fields
        if "versions" in fields:
            version = fields.get("detected") or fields.get("installed")
            toolkit = f"The CUDA toolkit ({version})" if version else "The CUDA toolkit"
            return f"{toolkit} is not of the version that torch was built with"
        name = next(
            (
                fields[key]
                for key in ("extension", "op", "library", "optimizer", "precompiled")
                if key in fields
            ),
            None,
        )
        return (
            f"The extension {name} could not be built or loaded"
            if name
            else "An extension could not be built: something that it needs is missing"
        )

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if hit is not None and ("library" in hit.fields):
            yield Fix(
                "Build anew in an empty folder: what lies in the old one was built for another torch",
                command="export TORCH_EXTENSIONS_DIR=$(mktemp -d)",
            )
            return
        yield Fix(
            "Load a compiler and the CUDA toolkit of torch's version in the job",
            command="python -c 'import torch; print(torch.version.cuda)'",
        )
