"""CUD005: a forked child process uses CUDA, which its parent had already initialized."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class CudaAfterFork(EndingRule):
    """A forked child process uses CUDA, which its parent had already initialized.

    What it sees
        torch's "Cannot re-initialize CUDA in forked subprocess", and "CUDA error: initialization error", the
        driver's message for the same; messages of Lightning, accelerate's `notebook_launcher` or numba that
        detect it before they fork.
    Why it matters
        A CUDA context does not survive a fork. The child ends at its first CUDA call, and processes that wait
        for it may time out.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on.
    What to do
        Start the children with `spawn` (`torch.multiprocessing.set_start_method("spawn")`,
        `multiprocessing_context="spawn"` of a DataLoader), under `if __name__ == "__main__":`. Or do not use
        CUDA before the fork: let the Dataset return CPU tensors, and move them in the training loop.
    Sources
        torch/cuda/__init__.py `_lazy_init`; torch multiprocessing notes: CUDA in multiprocessing; CUDA
        runtime error 3.
    """

    code = "CUD005"
    name = "cuda-after-fork"
    cause = "cuda_launch_fork"
    general = (
        Fix(
            "Start children with spawn, or touch CUDA only after the fork (no .cuda() in a Dataset or at "
            "import)"
        ),
    )
    confidence = 0.95
    sentences = by_field(
        otherwise="A forked process used CUDA after its parent had initialized it",
    )
