"""The wordings of many libraries for a GPU that they cannot use, that fails, or that lacks a feature."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.rules.examples import of_a_whole_log

WORDINGS = {
    "cuda_unavailable": [
        "NotImplementedError: Unsloth cannot find any torch accelerator? You need a GPU.",
        "RuntimeError: GPU is required to quantize or run quantize model.",
        (
            "RuntimeError: CUDA is required but not available for bitsandbytes. Please consider installing "
            "the multi-platform enabled version"
        ),
        "RuntimeError: Cannot access accelerator device when none is available.",
        "pynvml.nvml.NVMLError_DriverNotLoaded: Driver Not Loaded",
        "lightgbm.basic.LightGBMError: CUDA Tree Learner was not enabled in this build.",
        "openmm.OpenMMException: No compatible CUDA device is available",
        "cudaGetDeviceCount failed no CUDA-capable device is detected",
        (
            "FATAL ERROR: CUDA error cudaGetDeviceCount(&deviceCount) in file src/DeviceCUDA.C\n on Pe 0 "
            "(n7): no CUDA-capable device is detected"
        ),
        "RuntimeError: Backend 'gpu' failed to initialize: FAILED_PRECONDITION: No visible GPU devices.",
        (
            "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are "
            "present. Platforms present are: cpu"
        ),
        (
            "InvalidArgumentError: Cannot assign a device for operation MatMul: {{node MatMul}}was "
            "explicitly assigned to /device:GPU:0 but available devices are [ /device:CPU:0 ]."
        ),
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        "RuntimeError: Unable to proceed, no GPU resources available",
        (
            "RuntimeError: DeepSpeed JIT builder for 'fused_adam' found no CUDA devices. Set "
            "TORCH_CUDA_ARCH_LIST or make GPUs visible."
        ),
        (
            "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: \n[100] Call to cuInit results "
            "in CUDA_ERROR_NO_DEVICE:"
        ),
        (
            "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: \n\nCUDA driver library cannot "
            "be found."
        ),
        (
            "ERROR (nnet3-train[5.5.1]:SelectGpuId():cu-device.cc:181) No CUDA GPU detected!, diagnostics: "
            "cudaError_t 100 : no device"
        ),
        "RuntimeError: No accelerator (CUDA, XPU, HPU) is available.",
        "AssertionError: Megatron requires CUDA.",
        "ValueError: No GPU devices detected",
        "Cannot run short-ranged nonbonded interactions on a GPU because no GPU is\ndetected.",
        (
            "DGLError: [10:11:12] /opt/dgl/src/runtime/c_runtime_api.cc:82: Check failed: allow_missing: "
            "Device API cuda is not enabled. Please install"
        ),
        "ValueError: The device should not be 'gpu', since PaddlePaddle is not compiled with CUDA",
    ],
    "cuda_version_mismatch": [
        (
            "RuntimeError: Unable to initialize backend 'cuda': Unable to use CUDA because of the following "
            "issues with CUDA components:\nOutdated CUDA installation found."
        ),
        (
            "RuntimeError: CUDA version mismatch! DeepSpeed ops were compiled and installed with a different "
            "version than what is being used"
        ),
        (
            "      RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.  Note: make sure "
            "nvcc has a supported version"
        ),
    ],
    "no_kernel_image": [
        (
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
            "capability: 89. Current capability: 80."
        ),
        (
            "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 "
            "or 8.9, or ROCm MI300+"
        ),
        (
            "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA "
            "device capability: 75"
        ),
        "AssertionError: Device compute capability 8.9 or higher required for FP8 execution.",
        (
            "NotImplementedError: No operator found for `memory_efficient_attention_forward` with "
            "inputs:\n`flshattF@v2.3.6` is not supported because:\n    requires device with capability > (8, "
            "0) but your GPU has capability (7, 5) (too old)"
        ),
        "RuntimeError: CUDA error: device kernel image is invalid",
        "CUDADriverError: CUDA_ERROR_INVALID_SOURCE: device kernel image is invalid",
        (
            "RuntimeError: radix_sort: failed on 1st step: cudaErrorInvalidDeviceFunction: invalid device "
            "function"
        ),
        (
            "rocBLAS error: Cannot read /env/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU "
            "arch : gfx1031\nAborted (core dumped)"
        ),
        (
            "InternalError: {{function_node __wrapped__Cast_device_GPU:0}} 'cuLaunchKernel(function, gridX, "
            "nullptr)' failed with 'CUDA_ERROR_INVALID_HANDLE' [Op:Cast]"
        ),
    ],
    "cublas_cudnn_error": [
        (
            "InternalError: cuDNN launch failure : input shape ([64,32,14,14]) filter shape ([3,3,32,64]) "
            "[Op:Conv2D]"
        ),
        (
            "F cuda_dnn.cc:534] Check failed: cudnnSetTensorNdDescriptor(handle_.get(), nd) == "
            "CUDNN_STATUS_SUCCESS (3 vs. 0)batch_descriptor\nAborted (core dumped)"
        ),
        "cupy_backends.cuda.libs.curand.CURANDError: CURAND_STATUS_INITIALIZATION_FAILED",
        (
            "RuntimeError: jaxlib/cusolver_kernels.cc:44: operation cusolverDnCreate(&handle) failed: "
            "cuSolver internal error"
        ),
        "XlaRuntimeError: UNKNOWN: Failed to determine best cudnn convolution algorithm for:",
        (
            "InternalError: Exception encountered when calling layer.\n\n{{function_node __wrapped__MatMul}} "
            "Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]"
        ),
        (
            "RuntimeError: CUDA error: insufficient resources when calling `cusparseSpGEMM_workEstimation( "
            "handle, opA, opB)`"
        ),
        (
            "RuntimeError: /te/common/gemm/cublaslt_gemm.cu:207 in function cublas_gemm: cuBLAS Error: the "
            "requested functionality is not supported"
        ),
        "RuntimeError: miopenStatusUnknownError",
        "RuntimeError: CuDNN error: CUDNN_STATUS_SUCCESS",
        (
            "XlaRuntimeError: INTERNAL: jaxlib/gpu/solver_handle_pool.cc:37: operation "
            "gpusolverDnCreate(&handle) failed: cuSolver internal error"
        ),
    ],
    "illegal_memory_access": [
        "RuntimeError: Triton Error [CUDA]: misaligned address",
    ],
    "cuda_launch_fork": [
        (
            "RuntimeError: CUDA has been initialized before the `notebook_launcher` could create a forked "
            "subprocess."
        ),
        (
            "ValueError: To launch a multi-GPU training from your notebook, you need to avoid running any "
            "instruction using `torch.cuda` in any cell."
        ),
        (
            "RuntimeError: Lightning can't create new processes if CUDA is already initialized. Did you "
            "manually call `torch.cuda.*` functions"
        ),
        "numba.cuda.cudadrv.error.CudaDriverError: CUDA initialized before forking",
        (
            "  what():  [10:11:12] src/storage/storage.cc:65: Check failed: e == cudaSuccess (3 vs. 0) : "
            "CUDA: initialization error"
        ),
    ],
    "device_mismatch": [
        "RuntimeError: Encountered different devices in metric calculation (see stacktrace for details).",
        "ValueError: Array device must be same as the current device: array device = 1 while current = 0",
        (
            "InvalidArgumentError: Tensors on conflicting devices: cannot compute Add as input #0 was "
            "expected to be on GPU:0 but is actually on CPU:0"
        ),
        (
            "RuntimeError: grid_sampler(): expected input and grid to be on same device, but input is on "
            "cuda:0 and grid is on cpu"
        ),
        (
            "RuntimeError: expected self and mask to be on the same device, but got mask on cpu and self on "
            "cuda:0"
        ),
        "RuntimeError: q must be on CUDA",
        "RuntimeError: src must be CUDA tensor",
        "RuntimeError: Tensors must be CUDA and dense",
        "RuntimeError: Expected x.is_cuda() to be true, but got false.",
        (
            'DGLError: Cannot assign node feature "feat" on device cpu to a graph on device cuda:0. Call '
            "DGLGraph.to() to copy the graph"
        ),
        (
            "ValueError: Received incompatible devices for jitted computation. Got argument x of f with "
            "shape float32[8] and device ids [0] on platform GPU"
        ),
        (
            "InvalidArgumentError: Trying to access resource _AnonymousVar12 located in device /device:GPU:1 "
            "from device /device:GPU:0"
        ),
        (
            "RuntimeError: All input tensors need to be on the same GPU, but found some tensors to not be on "
            "a GPU:"
        ),
    ],
    "invalid_device_ordinal": [
        (
            "ValueError: The number of required GPUs exceeds the total number of available GPUs in the "
            "placement group."
        ),
        (
            "RuntimeError: cuda runtime error (101) : invalid device ordinal at "
            "/pytorch/torch/csrc/cuda/Module.cpp:59"
        ),
        "CUDARuntimeError: cudaErrorInvalidDevice: invalid device ordinal",
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid "
            "device ordinal'"
        ),
        "ValueError: You requested to find 4 devices but this machine only has 2 GPUs.",
        (
            "InvalidArgumentError: 'visible_device_list' listed an invalid Device id '1' but visible device "
            "count is 1"
        ),
        (
            "ValueError: (InvalidArgument) Device id must be less than GPU count, but received id is: 1. GPU "
            "count is: 1."
        ),
    ],
    "driver_too_old": [
        (
            "[03/11/2024-10:11:12] [TRT] [W] CUDA initialization failure with error: 35. Please check your "
            "CUDA installation"
        ),
    ],
    "all_gpus_busy": [
        (
            "ERROR (nnet3-chain-train[5.5.1]:SelectGpuId():cu-device.cc:207) Failed to create CUDA context, "
            "no more unused GPUs? "
        ),
    ],
    "xid_hw_error": [
        "HW Exception by GPU node-4 (Agent handle: 0x55c8e0b3d2a0) reason :GPU Hang\nAborted (core dumped)",
    ],
}
HEALTHY = {
    "TensorFlow, which has no BLAS at first": """
        W tensorflow/stream_executor/stream.cc:1455] attempting to perform BLAS operation using StreamExecutor without BLAS support
        step 1 loss 0.3
        step 2 loss 0.2""",
    "JAX goes on without a GPU": """
        ERROR:jax._src.xla_bridge:Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda12.initialize()
        Traceback (most recent call last):
          File "/env/lib/python3.11/site-packages/jax/_src/xla_bridge.py", line 438, in discover_pjrt_plugins
            plugin_module.initialize()
        RuntimeError: Unable to use CUDA because of the following issues with CUDA components:
        Outdated cuDNN installation found.
        Version JAX was built against: 90101
        The local installation version must be no lower than 9100.
        WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.
        step 1 loss 0.3
        step 2 loss 0.2""",
    "xformers tells what it has": """
        `flshattF@v2.3.6` is not supported because:
            requires device with capability > (8, 0) but your GPU has capability (7, 5) (too old)
        step 1 loss 0.3
        step 2 loss 0.2""",
    "a monitor that finds no driver": """
        GPU monitoring is off: NVMLError_LibraryNotFound: NVML Shared Library Not Found
        accuracy 0.71""",
    "Kaldi waits for a GPU": """
        LOG (nnet3-chain-train[5.5.1]:SelectGpuId():cu-device.cc:204) Waiting 2/5 seconds before trying to get a GPU...
        # Ended (code 0) at Mon Mar 11 12:10:14 CET 2024, elapsed time 612 seconds""",
    "where a model's inputs are": """
        UserWarning: You are calling .generate() with the `input_ids` being on a device type different than your model's device.
        WARNING: all inputs must be on the same device, moving them
        step 1 loss 0.3
        step 2 loss 0.2""",
}


@pytest.mark.parametrize(("cause", "log"), [(cause, log) for cause, logs in WORDINGS.items() for log in logs])
def test_a_cause_is_known_in_all_its_words(cause: str, log: str) -> None:
    assert of_a_whole_log(*log.split("\n"))[:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_stays_silent(name: str) -> None:
    assert not of_a_whole_log(*dedent(HEALTHY[name]).strip("\n").split("\n"))
