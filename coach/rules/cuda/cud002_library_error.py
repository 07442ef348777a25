"""CUD002: cuBLAS, cuDNN or another of CUDA's libraries refused a call."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class CudaLibraryError(EndingRule):
    """One of CUDA's libraries (cuBLAS, cuDNN, cuSOLVER, cuSPARSE, cuFFT) refused a call.

    What it sees
        The status that the library returned: CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_EXECUTION_FAILED,
        "cuDNN error: CUDNN_STATUS_MAPPING_ERROR" and so on, "Unable to find a valid cuDNN algorithm", "unable
        to find an engine", and DeepSpeed's "!!!! kernel execution error".
    Why it matters
        The step cannot be computed. The status is often misleading: kernels run asynchronously, so an earlier
        index out of range or nearly full memory may show up here first.
    When it stays silent
        On ..._STATUS_ALLOC_FAILED, which is out of memory (MEM001). The finding is info if the program went
        on.
    What to do
        Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then shows the real line. NOT_INITIALIZED and "no
        valid algorithm" mostly mean that the GPU's memory was nearly full: halve the micro-batch.
        NOT_SUPPORTED and INVALID_VALUE mean shapes or dtypes that the library does not support. If other
        programs fail on the same node too, report it to the site.
    Sources
        cuBLAS and cuDNN API references: status codes; torch/aten CUDABlas, cudnn Exceptions.
    """

    code = "CUD002"
    name = "cuda-library-error"
    cause = "cublas_cudnn_error"
    general = (
        Fix(
            "Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then shows the failing line",
            {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
        ),
    )
    sentences = by_field(
        otherwise="A CUDA library refused a call: {status}",
    )
