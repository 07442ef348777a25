"""DSP001: a CUDA or C++ extension could not be built or loaded at the start."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class ExtensionBuild(EndingRule):
    """A CUDA or C++ extension (DeepSpeed's operators, or another's) could not be built or loaded at the
    start.

    What it sees
        "Error building extension 'NAME'", "Unable to JIT load the NAME op", "CUDA_HOME does not exist, unable
        to compile CUDA op(s)", "Ninja is required", an undefined symbol in `torch_extensions`,
        "'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", and a toolkit of another version than
        torch's CUDA (cause cuda_version_mismatch).
    Why it matters
        Such operators are compiled at first use, on the compute node, with the compiler and toolkit found
        there.
    When it stays silent
        On DeepSpeed's table of compatible operators. The finding is info if the program went on without the
        operator.
    What to do
        Load a compiler and the CUDA toolkit of torch's version in the job (`module load cuda/…`, or `nvcc`
        from conda; CUDA_HOME points to it), and see that ninja is installed. After a change of torch, Python
        or compiler set TORCH_EXTENSIONS_DIR to an empty folder, because the old builds no longer fit. If
        several nodes build at once in a shared home, they disturb each other: set TORCH_EXTENSIONS_DIR to a
        local folder. torch's own optimizers need no build.
    Sources
        torch/utils/cpp_extension.py; deepspeed/ops/op_builder/builder.py.
    """

    code = "DSP001"
    name = "extension-build"
    cause = "deepspeed_build"
    general = (
        Fix(
            "Load a compiler and the CUDA toolkit of torch's version in the job",
            command="python -c 'import torch; print(torch.version.cuda)'",
        ),
    )
    confidence = 0.95
    sentences = by_field(
        detected="The CUDA toolkit ({detected}) is not of the version that torch was built with",
        installed="The CUDA toolkit ({installed}) is not of the version that torch was built with",
        versions="The CUDA toolkit is not of the version that torch was built with",
        extension="The extension {extension} could not be built or loaded",
        otherwise="An extension could not be built: a tool or library that it needs is missing",
    )
