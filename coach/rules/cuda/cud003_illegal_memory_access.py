"""CUD003: a kernel accessed an invalid memory address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.causes import REGISTER
from coach.rules.from_logs.ending_rule import EndingRule

_LOST = frozenset({"48", "79", "95"})
"""Xids of a GPU that is broken or gone: no program causes them."""


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
    general = (
        Fix(
            "Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then shows the failing line",
            {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        ),
        Fix(
            "Try without your own and third-party kernels (custom CUDA, Triton, flash-attention), or "
            "update them"
        ),
    )
    is_lasting = True

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """A GPU that failed explains the error: each call then fails with any code."""
        codes = tuple(sorted({hit.rule for hit in snapshot.log_hits if _tells_of_a_lost_gpu(hit)}))
        for hit in super().check(snapshot, history):
            known = (edge.cause for edge in REGISTER.explaining(self.code))
            yield replace(hit, consequence_of=(*codes, *known)) if codes else hit

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"A kernel on the GPU accessed invalid memory: {re.sub(r'^.*[:)] +', '', hit.fields['what'])}"


def _tells_of_a_lost_gpu(hit: LogHit) -> bool:
    if hit.rule == "HDW001":
        return hit.fields.get("xid") in _LOST or "fallen off the bus" in hit.text
    return hit.rule == "HDW002" and "unsure" not in hit.fields
