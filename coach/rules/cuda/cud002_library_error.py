"""CUD002: cuBLAS, cuDNN or another of CUDA's libraries refused a call."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_STATUS = re.compile(
    UNHEEDED + r".*?(?P<status>(?:CU(?:BLAS|DNN|SOLVER|SPARSE|FFT|RAND|TENSOR)|HIPBLAS|MIOPEN"
    r"|ROCBLAS)_STATUS_(?!SUCCESS|ALLOC_FAILED)[A-Z_]*[A-Z]"
    r"|CUFFT_(?!SUCCESS|ALLOC_FAILED|C2|R2|Z2|D2|FORWARD|INVERSE)[A-Z_]+)"
)
_ALGORITHM = re.compile(
    r"(?:Error: .{0,300}?|^\{\{function_node .*?|(?=!!!! )|Check failed: .*?== )(?P<status>CU(?:DNN"
    r"|BLAS)_STATUS_SUCCESS \([1-9]\d* vs\. 0\)|cuDNN Frontend error|cuDNN failed to initialize"
    r"|Unable to find a valid cuDNN algorithm to run convolution"
    r"|cublas runtime error|Blas \w+ launch failed|DNN library (?:initialization failed|is not found)"
    r"|BLAS operation using StreamExecutor without BLAS support"
    r"|(?:FIND|GET) was unable to find an engine to execute this computation|No algorithm worked!"
    r"|!!!! kernel execution error"
    r"|in function .{1,80}?: cu(?:BLAS|DNN) Error: (?!.*(?:ALLOC_FAILED|allocation failed))"
    r"|miopenStatus(?!Success|AllocFailed)\w+|[Cc]uDNN error: CUDNN_STATUS_SUCCESS"
    r"|operation (?:gpu|cu)(?:solver|blas|sparse|dnn)\w+\(.{0,200}?\) failed|cuDNN (?:\w+ )*launch failure : "
    r"|Failed to determine best cudnn convolution algorithm"
    r"|(?:insufficient resources|an internal operation failed|(?:the )?library (?:was )?not initialized) "
    r"when calling `(?:cu|hip)sparse\w+)"
)


class CudaLibraryError(EndingRule):
    """One of CUDA's libraries (cuBLAS, cuDNN, cuSOLVER, cuSPARSE, cuFFT) refused a call.

    What it sees
        The status that the library returned: CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_EXECUTION_FAILED,
        "cuDNN error: CUDNN_STATUS_MAPPING_ERROR" and so on, "Unable to find a valid cuDNN algorithm", "unable
        to find an engine", and DeepSpeed's "!!!! kernel execution error".
    Why it matters
        The step cannot be computed. The status rarely is the whole story: kernels run asynchronously, so an
        index out of range or memory that was nearly full shows up here first.
    When it stays silent
        On ..._STATUS_ALLOC_FAILED, which is out of memory (MEM001). Info when the program went on.
    What to do
        Run once with CUDA_LAUNCH_BLOCKING=1: the line that then fails is the one. NOT_INITIALIZED and "no
        valid algorithm" mostly mean that the GPU's memory was nearly full: halve the micro-batch.
        NOT_SUPPORTED and INVALID_VALUE are shapes or types that the library cannot do. Where other programs
        fail on the same node too, tell the site.
    Sources
        cuBLAS and cuDNN API references: status codes; torch/aten CUDABlas, cudnn Exceptions.
    """

    code = "CUD002"
    name = "cuda-library-error"
    cause = "cublas_cudnn_error"
    consequence_of = ("CUD004", "CUD003", "MEM001", "HDW001", "HDW002")
    signatures = (
        Signature("CUD002", "status", ("_STATUS_", "CUFFT_"), _STATUS),
        Signature(
            "CUD002",
            "algorithm",
            (
                "cuDNN algorithm",
                "unable to find an engine",
                "cuDNN Frontend error",
                "cuDNN failed to",
                "cublas runtime error",
                "Blas ",
                "DNN library",
                "without BLAS support",
                "No algorithm worked",
                "!!!! kernel execution error",
                "cuBLAS Error: ",
                "cuDNN Error: ",
                "miopenStatus",
                "uDNN error: CUDNN_STATUS_SUCCESS",
                "operation gpu",
                "operation cu",
                "launch failure : ",
                "best cudnn convolution",
                "_STATUS_SUCCESS (",
                " when calling `cusparse",
                " when calling `hipsparse",
            ),
            _ALGORITHM,
        ),
    )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        return f"A CUDA library refused a call: {hit.fields['status']}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix(
            "Run once with CUDA_LAUNCH_BLOCKING=1: the error then stands at its own line",
            {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        )
        if hit is not None and re.search(
            r"NOT_INITIALIZED|INTERNAL_ERROR|nable to find", hit.fields["status"]
        ):
            yield Fix("See whether the GPU's memory was nearly full: a smaller micro-batch tells")
