"""MEM001: the GPU's memory was not enough. Device memory and host memory are different pools: `--mem` never
helps here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.model.training.run import Run
from coach.rules.advice.remedies import bf16, sharding, smaller_micro_batch
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.loss_lines import losses_after
from coach.rules.from_logs.quoted_evidence import (
    earliest,
    hits_of,
    own_frame,
    parse_mib,
    quote,
    ranks_text,
    size_text,
)

_SIZE = r"[\d.]+ (?:[KMGT]i)?[Bb](?:ytes)?"
_ALLOCATOR = re.compile(
    rf"(?:CUDA|HIP|XPU|NPU|MUSA) out of memory\. Tried to allocate (?P<tried>{_SIZE})"
    rf"(?:\.? ?\(?GPU (?P<gpu>\d+))?"
    rf"(?:[;,] (?P<total_old>{_SIZE}) total capacity; (?P<allocated_old>{_SIZE}) already allocated; "
    rf"(?P<free_old>{_SIZE}) free"
    rf"(?:; (?:(?P<reserved_old>{_SIZE}) reserved in total by PyTorch|(?P<cached>{_SIZE}) cached))?"
    rf"| has a total capacity of (?P<total>{_SIZE}) of which (?P<free>{_SIZE}) is free)?"
    rf"(?:.{{0,1000}}?this process has (?P<in_use>{_SIZE}) memory in use)?"
    rf"(?:.{{0,1000}}?allocated memory (?P<allocated>{_SIZE}) is allocated by PyTorch.{{0,1000}}?and "
    rf"(?P<unallocated>{_SIZE}) is reserved by PyTorch but unallocated)?"
)
_RUNTIME = re.compile(
    r"(?:CUDA|HIP) [Ee]rror: out of memory|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    r"|(?:CUDA|HIP) driver error: out of memory|Triton Error \[(?:CUDA|HIP)\]: out of memory"
    r"|cuda runtime error \(2\) : out of memory|cudaMalloc (?:retry )?failed: out of memory"
    r"|CUDA failure 2: out of memory|Out of memory error on GPU \d+\. Cannot allocate"
    r"|EigenAllocator for GPU ran out of memory|Error: (?:CUDA|HIP|MPS backend) out of memory\b(?!\. Tried)"
    r"|Allocation on device"
    r"|Error: .*?is (?:larger than the (?:available KV cache memory|maximum number of tokens that can be "
    r"stored in KV cache)|less than desired GPU memory utilization)"
    r"|(?:Error|Exception): (?:RESOURCE_EXHAUSTED|Resource exhausted): (?:Out of memory|Failed to allocate)"
    r"|OOM when allocating tensor (?:with|of) shape(?!.*(?:device:CPU|by allocator (?:mkl_?)?cpu))"
    r"|error == cudaSuccess \(2 vs\. 0\)|Error out of memory at line \d+ in file|CUFFT_ALLOC_FAILED"
    r"|error == cudaSuccess\. 2 vs 0\. Error at: .*: out of memory|cuda (?:execution )?failed with error 2\b"
    r"|cupy\S*\.OutOfMemoryError: |Error: No available memory for the cache blocks"
    r"|Error: Not enough memory\. Please try to increase --mem-fraction-static|Error: No executable batch "
    r"size found, reached zero"
    r"|(?:Error|Exception): .{0,200}CUDA_ERROR_OUT_OF_MEMORY|CUDA runtime error in .{0,200}\): out of memory"
    r"|Check failed: .{0,200}: CUDA: out of memory"
    r"|CUDA error: 'out of memory'|^ERROR: .{0,40}Out of GPU memory trying to allocate"
    r"|CUDA failed with error out of memory"
    r"|bytes of device memory \(|Device\(id:\d+\) memory isn't enough and alloc failed|\[CUDA\] out of memory"
    r"|Error: (?:Prefill|Decode) out of memory\. Try to lower"
    r"|cudaMalloc error out of memory \[2\]|Exception: \[ONNXRuntimeError\].*BFCArena::.*Failed to allocate "
    r"memory for requested buffer"
)
_LIBRARY = re.compile(r"(?P<status>(?:CUBLAS|CUDNN|CUSOLVER|HIPBLAS|MIOPEN)_STATUS_ALLOC_FAILED)")


@dataclass(frozen=True, slots=True)
class _Request:
    """What the allocator said, in MiB. `reserved` is all that torch holds, `unallocated` the part of it that
    no tensor uses."""

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

        # torch before 1.5 said "cached" for what it held beyond the tensors.
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
        """What neither this process holds nor is free."""
        if self.total is None or self.free is None or self.reserved is None:
            return None
        return max(0.0, self.total - self.free - self.reserved)


class CudaOutOfMemory(Rule):
    """The GPU's memory was not enough for what the step needs.

    What it sees
        The allocator's message in a log, in every wording of torch ("CUDA out of memory. Tried to allocate
        …", also HIP), the driver's "CUDA error: out of memory", and CUBLAS_STATUS_ALLOC_FAILED or
        CUDNN_STATUS_ALLOC_FAILED; the words of JAX, TensorFlow, Caffe2, CuPy, spconv and others. What was
        tried, the total, what was free, allocated and reserved are read from it.
    Why it matters
        Parameters, gradients, optimizer state and activations must fit on the device together; the run cannot
        go on. Activations grow with the micro-batch, the rest does not.
    When it stays silent
        On host memory (see host-out-of-memory): another pool, another remedy. It is info when the error was
        caught and the training went on, as a batch-size finder does, or when the run completed.
    What to do
        Halve the micro-batch and double gradient accumulation: the same global batch in less memory. Then
        bf16, activation checkpointing, or sharding (FSDP, ZeRO). `expandable_segments` only helps where much
        is reserved but unallocated. Where other processes hold the memory, take a free GPU instead. More
        `--mem` does nothing: it is host memory.
    Sources
        torch CUDACachingAllocator messages (1.x to 2.13); CUDA semantics: memory management; NVIDIA cuBLAS
        status codes.
    """

    code = "MEM001"
    name = "cuda-out-of-memory"
    cause = "cuda_oom"
    severity = Severity.CRITICAL
    needs = (frozenset({Need.LOG}),)
    causal_rank = 2
    thresholds = (
        Threshold(
            "fragmented_share",
            0.10,
            "of the device's memory",
            "below it, what is reserved but unallocated is too little for expandable segments to matter",
        ),
        Threshold(
            "others_share",
            0.25,
            "of the device's memory",
            "a CUDA context takes about 0.5 GiB; a quarter of the device is another process's data",
        ),
    )
    signatures = (
        Signature("MEM001", "allocator", ("out of memory. Tried",), _ALLOCATOR),
        Signature(
            "MEM001",
            "runtime",
            (
                "rror: out of memory",
                "]: out of memory",
                "Error out of memory at line",
                "CUFFT_ALLOC_FAILED",
                "(2) : out of memory",
                "failed: out of memory",
                "failure 2: out of memory",
                "ut of memory error on GPU",
                "EigenAllocator for GPU ran out",
                ": CUDA out of memory",
                ": HIP out of memory",
                "MPS backend out of memory",
                "Allocation on device",
                "KV cache",
                "desired GPU memory",
                "RESOURCE_EXHAUSTED: Failed to allocate",
                "esource exhausted: ",
                "error == cudaSuccess",
                "failed with error 2",
                "cudaErrorMemoryAllocation",
                "hipErrorOutOfMemory",
                "CUDA_ERROR_OUT_OF_MEMORY",
                "RESOURCE_EXHAUSTED: Out of memory",
                "OOM when allocating tensor",
                "OutOfMemoryError: ",
                "No available memory for the cache blocks",
                "increase --mem-fraction-static",
                "No executable batch size",
                "): out of memory",
                "CUDA: out of memory",
                "'out of memory'",
                "Out of GPU memory",
                "error out of memory",
                "for requested buffer",
                "bytes of device memory",
                "memory isn't enough",
                "[CUDA] out of memory",
                "Prefill out of memory",
                "Decode out of memory",
            ),
            _RUNTIME,
        ),
        Signature("MEM001", "library", ("_STATUS_ALLOC_FAILED",), _LIBRARY),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = hits_of(snapshot, self.code, "allocator", "runtime", "library")
        if not hits:
            return
        uncaught = [hit for hit in hits if not _went_on(hit, snapshot)]
        first = earliest(uncaught or hits)
        request = _Request.of(first)
        ranks = sorted({hit.rank for hit in uncaught or hits if hit.rank is not None})
        gpu = first.fields.get("gpu")
        where = f"GPU {gpu}" if gpu else "the GPU"
        summary = (
            f"CUDA out of memory on {where}"
            + (f" ({ranks_text(ranks)})" if ranks else "")
            + _need_text(request)
        )
        if not uncaught:
            summary += "; it was caught and the run went on"
        yield Hit(
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

    def _evidence(self, first: LogHit, request: _Request, num_hits: int) -> Iterable[Evidence]:
        yield quote(first)
        if frame := own_frame(first):
            yield frame
        if request.tried is not None:
            yield Evidence("asked for in one allocation", value=request.tried, unit="MiB")
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
                "Take a GPU that nobody else uses: other processes hold much of this one (nvidia-smi "
                "lists them)"
            )
        yield from smaller_micro_batch(run)
        if run is not None and run.parameters.get("activation_checkpointing") is False:
            yield Fix(
                "Activation checkpointing: less memory for about a third more compute",
                {"activation_checkpointing": True},
            )
        if run is not None and run.parameters.get("precision") in ("fp32", "float32", "32"):
            yield from bf16(run, "bf16 activations: about half their memory")
        yield from sharding(run)
        if self._is_fragmented(request):
            yield Fix(
                "Expandable segments: much is reserved but unallocated, so the memory is fragmented",
                {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            )

    def _is_fragmented(self, request: _Request) -> bool:
        return (
            request.unallocated is not None
            and request.total is not None
            and request.unallocated >= self.values["fragmented_share"] * request.total
            and request.unallocated >= (request.tried or 0.0)
        )

    def _is_held_by_others(self, request: _Request) -> bool:
        others = request.held_by_others
        return (
            others is not None
            and request.total is not None
            and others >= self.values["others_share"] * request.total
        )


def _need_text(request: _Request) -> str:
    if request.tried is None:
        return ""
    text = f": {size_text(request.tried)} more were needed"
    if request.total is not None and request.tried > request.total:
        return f"{text} at once, the device has {size_text(request.total)} in all"
    if request.free is not None:
        text += f", {size_text(request.free)} were free"
    if request.total is not None:
        text += f" of {size_text(request.total)}"
    return text


def _went_on(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """Whether the error was caught: the run completed, or, without a traceback, losses follow in the same
    log.

    Losses that follow a traceback prove nothing: buffered output is flushed when a dying process exits.
    """
    if snapshot.state == "COMPLETED":
        return True
    return not hit.traceback and losses_after(hit, snapshot)
