"""DAT005: a DataLoader worker ended without an exception of its own: it was killed, or crashed in native
code."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule


class WorkerDied(EndingRule):
    """A DataLoader worker ended without an exception of its own.

    What it sees
        "DataLoader worker (pid 17) is killed by signal: Killed" (or Segmentation fault, Aborted, Terminated),
        "DataLoader worker (pid(s) 17) exited unexpectedly", the same of Paddle's "DataLoader process", "Pin
        memory thread exited unexpectedly", datasets' "One of the subprocesses has abruptly died during map
        operation", a broken process pool.
    Why it matters
        The worker cannot report the reason. "Killed" mostly means that the node's memory ran out. A
        segmentation fault means that native code of the data set crashed (an image or video decoder, HDF5
        opened before the fork).
    When it stays silent
        On a bus error, which means lack of shared memory. If the kernel or Slurm reports that memory ran out,
        that is the cause, and this its consequence. Likewise if the job was cancelled or reached its time
        limit.
    What to do
        Run a few batches with `num_workers=0`: the error then appears in the main process. If the worker was
        killed, watch the host's memory, and use fewer workers or a lower prefetch_factor. Open files in the
        worker (`worker_init_fn`), not before it starts.
    Sources
        torch/utils/data/_utils/signal_handling.py, dataloader.py; torch/csrc/DataLoader.cpp;
        paddle/fluid/imperative/data_loader.cc.
    """

    code = "DAT005"
    name = "dataloader-worker-died"
    cause = "dataloader_worker_killed"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a pool that compiles kernels: torch.compile reports its own errors."""
        return not any("torch/_inductor/" in line for line in hit.traceback)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        signal = hit.fields.get("signal")
        if signal == "Killed":
            return "A DataLoader worker was killed (signal 9), most likely for lack of host memory"
        if signal is not None:
            return f"A DataLoader worker was ended by a signal: {signal}"
        if "waited" in hit.fields:
            return f"A DataLoader worker gave no batch within {hit.fields['waited']} s"
        if "pids" not in hit.fields:
            return "A worker process ended without an error message"
        return "A DataLoader worker ended without an error message"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Run a few batches with num_workers=0: the error then shows in the main process",
            {"num_workers": 0} if snapshot.run else {},
        )
        if hit.fields.get("signal") == "Killed":
            yield Fix(
                "Use fewer workers or a lower prefetch_factor: each worker holds its own copies in host "
                "memory"
            )
