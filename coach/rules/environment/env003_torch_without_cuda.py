"""ENV003: the torch of this environment was built without CUDA, so it cannot use any GPU."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Refusal
from coach.rules.advice.launched_with import int_resource
from coach.rules.environment.gpu_build import WITHOUT_CUDA
from coach.rules.from_logs.ending_rule import NO_LINE, EndingRule, by_field
from coach.rules.from_numbers.unused_gpus import EMPTY_MIB, UNUSED_S, proof_of_unused


class TorchWithoutCuda(EndingRule):
    """The torch of this environment was built without CUDA.

    What it sees
        "Torch not compiled with CUDA enabled" or "PyTorch is not linked with support for cuda devices" as the
        error that ended the program; or the versions of wheel (`+cpu`, `cuda = None`) and driver that the
        job's own check at its start found. Or a program that does not fail: the files of its Python's torch
        say that it was built without CUDA, ROCm and XPU, and the job's GPUs were never used.
    Why it matters
        pip installs the CPU build if its index has no other for the platform. The job's GPUs then cannot be
        used at all.
    When it stays silent
        The finding is info if the program caught the error and went on, and for a program that does not fail
        if the use of its GPUs was not measured. It is not reported if a GPU was used, nor in the first
        `unused_s` seconds of its samples: a program may use its GPUs by another framework.
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
    unused_s = UNUSED_S
    empty_mib = EMPTY_MIB
    sentences = by_field(
        otherwise="The torch of this environment was built without CUDA: it can use no GPU",
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = list(super().check(snapshot, history))
        yield from hits
        run = snapshot.run
        if hits or run is None or run.has_torch_gpu_support is not False:
            return
        unused = proof_of_unused(snapshot, history, self.unused_s, self.empty_mib)
        if not run.num_gpus or (unused is None and history.gpus):
            return
        torch = f"torch {run.versions['torch']}" if run.versions.get("torch") else "its torch"
        yield Hit(
            summary=f"The job holds GPUs that its torch cannot use: {torch} was built without CUDA",
            evidence=(
                Evidence(f"its Python has {torch}, built without CUDA", f"{run.run_dir}/run.json"),
                unused or Evidence("the use of the GPUs was not measured"),
                Evidence("GPUs requested", value=float(run.num_gpus)),
            ),
            confidence=0.95 if unused else 0.6,
            fixes=tuple(self.fixes(NO_LINE, snapshot)),
            severity=Severity.WARNING if unused else Severity.INFO,
        )

    def is_mine(self, refusal: Refusal) -> bool:
        return refusal.cause == self.cause and WITHOUT_CUDA in refusal.text

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Take an environment with a CUDA build of torch, or install the one for the driver's CUDA")
        run = snapshot.run
        if run is not None and run.num_gpus:
            ranks = int_resource(run, "nproc_per_node")
            yield Fix(
                "Train on the CPU: ask for no GPU" + (", with the same ranks" if ranks else ""),
                {"gpus_per_node": 0, **({"nproc_per_node": ranks} if ranks else {})},
                changes_learning=not ranks,
            )
