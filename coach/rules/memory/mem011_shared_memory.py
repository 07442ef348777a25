"""MEM011: /dev/shm, in which processes of one node share tensors, was full or too small."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.advice.launched_with import int_parameter
from coach.rules.from_logs.ending_rule import AFTER_A_BAR, UNHEEDED, EndingRule
from coach.rules.from_logs.torchrun_exit_codes import exit_code_signature, is_first_failure

_SHM = re.compile(
    rf"{AFTER_A_BAR}Bus error\b|"
    r"[Ee]rror while (?:creating|attaching to) shared memory segment"  # NCCL calls it a warning
    r"|" + UNHEEDED + r".*?(?:"
    r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Bus error"
    r"|Unexpected (?:bus|BUS) error encountered in (?:DataLoader )?worker"
    r"|(?:Error|what\(\)): (?!unable to mmap \d+ bytes from file </(?!torch_|dev/shm"
    r"|\d).*Cannot allocate).{0,200}?(?:unable to (?:mmap|write to file|resize|allocate shared memory"
    r"|open shared memory object)|could not unlink the shared memory file)"
    r"(?!.{0,200}Too many open files).{0,200}?(?:torch_|shm|shared memory|No space left|Cannot allocate"
    r"|memory)"
    r"|OSError: \[Errno (?:28|12)\] .*(?:/dev/shm|/psm_)"
    r"|^Fatal Python error: Bus error|: line \d+: +\d+ Bus error\b|^Bus error\b"
    r"|Couldn't (?:open shared (?:file mapping|event)|map view of shared file): <"
    r"|srun: error: \S+: tasks? [\d,\[\]-]+: Bus error|noticed that process rank \d+ .*exited on signal 7 "
    r"\(Bus error\)"
    r"|Signal 7 \(SIGBUS\) received by PID|\*\*\* SIGBUS (?:received at time=|\(@0x[0-9a-f]+\) received by "
    r"PID)|terminated with signal SIGBUS|died with <Signals\.SIGBUS|exits with return code = -7$"
    r"|Caught signal 7 \(Bus error|EXIT STRING: Bus error|not enough space for /dev/shm/"
    r"|^\s*It may be caused by insufficient shared storage space"
    r")"
)


class SharedMemory(EndingRule):
    """/dev/shm, in which processes of one node share tensors, was full or too small.

    What it sees
        A DataLoader worker killed by "Bus error", "Unexpected bus error encountered in worker. This might be
        caused by insufficient shared memory (shm)", "unable to write to file </torch_…>: No space left on
        device", NCCL's "Error while creating shared memory segment /dev/shm/nccl-…", on Windows "Couldn't
        open shared file mapping"; with less to go by, a process that ended with SIGBUS.
    Why it matters
        DataLoader workers and NCCL pass data through /dev/shm. In a container it has 64 MB unless somebody
        says otherwise; on a node it is a share of the memory, and what is in it counts as the job's memory.
    When it stays silent
        Where the limit of open files was reached, which has nearly the same words. Where the program went on.
    What to do
        In a container: `--shm-size=16g` or `--ipc=host` (Docker), the host's /dev/shm for Apptainer. Else
        fewer workers, a lower prefetch_factor, `torch.multiprocessing.set_sharing_strategy('file_system')`;
        see what is left over there: `ls -l /dev/shm`.
    Sources
        torch/csrc/DataLoader.cpp, ATen/MapAllocator.cpp; NCCL's src/misc/shmutils.cc; docker-run(1),
        --shm-size.
    """

    code = "MEM011"
    name = "shared-memory-full"
    cause = "shm_bus_error"
    consequence_of = ("ENV012",)
    signatures = (
        Signature(
            "MEM011",
            "shm",
            (
                "Bus error",
                "bus error",
                "BUS error",
                "shared file mapping: <",
                "shared event: <",
                "view of shared file",
                "unable to mmap",
                "unable to write to file",
                "unable to resize",
                "unable to allocate shared memory",
                "unable to open shared memory object",
                "could not unlink the shared memory",
                "shared memory segment",
                "/dev/shm",
                "/psm_",
                "SIGBUS",
                "return code = -7",
                "insufficient shared storage",
            ),
            _SHM,
        ),
        exit_code_signature("MEM011"),
    )

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

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
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
            "In a container, give it more: --shm-size=16g or --ipc=host (Docker), or bind the host's /dev/shm"
        )
        yield Fix(
            "See what is in it on the node, and what is left over of ended jobs",
            command="df -h /dev/shm; ls -l /dev/shm",
        )
        yield Fix(
            "Use fewer DataLoader workers, or torch.multiprocessing.set_sharing_strategy('file_system')"
        )
