"""MEM001: the GPU's memory was too small. Host memory is separate from it, so `--mem` never helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.model.training.run import Run
from coach.rules.advice.remedies import bf16, sharding, smaller_micro_batch
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.aftermath import went_on
from coach.rules.from_logs.outcome import told_as_hidden
from coach.rules.from_logs.quoted_evidence import (
    earliest,
    hits_of,
    own_frame,
    parse_mib,
    quote,
    ranks_text,
    size_text,
)


@dataclass(frozen=True, slots=True)
class _Request:
    """The figures of the allocator's message, in MiB. `reserved` is all memory that torch holds.
    `unallocated` is the part of it without tensors."""

    tried: float | None = None
    total: float | None = None
    free: float | None = None
    allocated: float | None = None
    reserved: float | None = None
    unallocated: float | None = None

    @classmethod
    def of(cls, hit: LogHit) -> _Request:
        def size(*names: str) -> float | None:
            return next((parse_mib(hit.fields[name]) for name in names if name in hit.fields), None)

        # Old versions of torch called the reserved but unallocated memory "cached".
        allocated, unallocated = size("allocated", "allocated_old"), size("unallocated", "cached")
        reserved = size("reserved_old")
        if allocated is not None:
            if reserved is not None:
                unallocated = max(0.0, reserved - allocated)
            elif unallocated is not None:
                reserved = size("in_use") or allocated + unallocated
        return cls(
            size("tried"),
            size("total", "total_old"),
            size("free", "free_old"),
            allocated,
            reserved,
            unallocated,
        )

    @property
    def held_by_others(self) -> float | None:
        """Memory that is neither free nor held by this process."""
        if self.total is None or self.free is None or self.reserved is None:
            return None
        return max(0.0, self.total - self.free - self.reserved)


class CudaOutOfMemory(Rule):
    """The GPU's memory was too small for a training step.

    What it sees
        The allocator's message in a log, in every wording of torch ("CUDA out of memory. Tried to allocate
        …", also HIP), the driver's "CUDA error: out of memory", and CUBLAS_STATUS_ALLOC_FAILED or
        CUDNN_STATUS_ALLOC_FAILED; the messages of JAX, TensorFlow, Caffe2, CuPy, spconv and others. The rule
        reads the requested, total, free, allocated and reserved memory from the message.
    Why it matters
        Parameters, gradients, optimizer state and activations must fit on the device together. Only
        activations grow with the micro-batch.
    When it stays silent
        On lack of host memory, which has another remedy (host-out-of-memory). The finding is info if the
        program caught the error and went on, as a batch-size finder does, or if the run completed.
    What to do
        Halve the micro-batch and double gradient accumulation: the same global batch in less memory. If that
        is not enough, use bf16, activation checkpointing, or sharding (FSDP, ZeRO). `expandable_segments`
        helps only if much memory is reserved but unallocated. If other processes hold the memory, use a free
        GPU. More `--mem` does not help: it is host memory.
    Sources
        torch CUDACachingAllocator messages (1.x to 2.13); CUDA semantics: memory management; NVIDIA cuBLAS
        status codes.
    """

    code = "MEM001"
    name = "cuda-out-of-memory"
    cause = "cuda_oom"
    severity = Severity.CRITICAL
    needs = (Need.LOG,)
    fragmented_share = Threshold(
        0.10,
        "of the device's memory",
        "expandable segments gain little if less memory is reserved but unallocated",
    )
    others_share = Threshold(
        0.25,
        "of the device's memory",
        "a CUDA context alone takes about 0.5 GiB; a quarter of the device is data",
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = hits_of(snapshot, self.code, "allocator", "runtime", "library")
        if not hits:
            return
        uncaught = [hit for hit in hits if not went_on(hit, snapshot, is_running_enough=False)]
        counted = uncaught or hits
        first = earliest(counted)
        request = _Request.of(first)
        ranks = sorted({hit.rank for hit in counted if hit.rank is not None})
        gpu = first.fields.get("gpu")
        where = f"GPU {gpu}" if gpu else "the GPU"
        summary = (
            f"CUDA out of memory on {where}"
            + (f" ({ranks_text(ranks)})" if ranks else "")
            + _need_text(request)
        )
        if not uncaught:
            summary += "; it was caught and the run went on"
        hit = Hit(
            summary=summary,
            evidence=tuple(self._evidence(first, request, len(hits))),
            confidence=0.97 if first.signature == "allocator" else 0.9,
            subject=Subject(
                rank=ranks[0] if len(ranks) == 1 else None, gpu=int(gpu) if gpu and len(ranks) < 2 else None
            ),
            fixes=tuple(self._fixes(snapshot.run, request)),
            severity=None if uncaught else Severity.INFO,
            since_s=first.time_s,
        )
        yield told_as_hidden(hit, snapshot) if uncaught else hit

    def _evidence(self, first: LogHit, request: _Request, num_hits: int) -> Iterable[Evidence]:
        yield quote(first)
        if frame := own_frame(first):
            yield frame
        if request.tried is not None:
            yield Evidence("requested in one allocation", value=request.tried, unit="MiB")
        if request.total is not None:
            yield Evidence("memory of the device", value=request.total, unit="MiB")
        if request.allocated is not None:
            yield Evidence("held by tensors of this process", value=request.allocated, unit="MiB")
        if self._is_fragmented(request):
            yield Evidence("reserved by torch but unallocated", value=request.unallocated, unit="MiB")
        if self._is_held_by_others(request):
            yield Evidence(
                "held by other processes on the same GPU", value=request.held_by_others, unit="MiB"
            )
        if num_hits > 1:
            yield Evidence("such lines in the logs", value=float(num_hits), unit="lines")

    def _fixes(self, run: Run | None, request: _Request) -> Iterable[Fix]:
        if self._is_held_by_others(request):
            yield Fix(
                "Use a GPU that no other process uses: other processes hold much of this one's memory "
                "(nvidia-smi lists them)"
            )
        yield from smaller_micro_batch(run)
        if self._is_fragmented(request):
            yield Fix(
                "Expandable segments: much memory is reserved but unallocated, because it is fragmented",
                {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            )
        if run is not None and run.parameters.get("activation_checkpointing") is False:
            yield Fix(
                "Activation checkpointing: less memory for about a third more compute",
                {"activation_checkpointing": True},
            )
        if run is not None and run.parameters.get("precision") in ("fp32", "float32", "32"):
            yield from bf16(run, "bf16 activations: about half their memory")
        yield from sharding(run)

    def _is_fragmented(self, request: _Request) -> bool:
        return (
            request.unallocated is not None
            and request.total is not None
            and request.unallocated >= self.fragmented_share * request.total
            and request.unallocated >= (request.tried or 0.0)
        )

    def _is_held_by_others(self, request: _Request) -> bool:
        others = request.held_by_others
        return (
            others is not None and request.total is not None and others >= self.others_share * request.total
        )


def _need_text(request: _Request) -> str:
    if request.tried is None:
        return ""
    text = f": {size_text(request.tried)} more were needed"
    if request.total is not None and request.tried > request.total:
        return f"{text} at once, but the device has only {size_text(request.total)}"
    if request.free is not None:
        text += f", {size_text(request.free)} were free"
    if request.total is not None:
        text += f" of {size_text(request.total)}"
    return text
