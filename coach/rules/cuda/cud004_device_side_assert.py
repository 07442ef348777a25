"""CUD004: an assertion inside a CUDA kernel failed: nearly always an index out of range."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of, own_frame, quote


class DeviceSideAssert(EndingRule):
    """An assertion inside a CUDA kernel failed: nearly always an index out of range.

    What it sees
        "CUDA error: device-side assert triggered", and the kernel's own lines above it: file, block, thread
        and the assertion, such as `srcIndex < srcSelectDimSize` (an index into an embedding or index_select)
        or `t >= 0 && t < n_classes` (a label); ROCm's "Device-side assertion".
    Why it matters
        The CUDA context is lost, so every later CUDA call fails with the same message. The traceback shows a
        later line than the faulty one.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on, unless the job
        failed and its log has no other error.
    What to do
        Look at labels (0 to classes − 1) and at token ids (below the size of the vocabulary; new tokens need
        `resize_token_embeddings`). Run one batch on the CPU, where the same mistake raises an exception with
        its values. Or set CUDA_LAUNCH_BLOCKING=1.
    Sources
        torch aten/native/cuda Indexing.cu, NLLLoss2d.cu, ScatterGatherKernel.cu; CUDA runtime error 710.
    """

    code = "CUD004"
    name = "device-side-assert"
    cause = "device_side_assert"
    general = (
        Fix(
            "Check the range of labels and indices: labels below the number of classes, ids below the "
            "embedding's size"
        ),
        Fix(
            (
                "Run once with CUDA_LAUNCH_BLOCKING=1, or one batch on the CPU: the traceback then shows "
                "the failing line"
            ),
            {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        ),
    )
    is_lasting = True
    confidence = 0.95
    sentences = by_field(
        assertion="An assertion inside a CUDA kernel failed: {assertion}",
        otherwise="An assertion inside a CUDA kernel failed, mostly an index out of range",
    )

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        for triggered in hits_of(snapshot, self.code, "triggered")[:1]:
            if triggered is not hit:
                yield from filter(None, (quote(triggered), own_frame(triggered)))
