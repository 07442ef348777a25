"""ENV003: the torch of this environment was built without CUDA, so it cannot use any GPU."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Refusal
from coach.rules.advice.launched_with import int_resource
from coach.rules.environment.gpu_build import WITHOUT_CUDA
from coach.rules.from_logs.ending_rule import EndingRule, ending_signatures


class TorchWithoutCuda(EndingRule):
    """The torch of this environment was built without CUDA.

    What it sees
        "Torch not compiled with CUDA enabled" or "PyTorch is not linked with support for cuda devices" as the
        error that ended the program; or the versions of wheel (`+cpu`, `cuda = None`) and driver that the
        job's own check at its start found.
    Why it matters
        pip installs the CPU build if its index has no other for the platform. The job's GPUs then cannot be
        used at all.
    When it stays silent
        The finding is info if the program caught the error and went on.
    What to do
        Install the build for the driver's CUDA (pytorch.org shows the index, for example
        download.pytorch.org/whl/cu128), or choose an environment that has it. For a run that coach launched,
        coach also offers the same launch without GPUs.
    Sources
        torch/cuda/__init__.py `_lazy_init`; torch/version.py as wheels are built.
    """

    code = "ENV003"
    name = "torch-without-cuda"
    cause = "cuda_unavailable"
    confidence = 0.97
    signatures = ending_signatures(
        "ENV003",
        ("cuda_unavailable",),
        refusal=f".*{WITHOUT_CUDA}.*",
    )

    def is_mine(self, refusal: Refusal) -> bool:
        return refusal.cause == self.cause and WITHOUT_CUDA in refusal.text

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return "The torch of this environment was built without CUDA: it can use no GPU"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Take an environment with a CUDA build of torch, or install the one for the driver's CUDA")
        run = snapshot.run
        if run is not None and run.num_gpus:
            ranks = int_resource(run, "nproc_per_node")
            yield Fix(
                "Train on the CPU: ask for no GPU" + (", with the same ranks" if ranks else ""),
                {"gpus_per_node": 0, **({"nproc_per_node": ranks} if ranks else {})},
                changes_learning=not ranks,
            )
