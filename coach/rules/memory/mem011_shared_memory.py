"""MEM011: /dev/shm, through which processes of one node share tensors, was full or too small."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.launched_with import int_parameter
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.outcome import is_first_failure


class SharedMemory(EndingRule):
    """/dev/shm, through which processes of a node share tensors, was full or too small.

    What it sees
        A DataLoader worker killed by "Bus error", "Unexpected bus error encountered in worker. This might be
        caused by insufficient shared memory (shm)", "unable to write to file </torch_…>: No space left on
        device", NCCL's "Error while creating shared memory segment /dev/shm/nccl-…", on Windows "Couldn't
        open shared file mapping"; with less to go by, a process that ended with SIGBUS.
    Why it matters
        DataLoader workers and NCCL pass data through /dev/shm. In a container it has 64 MB by default. On a
        node it is a share of the memory, and its contents count as the job's memory.
    When it stays silent
        If the limit of open files was reached, which has a very similar message. If the program went on.
    What to do
        In a container: `--shm-size=16g` or `--ipc=host` (Docker), the host's /dev/shm for Apptainer. Else use
        fewer workers, a lower prefetch_factor, or
        `torch.multiprocessing.set_sharing_strategy('file_system')`. Look for left-over files: `ls -l
        /dev/shm`.
    Sources
        torch/csrc/DataLoader.cpp, ATen/MapAllocator.cpp; NCCL's src/misc/shmutils.cc; docker-run(1),
        --shm-size.
    """

    code = "MEM011"
    name = "shared-memory-full"
    cause = "shm_bus_error"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        return "exit_code" not in hit.fields or is_first_failure(hit, snapshot, -7)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if (
            "worker" in hit.text
            or "shm" in hit.text
            or "shared memory" in hit.text
            or "unable to" in hit.text
        ):
            return "Shared memory (/dev/shm) was full or too small"
        return "A process ended with a bus error, most likely because shared memory (/dev/shm) was full"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        workers = int_parameter(snapshot.run, "num_workers")
        if workers:
            yield Fix(
                (
                    f"DataLoader workers {workers} → 0: the training process loads its data itself, and "
                    "nothing passes through shared memory"
                ),
                {"num_workers": 0},
            )
        yield Fix(
            "See on the node how full it is, also with leftovers of ended jobs",
            command="df -h /dev/shm; ls -l /dev/shm",
        )
        share = "torch.multiprocessing.set_sharing_strategy('file_system')"
        yield Fix(f"Use fewer DataLoader workers, or {share}", needs=("dataloader",))
        yield Fix(f"Let tensors pass through files: {share}", needs=("not dataloader", "torch"))
        yield Fix(
            "In a container, give it more: --shm-size=16g or --ipc=host (Docker), or bind the host's /dev/shm"
        )
