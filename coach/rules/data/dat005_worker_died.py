"""DAT005: a DataLoader worker ended without an exception of its own: it was killed, or crashed in native
code."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field


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
    sentences = by_field(
        killed="A DataLoader worker was killed (signal 9), most likely for lack of host memory",
        signal="A DataLoader worker was ended by a signal: {signal}",
        waited="A DataLoader worker gave no batch within {waited} s",
        pids="A DataLoader worker ended without an error message",
        otherwise="A worker process ended without an error message",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a pool that compiles kernels: torch.compile reports its own errors."""
        return not any("torch/_inductor/" in line for line in hit.traceback)

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Run a few batches with num_workers=0: the error then shows in the main process",
            {"num_workers": 0} if snapshot.run else {},
        )
        if "killed" in hit.fields:
            yield Fix(
                "Use fewer workers or a lower prefetch_factor: each worker holds its own copies in host "
                "memory"
            )
