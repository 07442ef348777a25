"""CUD003: a kernel accessed an invalid memory address."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule


class IllegalMemoryAccess(EndingRule):
    """A kernel on the GPU accessed an invalid memory address.

    What it sees
        "CUDA error: an illegal memory access was encountered", "misaligned address", "unspecified launch
        failure" (CUDA's word for a segmentation fault on the GPU), and the corresponding errors of the driver
        and of ROCm.
    Why it matters
        The CUDA context is lost, and the process cannot go on. The traceback shows where the error was
        noticed, not where it happened.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on, unless the job
        failed and its log has no other error: it is then the likely cause, with the number of lines below it.
        The NCCL watchdog's report of the same error adds nothing.
    What to do
        Run once with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to find the kernel. Mostly a custom
        kernel (your own or a library's CUDA or Triton code, flash-attention) has an index out of range, or
        versions do not fit together: update the library, or test without it. If unchanged programs fail on
        one node only, leave that node out and report it to the site.
    Sources
        CUDA runtime errors 700, 715, 716, 719; NVIDIA Xid 13 and 31; compute-sanitizer.
    """

    code = "CUD003"
    name = "illegal-memory-access"
    cause = "illegal_memory_access"
    is_lasting = True

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"A kernel on the GPU accessed invalid memory: {re.sub(r'^.*[:)] +', '', hit.fields['what'])}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then shows the failing line",
            {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        )
        yield Fix(
            "Try without your own and third-party kernels (custom CUDA, Triton, flash-attention), or "
            "update them"
        )
