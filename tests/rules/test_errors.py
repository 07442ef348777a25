"""Errors of torch, CUDA, NCCL, gloo and DeepSpeed: each as it is really written, the same words in harmless
lines, and their causes."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import causes, diagnose_log, diagnose_whole, of_a_whole_log, run, scan, tail_of
from tests.rules.recorded import RECORDINGS, diagnose

ENDED = {
    "shape-mismatch": ("TOR001", "shape_mismatch"),
    "stacked-samples": ("TOR001", "shape_mismatch"),
    "state-dict-mismatch": ("TOR002", "state_dict_mismatch"),
    "dtype-mismatch": ("TOR004", "dtype_mismatch"),
    "compile-failed": ("TOR003", "torch_compile_error"),
    "device-mismatch": ("CUD006", "device_mismatch"),
    "inplace": ("DST023", "ddp_inplace_or_marked_ready_twice"),
    "ready-twice": ("DST023", "ddp_inplace_or_marked_ready_twice"),
    "unused-parameters": ("DST010", "ddp_unused_parameters"),
    "no-process-group": ("DST001", "pg_not_initialized"),
    "rank-variables-missing": ("DST022", "env_vars_missing"),
    "local-rank-missing": ("DST022", "env_vars_missing"),
    "port-in-use": ("DST002", "port_in_use"),
    "rendezvous-nobody": ("DST003", "rendezvous_timeout"),
    "rendezvous-unreachable": ("DST003", "rendezvous_timeout"),
    "hostname-resolution": ("DST021", "hostname_resolution"),
    "hostname-of-a-download": ("ENV021", "no_network"),
    "gloo-peer-died": ("DST020", "gloo_connect"),
    "gloo-timeout": ("DST020", "gloo_connect"),
    "collective-mismatch": ("DST006", "rank_mismatch_collective"),
    "collective-sizes": ("DST006", "rank_mismatch_collective"),
    "waited-apart": ("DST006", "rank_mismatch_collective"),
    "fsdp": ("DST024", "fsdp_error"),
    "fsdp-mixed": ("DST024", "fsdp_error"),
    "extension-build": ("DSP001", "deepspeed_build"),
    "deepspeed-config": ("DSP002", "deepspeed_config_error"),
}
DEADLY = {
    "host_oom": [
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "train.sh: fork: Cannot allocate memory",
        (
            "(raylet) [2025-08-25 19:21:02,241 E 11 11] (raylet) node_manager.cc:3064: 12 Workers (tasks / "
            "actors) killed due to memory pressure (OOM)"
        ),
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[9] and type float on "
            "/job:localhost/device:CPU:0 by allocator cpu"
        ),
    ],
    "cuda_oom": [
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
            "allocate 1234 bytes."
        ),
        (
            "tensorflow.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[6] on "
            "/job:localhost/device:GPU:0"
        ),
        (
            "ResourceExhaustedError (see above for traceback): OOM when allocating tensor of shape "
            "[563354,256] and type float"
        ),
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234 bytes.",
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 1234 bytes.",
        (
            "RuntimeError: [enforce fail at event_gpu.cc:17] error == cudaSuccess. 2 vs 0. Error at: "
            "/caffe2/core/event_gpu.cc:17: out of memory "
        ),
        (
            "RuntimeError: TensorStorage /io/include/tensorview/tensor.h 168\ncuda failed with error 2 out "
            "of memory. use CUDA_LAUNCH_BLOCKING=1"
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes (allocated so far: "
            "2,048 bytes)."
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
            "when …"
        ),
    ],
    "segfault": [
        "[1]    12345 segmentation fault (core dumped)  python train.py",
        "fish: Job 1, 'python train.py' terminated by signal SIGSEGV (Address boundary error)",
    ],
    "nan_loss": [
        (
            "(trainer:404) WARNING: The gradients at all steps are invalid in this epoch. Something seems "
            "wrong. This training was stopped at 2epoch"
        ),
        "FloatingPointError: Predicted boxes or scores contain Inf/NaN. Training has diverged.",
        "ValueError: Detected nan and/or inf values in `layer.weight`. Check your forward pass.",
        "RuntimeError: (PreconditionNotMet) There are NAN or INF (num_nan=0, num_inf=4, num_zero=0) in [x].",
    ],
    "file_not_found": ["slurmstepd: error: execve(): /home/u/train.sh: No such file or directory"],
    "module_not_found": ["train.py: /usr/bin/python: No module named torch"],
    "no_kernel_image": [
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "torch.AcceleratorError: CUDA error: invalid device function",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        (
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your "
            "Tesla T4 GPU has …"
        ),
    ],
    "cublas_cudnn_error": [
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, "
            "opa, opb, m, n, k)`"
        ),
        "RuntimeError: cuDNN error: CUDNN_STATUS_MAPPING_ERROR",
        "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
        (
            "errors_impl.UnknownError: Failed to get convolution algorithm. This is probably because cuDNN "
            "failed to initialize"
        ),
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
        "RuntimeError: GET was unable to find an engine to execute this computation",
        (
            "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED, when calling "
            "`cusolverDnSgetrf`"
        ),
    ],
    "illegal_memory_access": [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "  what():  CUDA error: misaligned address",
        "RuntimeError: CUDA error: unspecified launch failure",
        (
            "Memory access fault by GPU node-4 (Agent handle: 0x5600) on address 0x7f0. Reason: Page not "
            "present or supervisor privilege."
        ),
    ],
    "device_side_assert": ["RuntimeError: CUDA error: device-side assert triggered"],
    "cuda_launch_fork": [
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        ),
        (
            "(VllmWorkerProcess pid=4821) ERROR 03-10 11:30:29 worker.py:242] RuntimeError: Cannot "
            "re-initialize CUDA in forked subprocess. To …"
        ),
        "RuntimeError: CUDA error: initialization error",
    ],
    "invalid_device_ordinal": [
        "AssertionError: Invalid device id",
        (
            "RuntimeError: Attempting to deserialize object on CUDA device 2 but torch.cuda.device_count() "
            "is 1. Please use …"
        ),
    ],
    "dtype_mismatch": [
        "RuntimeError: expected scalar type Half but found Float",
        (
            "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) "
            "should be the same"
        ),
        (
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.HalfTensor) should be the "
            "same or input should be a MKLDNN tensor …"
        ),
        "RuntimeError: Input type (CUDAFloatTensor) and weight type (CUDAHalfTensor) should be the same",
        (
            "RuntimeError: Input type (CUDABFloat16Type) and weight type (torch.cuda.FloatTensor) should be "
            "the same"
        ),
        "RuntimeError: Input type (float) and bias type (c10::Half) should be the same",
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
        "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != c10::BFloat16",
        (
            "RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: float "
            "key.dtype: float and value.dtype: c10::Half instead."
        ),
        (
            "RuntimeError: Expected object of scalar type Long but got scalar type Float for argument #2 "
            "'target'"
        ),
        (
            "RuntimeError: Expected object of type torch.cuda.LongTensor but found type "
            "torch.cuda.FloatTensor for argument #2 'target'"
        ),
        (
            "RuntimeError: Expected object of type torch.FloatTensor but found type torch.DoubleTensor for "
            "argument #2 'mat2'"
        ),
        (
            "RuntimeError: Expected object of type Variable[torch.cuda.FloatTensor] but found type "
            "Variable[torch.cuda.DoubleTensor] for argument #1 'mat1'"
        ),
        "RuntimeError: Expected object of type torch.cuda.HalfTensor but got torch.cuda.FloatTensor",
        (
            "RuntimeError: Expected tensor for argument #1 'indices' to have scalar type Long; but got "
            "torch.cuda.FloatTensor instead (while checking …)"
        ),
        "RuntimeError: Expected tensor for argument #1 'input' to have the same type as tensor for argument "
        "#2 'weight'; but type torch.cuda.HalfTensor "
        "does not equal torch.cuda.FloatTensor (while checking arguments for cudnn_convolution)",
        "TypeError: expected torch.LongTensor (got torch.FloatTensor)",
        "RuntimeError: expected device cuda:0 and dtype Float but got device cuda:0 and dtype Half",
        "RuntimeError: expected type torch.cuda.FloatTensor but got torch.cuda.HalfTensor",
        "RuntimeError: Found dtype Double but expected Float",
        "RuntimeError: expected dtype float for end but got dtype c10::BFloat16",
        "RuntimeError: Expected out tensor to have dtype c10::BFloat16, but got float instead",
        "RuntimeError: result type Float can't be cast to the desired output type Long",
        (
            "RuntimeError: Index put requires the source and destination dtypes match, got Half for the "
            "destination and Float for the source."
        ),
    ],
    "device_mismatch": [
        (
            "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.HalfTensor) should be "
            "the same"
        ),
        "RuntimeError: Input type (CUDAHalfType) and weight type (CPUHalfType) should be the same",
        "RuntimeError: Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same",
        (
            "RuntimeError: Expected object of type torch.FloatTensor but found type torch.cuda.FloatTensor "
            "for argument #2 'weight'"
        ),
        "RuntimeError: Expected object of backend CPU but got backend CUDA for argument #4 'mat1'",
        "RuntimeError: expected device cuda:0 and dtype Float but got device cpu and dtype Float",
        "RuntimeError: expected device cuda:0 but got device cuda:1",
        "TypeError: expected torch.cuda.FloatTensor (got torch.FloatTensor)",
        "RuntimeError: Expected tensor for argument #1 'input' to have the same type as tensor for argument "
        "#2 'weight'; but type torch.FloatTensor "
        "does not equal torch.cuda.FloatTensor (while checking arguments for cudnn_convolution)",
        (
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
            "cuda:1 and cuda:0!"
        ),
        (
            "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be "
            "the same"
        ),
        (
            "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        ),
        "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        (
            "RuntimeError: module must have its parameters and buffers on device cuda:0 (device_ids[0]) but "
            "found one of them on device: cpu"
        ),
        (
            "RuntimeError: arguments are located on different GPUs at "
            "/pytorch/aten/src/THC/generic/THCTensorIndex.cu:519"
        ),
        "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
    ],
    "shape_mismatch": [
        (
            "RuntimeError: The size of tensor a (34) must match the size of tensor b (32) at non-singleton "
            "dimension 3"
        ),
        "RuntimeError: shape '[4, 64, 64]' is invalid for input of size 40550400",
        (
            "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 224, 224] to "
            "have 3 channels, but got 1 channels"
        ),
        "ValueError: Expected input batch_size (32) to match target batch_size (31).",
        "ValueError: operands could not be broadcast together with shapes (3,) (4,)",
        (
            "RuntimeError: size mismatch, m1: [32 x 512], m2: [256 x 10] at "
            "/pytorch/aten/src/THC/generic/THCTensorMathBlas.cu:283"
        ),
        "ValueError: Target size (torch.Size([8])) must be the same as input size (torch.Size([8, 1]))",
    ],
    "state_dict_mismatch": [
        "RuntimeError: Error(s) in loading state_dict for ResNet:",
        (
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
            "optimizer's group"
        ),
    ],
    "torch_compile_error": [
        "torch._dynamo.exc.InternalTorchDynamoError: TypeError: 'NoneType' object is not subscriptable",
        (
            "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via "
            "CC environment variable."
        ),
        "triton.compiler.errors.CompilationError: at 12:8:",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        (
            "RuntimeError: Cannot find a working triton installation. Either the package is not installed or "
            "it is too old."
        ),
    ],
    "pg_not_initialized": [
        (
            "RuntimeError: Default process group has not been initialized, please make sure to call "
            "init_process_group."
        ),
        "AssertionError: Default process group is not initialized",
    ],
    "port_in_use": [
        (
            "RuntimeError: The server socket has failed to listen on any local network address. The server "
            "socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
        ),
        "OSError: [Errno 98] Address already in use",
        "[E socket.cpp:462] [c10d] The server socket has failed to listen on any local network address.",
    ],
    "rendezvous_timeout": [
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to "
            "connect to (node1, 29500)."
        ),
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
            "store_based_barrier_key:1 (world_size=2, …)"
        ),
        (
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
            "store has failed."
        ),
        (
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/8 clients "
            "joined."
        ),
    ],
    "nccl_error": [
        (
            "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled system "
            "error, NCCL version 2.7.8"
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: "
            "../torch/csrc/distributed/c10d/NCCLUtils.cpp:76, unhandled cuda error (run with NCCL_DEBUG=INFO "
            "for details), NCCL version 2.20.5"
        ),
        "RuntimeError: NCCL Error 2: unhandled system error",
        "node1:88:120 [0] include/alloc.h:48 NCCL WARN Cuda failure 'out of memory'",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    ],
    "nccl_network": [
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
            "prematurely."
        ),
        (
            "node1:88:120 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
            "10.0.0.7<43> with error 12, opcode 0, len 0, vendor err 129"
        ),
        (
            "[node1:88] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend "
            "0x81 hw_synd 0/0)"
        ),
        (
            "node1:88:120 [0] misc/socket.cc:50 NCCL WARN socketStartConnect: Connect to 10.0.0.8<5112> "
            "failed : No route to host"
        ),
        "Net : Call to recv from 10.200.84.247<58355> failed : Broken pipe",
    ],
    "nccl_timeout": [
        (
            "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804406 milliseconds before timing out."
        ),
        (
            "[rank3]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Heartbeat monitor timed out! Process will "
            "be terminated after dumping debug info."
        ),
    ],
    "rank_mismatch_collective": [
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 10 params, while rank 1 "
            "has inconsistent 8 params."
        ),
        "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 30000 ms",
    ],
    "gloo_connect": [
        (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:589] Connection closed by "
            "peer [10.0.0.7]:26496"
        ),
        (
            "RuntimeError: Gloo connectFullMesh failed with "
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
        ),
        (
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != "
            "nullptr. Unable to find address for: ib0"
        ),
    ],
    "hostname_resolution": [
        (
            "RuntimeError: The client socket has failed to connect to any network address of (node9, 29500). "
            "The IPv4 network addresses of (node9, 29500) cannot be retrieved (gai error: -2 - Name or "
            "service not known)."
        ),
        "ssh: Could not resolve hostname node9: Name or service not known",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    ],
    "env_vars_missing": [
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
            "MASTER_ADDR expected, but not set"
        ),
        "KeyError: 'SLURM_PROCID'",
    ],
    "fsdp_error": [
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        "Exception: Could not find the transformer layer class to wrap in the model.",
        "RuntimeError: 'weight' must be 2-D",
    ],
    "deepspeed_build": [
        "RuntimeError: Error building extension 'fused_adam'",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        (
            "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to "
            "compile CUDA op(s)"
        ),
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        (
            "ImportError: /home/user/.cache/torch_extensions/py311_cu128/fused_adam/fused_adam.so: undefined "
            "symbol: _ZN3c10"
        ),
    ],
    "cuda_version_mismatch": [
        (
            "RuntimeError: The detected CUDA version (12.8) mismatches the version that was used to compile "
            "PyTorch (11.8). Please make sure to use the same CUDA versions."
        ),
    ],
    "deepspeed_config_error": [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig",
        "AttributeError: 'DeepSpeedConfig' object has no attribute 'fp16_fused_mode'",
        (
            "ValueError: Please correct the following DeepSpeed config values that mismatch "
            "TrainingArguments values:"
        ),
    ],
    "xid_hw_error": [
        "NVRM: Xid (PCI:0000:38:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "  what():  CUDA error: unknown error",
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
    ],
    "amp_overflow": [
        "RuntimeError: value cannot be converted to type at::Half without overflow",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "RuntimeError: grad_scale is too small, exiting: 8.470329472543003e-22",
        (
            "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try "
            "lowering the learning rate."
        ),
    ],
}
HARMLESS = [
    "node1:88:120 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>, connection refused by nobody",
    (
        "[2026-11-21 04:27:27,997] [INFO] [config.py:1001:print]   gradient_clipping ............ 1.0, "
        "DeepSpeedConfig"
    ),
    "fused_adam ............. [NO] ....... [OKAY]",
    "[WARNING]  sparse_attn requires a torch version >= 1.5; please install CUDA_HOME",
    "Setting ds_accelerator to cuda (auto detect), torchrun --rdzv-endpoint, ddp_timeout=1800",
    "ValueError handling is on; RuntimeErrors are retried",
    "12:00:01 WARNING retrying after RuntimeError: CUDA error: an illegal memory access was encountered",
    "ECC errors: 0 uncorrectable, 0 corrected",
    "number of parameters that did not receive grad: 0",
    "loading state_dict for the EMA model",
    "model compiled with torch.compile (backend inductor), torch._dynamo cache cleared",
    "assert mask.shape == x.shape  # RuntimeErrors otherwise",
    "Duplicate GPU check passed",
    "the loss scale is 1024.0",
    "torch._dynamo.config: recompile_limit = 64, guards tell the last reason: none yet",
    "[recompiles]    last reason: 0/0: tensor 'x' size mismatch at index 0. expected 64, actual 32",
]


@pytest.mark.parametrize(("name", "code", "cause"), [(name, *found) for name, found in ENDED.items()])
def test_a_program_that_really_failed_gets_its_cause(name: str, code: str, cause: str) -> None:
    finding = diagnose(f"ended/{name}.log").findings[0]
    assert (finding.rule, finding.cause, finding.is_primary) == (code, cause, True)
    assert finding.severity == Severity.CRITICAL
    assert finding.evidence[0].line
    assert finding.fixes


@pytest.mark.parametrize(
    ("cause", "line"), [(cause, line) for cause, lines in DEADLY.items() for line in lines]
)
def test_every_wording_of_an_error_leads_to_its_cause(cause: str, line: str) -> None:
    assert causes(diagnose_log(f"loading\n{line}\n")) == [cause]


@pytest.mark.parametrize(
    "before",
    [
        "[rank3]: ",
        "[default3]:",
        " 3: ",
        "node7: ",
        "[1,3]<stderr>:",
        "[rank: 3] ",
        "\x1b[31m",
        "(RayWorkerWrapper pid=33, ip=10.0.0.1) ",
        "(VllmWorker rank=3 pid=33) ERROR 05-28 18:58:32 [core.py:522] ",
        "2026-11-21T00:01:19.209104776Z ",
    ],
)
def test_any_prefix_of_a_launcher_leaves_the_cause_the_same(before: str) -> None:
    for cause, lines in DEADLY.items():
        assert causes(diagnose_log(f"{before}{lines[0]}\n")) == [cause]


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05, 'epoch': 0.02}\n",
        (
            " iteration 17/ 99 | global batch size:    8 | loss scale: 1.0 | grad norm: nan | number of nan "
            "iterations:   0 |\n"
        ),
    ],
)
def test_a_zero_or_missing_loss_beside_a_nan_gradient_counts_as_a_nan_loss(line: str) -> None:
    assert not causes(diagnose_log(line))
    diagnosis = diagnose_log(line * 3)
    assert causes(diagnosis) == ["nan_loss"]
    summary = diagnosis.findings[0].summary
    assert summary.startswith(("The gradients are NaN", "Loss 0.0 hides NaN: the gradients are NaN"))
    assert "loss is NaN (" not in summary, "the loss that is shown is no NaN"


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_mean_something_else_or_nothing_stay_silent(line: str) -> None:
    assert not causes(diagnose_log(f"{line}\nepoch 0\n"))


def test_a_healthy_start_full_of_words_that_sound_bad_is_silent() -> None:
    (finding,) = diagnose("typed/nccl-healthy.log").findings
    assert (finding.rule, finding.severity) == ("TOR005", Severity.INFO)


@pytest.mark.parametrize(
    ("after", "expected"),
    [("done", []), ("node1:88:120 [0] NCCL INFO misc/socket.cc:80 -> 6", ["nccl_network"])],
)
def test_a_peer_that_closes_its_connection_is_an_error_only_where_nccl_gives_up(
    after: str, expected: list[str]
) -> None:
    line = (
        "node1:88:120 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer "
        "node2<5112>"
    )
    tail = LogTail("train.log", 1, (line, after), 200, 2)
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(f"{line}\n{after}\n"), log_tails=(tail,))
    assert causes(Engine(build()).diagnose(snapshot, History())) == expected


def test_an_exception_in_a_box_of_rich_is_shown_at_its_innermost_own_frame() -> None:
    box = (
        "╭───────── Traceback (most recent call last) ─────────╮",
        "│ /home/user/project/train.py:12 in main              │",
        "│   11 model = build()                                │",
        "│ ❱ 12 train(model)                                   │",
        "│ /home/user/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:9 in forward │",
        "╰─────────────────────────────────────────────────────╯",
        "KeyError: 'labels'",
    )
    hits = scan("\n".join(box) + "\n")
    snapshot = TargetSnapshot("train.log", None, log_hits=hits, log_tails=(tail_of("\n".join(box) + "\n"),))
    finding = Engine(build()).diagnose(snapshot, History()).findings[0]
    assert (finding.cause, finding.evidence[1].line) == ("code_error", 2)
    assert 'File "/home/user/project/train.py", line 12, in main' in finding.evidence[1].text


def test_the_rank_that_never_came_to_the_collective_is_named() -> None:
    finding = diagnose("typed/collective-timeout.log").findings[0]
    assert (finding.rule, finding.cause, finding.subject.rank) == ("DST005", "nccl_timeout", 2)
    assert "ALLREDUCE 4801" in finding.summary
    assert "rank 2" in finding.summary
    assert any("enqueued up to 4803" in evidence.text for evidence in finding.evidence)
    assert not any("imeout" in key for fix in finding.fixes for key in fix.changes)


def test_a_rank_that_called_another_collective_is_a_mismatch_and_not_a_slow_network() -> None:
    finding = diagnose("typed/collective-order.log").findings[0]
    assert (finding.cause, finding.subject.rank) == ("rank_mismatch_collective", 0)
    assert "BROADCAST" in finding.summary


def timed_out(*calls: str) -> str:
    """The message of each rank's watchdog about the call it waits in."""
    return "\n".join(
        f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL({call}, Timeout(ms)=1800000) "
        "ran for 1800412 milliseconds before timing out."
        for rank, call in enumerate(calls)
    )


def test_two_ranks_that_differ_are_both_named_with_the_difference() -> None:
    by_name = diagnose_log(timed_out("SeqNum=7, OpType=BROADCAST", "SeqNum=7, OpType=ALLREDUCE")).findings[0]
    assert by_name.cause == "rank_mismatch_collective"
    assert "rank 0 called BROADCAST, rank 1 called ALLREDUCE" in by_name.summary
    assert "rank 0: waits in BROADCAST 7" in [one.text for one in by_name.evidence]
    assert by_name.subject.rank is None, "of two ranks neither is the odd one"
    of_size = "SeqNum=7, OpType=BROADCAST, NumelIn={0}, NumelOut={0}"
    by_size = diagnose_log(timed_out(of_size.format(1), of_size.format(64))).findings[0]
    assert by_size.cause == "rank_mismatch_collective"
    assert "rank 0 called BROADCAST of 1, rank 1 called BROADCAST of 64" in by_size.summary


@pytest.mark.parametrize(
    "calls",
    [
        ["SeqNum=7, OpType=BROADCAST, NumelIn=64, NumelOut=64"] * 2,
        ["SeqNum=7, OpType=BROADCAST", "SeqNum=6, OpType=BROADCAST"],
        [
            "SeqNum=7, OpType=GATHER, NumelIn=64, NumelOut=0",
            "SeqNum=7, OpType=GATHER, NumelIn=32, NumelOut=96",
        ],
    ],
)
def test_ranks_that_made_the_same_call_are_no_mismatch(calls: list[str]) -> None:
    finding = diagnose_log(timed_out(*calls)).findings[0]
    assert finding.cause == "nccl_timeout"
    assert "where the others called" not in finding.summary


def watched(rank: int, seq: int, group: str) -> str:
    """What torch 2.5 prints for a rank that waits in a process group."""
    number = group.partition("(")[0]
    return (
        f"[rank{rank}]:[E1121 04:30:12.41 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, "
        "Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
        f"[rank{rank}]:[E1121 04:30:12.50 ProcessGroupNCCL.cpp:2268] [PG ID {number} PG GUID {group} "
        f"Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued "
        f"work: {seq + 2}, last completed work: {seq - 1}\n"
    )


def test_numbers_of_different_process_groups_are_not_compared() -> None:
    groups = ("5(mesh_tp)", "5(mesh_tp)", "6(mesh_tp)", "6(mesh_tp)")
    sequences = (120, 120, 118, 118)
    log = "".join(map(watched, range(4), sequences, groups))
    assert diagnose_log(log).findings[0].summary.endswith("timed out: a rank did not take part")
    late = "".join(map(watched, range(4), (120, 120, 118, 117), groups))
    assert "rank 3 did not finish call 117, which others finished" in diagnose_log(late).findings[0].summary
    of_one = "".join(map(watched, range(4), sequences, ["0(default_pg)"] * 4))
    assert "ranks 2, 3 did not finish call 118" in diagnose_log(of_one).findings[0].summary


@pytest.mark.parametrize(
    ("num_ranks", "missing", "says_status", "told"),
    [
        (256, [], False, "a rank did not take part"),
        (256, [150], False, "a rank did not take part"),
        (64, [40], True, "rank 40 logged nothing and did not join"),
        (48, [40], False, "rank 40 logged nothing and did not join"),
    ],
)
def test_a_rank_whose_lines_were_not_kept_is_not_called_silent(
    num_ranks: int, missing: list[int], says_status: bool, told: str
) -> None:
    ranks = [rank for rank in range(num_ranks) if rank not in missing]
    each = [watched(rank, 7, "0(default_pg)").splitlines() for rank in ranks]
    failed = [f"[rank{rank}]: Some NCCL operations have failed or timed out." for rank in ranks]
    lines = [*(line for line, _ in each), *(line for _, line in each if says_status), *failed]
    assert diagnose_log("\n".join(lines) + "\n").findings[0].summary.endswith(told)


def test_a_mismatch_names_the_aspects_in_which_the_calls_differ() -> None:
    call = "CollectiveFingerPrint(SequenceNumber={}, OpType=BROADCAST, TensorShape=[{}], TensorDtypes=Float)"
    line = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        f"{call.format(3, 1)}, but Rank 1 is running collective: {call.format(4, 64)}."
        "Collectives differ in the following aspects: \t Sequence number: 3vs 4  Tensor Tensor shapes: 1vs 64"
    )
    told = "Ranks 0 and 1 did not make the same call: sequence number 3 and 4, tensor shapes 1 and 64"
    assert diagnose_log(line).findings[0].summary == told


def test_the_rank_that_ran_out_of_memory_is_the_cause_and_the_others_timeout_its_consequence() -> None:
    findings = diagnose("typed/out-of-memory-then-timeout.log").findings
    assert [(f.cause, f.consequence_of) for f in findings] == [("cuda_oom", None), ("nccl_timeout", "MEM001")]


def test_ranks_that_share_a_gpu_get_the_fix_although_nccl_prints_the_reason_lines_below() -> None:
    log = (
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage, NCCL version "
        "2.27.5\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 18000\n"
    )
    (finding,) = diagnose_log(log).findings
    assert finding.cause == "nccl_error"
    assert "set_device" in finding.fixes[0].title


def test_an_index_out_of_range_is_the_cause_of_the_cublas_error_after_it() -> None:
    findings = diagnose("typed/device-side-assert.log").findings
    assert [(f.rule, f.consequence_of) for f in findings] == [("CUD004", None), ("CUD002", "CUD004")]
    assert "srcIndex < srcSelectDimSize" in findings[0].summary


def test_the_exception_of_one_rank_is_the_cause_of_the_connection_that_the_other_lost() -> None:
    findings = diagnose("ended/gloo-peer-raised.log").findings
    assert [(f.cause, f.subject.rank, f.consequence_of) for f in findings] == [
        ("code_error", 1, None),
        ("gloo_connect", 0, "COD001"),
    ]


LOST = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/user/train.py", line 3, in main
[rank0]:     dist.all_reduce(x)
[rank0]: RuntimeError: {lost}
"""
SUMMARY = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4711)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_12:00:00
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 4712)
  error_file: <N/A>
============================================================"""


@pytest.mark.parametrize(
    ("lost", "symptom"),
    [
        (
            (
                "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection reset by peer "
                "[127.0.0.1]:40840"
            ),
            "DST020",
        ),
        (
            (
                "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
                "[127.0.0.1]:40840"
            ),
            "DST020",
        ),
        (
            (
                "NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited or there was a network "
                "error, NCCL version 2.18.1"
            ),
            "DST004",
        ),
    ],
)
def test_a_kill_explains_the_connection_that_another_rank_lost_and_never_the_reverse(
    lost: str, symptom: str
) -> None:
    findings = diagnose_whole(LOST.format(lost=lost) + SUMMARY.format(code=-9)).findings
    assert [(f.rule, f.subject.rank, f.consequence_of) for f in findings] == [
        ("MEM008", 1, None),
        (symptom, 0, "MEM008"),
    ]
    assert findings[0].is_primary
    assert "Rank 1 was killed" in findings[0].summary
    by_srun = diagnose_whole(LOST.format(lost=lost) + "srun: error: n2: task 1: Killed").findings
    assert [(f.rule, f.consequence_of) for f in by_srun] == [("MEM008", None), (symptom, "MEM008")]


def test_a_dead_ray_worker_gets_both_possible_reasons_and_the_place_of_its_log() -> None:
    line = (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. "
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection "
        "error code 2. End of file. There are some potential root causes. (1) The process is killed by "
        "SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is "
        "crashed unexpectedly due to SIGSEGV"
    )
    finding = next(each for each in diagnose_log(line).findings if each.rule == "MEM008")
    assert finding.summary.startswith("A Ray worker died without an exception: it was killed")
    assert "or it crashed in native code" in finding.summary
    assert finding.confidence == 0.4
    assert finding.fixes[0].command == "tail -n 40 /tmp/ray/session_latest/logs/worker-*.err"


def test_a_task_that_srun_killed_after_another_had_failed_explains_nothing() -> None:
    lost = "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:40840"
    failed = "srun: error: n1: task 1: Exited with exit code 1"
    assert of_a_whole_log(*RAISED, lost, failed, "srun: error: n2: task 0: Killed")[0] == "gloo_connect"


def test_a_rank_that_left_without_a_word_ended_the_run_and_not_the_rank_that_lost_it() -> None:
    lost = "[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:40840"
    left, symptom = diagnose_whole(LOST.format(lost=lost) + SUMMARY.format(code=3)).findings
    assert (left.rule, left.subject.rank, left.is_primary) == ("COD001", 1, True)
    assert left.summary == "Rank 1 ended with exit code 3; its error is not in this log"
    assert left.evidence[0].text == "torchrun's first failure: rank 1, exitcode  : 3 (pid: 4712)"
    assert (symptom.rule, symptom.subject.rank, symptom.consequence_of) == ("DST020", 1, "COD001")
    assert symptom.summary.endswith("rank 1 had ended first, with exit code 3 and without a message")
    # Every exception ends a rank with status 1; its message may be in another log.
    died = diagnose("ended/gloo-peer-died.log").findings[0]
    assert (died.rule, died.subject.rank, "rank 1 had ended first" in died.summary) == ("DST020", 1, True)
    own = diagnose_whole(
        LOST.format(lost=lost) + SUMMARY.format(code=1).replace("rank      : 1", "rank      : 0")
    )
    assert own.findings[0].subject.rank == 0


def test_the_summary_of_a_node_that_torchrun_ended_names_no_cause() -> None:
    log = SUMMARY.format(code=-15).replace("rank      : 1", "rank      : 3") + "\n" + SUMMARY.format(code=-9)
    assert diagnose_whole(log).findings[0].subject.rank == 1


@pytest.mark.parametrize(
    ("name", "words", "frame"),
    [
        ("plain-exception", "learn_rate", 'train.py", line 3'),
        ("in-a-loader", "list index out of range", 'train.py", line 6, in __getitem__'),
    ],
)
def test_a_plain_exception_is_shown_at_the_innermost_frame_of_the_users_own_code(
    name: str, words: str, frame: str
) -> None:
    finding = diagnose(f"plain/{name}.log").findings[0]
    assert (finding.rule, finding.cause) == ("COD001", "code_error")
    assert words in finding.summary
    assert frame in finding.evidence[1].text


def test_arguments_that_a_script_refuses_are_a_mistake_of_the_program() -> None:
    assert "unrecognized arguments" in diagnose("plain/usage.log").findings[0].summary


def test_an_exception_that_was_caught_is_not_worth_a_word() -> None:
    traceback = (RECORDINGS / "plain" / "plain-exception.log").read_text()
    progress = "".join(f"downloading part {part}\n" for part in range(60))
    assert not diagnose_log(traceback + progress, run(state="COMPLETED")).findings
    assert causes(diagnose_log(traceback, run(state="FAILED"))) == ["code_error"]


RAISED = ("Traceback (most recent call last):", '  File "/home/user/train.py", line 3, in main', "    main()")
PROGRESS_LINES = tuple(f"Epoch {epoch}: 100%|####| 10/10 [00:01<00:00, 9.1it/s]" for epoch in range(120))


@pytest.mark.parametrize(
    "early",
    [
        ("mkdir: cannot create directory '/opt/x': Permission denied",),
        ("curl: (6) Could not resolve host: api.wandb.ai",),
        (*RAISED, "FileNotFoundError: [Errno 2] No such file or directory: '/c/last.ckpt'"),
    ],
)
def test_an_early_error_that_the_program_survived_is_not_the_cause_of_its_end(
    early: tuple[str, ...],
) -> None:
    assert of_a_whole_log(*early, *PROGRESS_LINES, *RAISED, "ValueError: bad label") == ["code_error"]


def test_an_error_that_was_tried_again_is_no_end_although_few_losses_follow() -> None:
    losses = [f"step {step} loss 2.{step}" for step in range(30)]
    assert not of_a_whole_log(*RAISED, "ConnectionError: timed out", "Retrying in 5 seconds", *losses)
    assert of_a_whole_log(*RAISED, "ConnectionError: timed out", *losses) == ["code_error"]


@pytest.mark.parametrize(
    "lines",
    [
        ("train.sh: line 12: 12345 Killed                  nvidia-smi dmon > gpu.log",),
        ("train.sh: line 30: 4123 Terminated              nvidia-smi -l 5 > smi.log",),
        ("Killed", "starting training"),
        ("Port 29500 is already in use, using 29501 instead",),
        (
            (
                "E1121 12:00:00 Port 6006 is in use by another program. Either identify and stop that "
                "program, or …"
            ),
        ),
        ("bash: /etc/profile.d/foo.sh: Permission denied",),
        ("rm: cannot remove '/tmp/other/x': Permission denied",),
        ("ls: cannot access '/nfs/old': Stale file handle",),
        ("curl: (6) Could not resolve host: api.wandb.ai", "wandb offline"),
        (*RAISED, "FileNotFoundError: [Errno 2] No such file or directory: '/c/x'", "starting from scratch"),
        ("All GPUs are in use: 8 workers started",),
        ("Missing key(s) in state_dict: head.weight (expected, new head)",),
        ("train.py: error: no config given, using default.yaml",),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "Submitted batch job 18",
        ),
    ],
)
def test_an_error_that_a_script_survived_is_no_alarm(lines: tuple[str, ...]) -> None:
    assert not of_a_whole_log(*lines, "epoch 1 acc 0.5", "Training finished")


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("host_oom", ("train.sh: line 12: 12345 Killed                  python train.py", "done")),
        ("host_oom", ("Killed",)),
        ("permission_denied", ("mkdir: cannot create directory '/opt/x': Permission denied",)),
        ("hostname_resolution", ("ssh: Could not resolve hostname node9: Name or service not known",)),
        ("code_error", (*RAISED, "ValueError: x", "wandb: Find logs at: ./wandb/offline-run-1/logs")),
    ],
)
def test_the_same_words_at_the_end_of_a_program_are_its_cause(cause: str, lines: tuple[str, ...]) -> None:
    assert of_a_whole_log(*lines) == [cause]


def test_an_extension_of_another_torch_is_built_again_beside_it_and_nothing_is_removed() -> None:
    line = (
        "ImportError: /home/user/.cache/torch_extensions/py311/fused_adam/fused_adam.so: undefined symbol: _Z"
    )
    commands = [fix.command or "" for fix in diagnose_log(f"{line}\n").findings[0].fixes]
    assert any("TORCH_EXTENSIONS_DIR=" in command for command in commands)
    assert not any("rm " in command for command in commands)


def test_a_crash_below_a_timeout_is_its_consequence_and_an_abort_for_it_is_the_timeout() -> None:
    timeout = DEADLY["nccl_timeout"][0]
    crash = "srun: error: n1: task 1: Segmentation fault (core dumped)"
    assert of_a_whole_log(timeout, crash) == ["nccl_timeout", "segfault"]
    aborted = (
        f"RuntimeError: NCCL communicator was aborted on rank 1.  Original reason for failure was: {timeout}"
    )
    assert of_a_whole_log(aborted) == ["nccl_timeout"]


@pytest.mark.parametrize("log", sorted((RECORDINGS / "silent").iterdir()), ids=lambda log: str(log.stem))
def test_noise_restarts_adversaries_and_retried_errors_stay_silent(log: object) -> None:
    assert all(finding.severity == Severity.INFO for finding in diagnose(str(log)).findings)


def test_a_loss_that_leaves_its_course_is_a_divergence_with_its_place() -> None:
    finding = diagnose("curves/loss-divergence.log").findings[0]
    assert (finding.rule, finding.cause, finding.severity) == ("NUM006", "loss_divergence", Severity.WARNING)
    assert finding.evidence[0].line
    assert finding.evidence[0].line > 100


def test_a_loss_scale_that_collapses_asks_for_bf16_and_never_for_a_higher_scale() -> None:
    finding = diagnose("curves/loss-scale-collapse.log").findings[0]
    assert (finding.rule, finding.cause) == ("NUM004", "amp_overflow")
    assert [fix.title.split(" instead")[0] for fix in finding.fixes] == ["bf16"]
    assert not finding.fixes[0].changes, "whether this GPU has it is not known"


@pytest.mark.parametrize(
    "lines",
    [
        [f"| WARNING: overflow detected, setting loss scale to: {scale}" for scale in (1.0, 1.0, 0.5)],
        [
            f"2026-11-21 | INFO | train_inner | epoch 001: 5 / 9 loss=2.1, gnorm=0.3, loss_scale={scale}"
            for scale in (4, 2, 1)
        ],
    ],
    ids=["overflows", "steps"],
)
def test_a_scale_about_one_is_an_ordinary_one_in_fairseq(lines: list[str]) -> None:
    assert of_a_whole_log(*lines) == []


def test_a_device_mismatch_is_not_reported_as_a_dtype_mismatch() -> None:
    line = "RuntimeError: expected device cpu and dtype Float but got device cpu and dtype Double"
    assert diagnose_log(line).findings[0].summary.endswith("expected " + line.partition("expected ")[2])
    silent = ["WARNING: Input type (torch.HalfTensor) and weight type (torch.FloatTensor) should be the same"]
    silent += ["TypeError: expected type str but got int", "INFO scalar type Half found, Float expected"]
    assert all("TOR004" not in [f.rule for f in diagnose_log(line).findings] for line in silent)


@pytest.mark.parametrize("first", ["state_dict_mismatch", "shape_mismatch"])
def test_of_two_causes_in_one_log_the_earlier_line_is_the_root(first: str) -> None:
    lines = [DEADLY["state_dict_mismatch"][0], "2026-11-21 04:00:00 " + DEADLY["shape_mismatch"][0]]
    log = lines if first == "state_dict_mismatch" else lines[::-1]
    assert causes(diagnose_log("\n".join(log) + "\n"))[0] == first


@pytest.mark.parametrize(
    ("key", "origin"), [("module.fc.weight", "DDP"), ("_orig_mod.fc.weight", "torch.compile")]
)
def test_keys_that_differ_by_a_wrapper_s_prefix_get_the_fix_that_strips_it(key: str, origin: str) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/user/train.py", line 2, in <module>\n    model.load_state_dict(state)\n'
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        f'\tMissing key(s) in state_dict: "fc.weight". \n\tUnexpected key(s) in state_dict: "{key}". \n'
    )
    (finding,) = diagnose_log(text).findings
    assert finding.rule == "TOR002"
    assert f"differ by {origin}'s prefix" in finding.fixes[0].title


def test_a_run_that_coach_launched_with_compilation_is_offered_to_run_without() -> None:
    text = "Traceback (most recent call last):\ntriton.compiler.errors.CompilationError: at 12:8:\n"
    fixes = [diagnose_log(text, own).findings[0].fixes[0] for own in (run({"compile": True}), run({}), None)]
    assert [fix.changes for fix in fixes] == [{"compile": False}, {}, {}]
    compiled = text.replace(
        "triton.", '  File "/venv/torch/_dynamo/eval_frame.py", line 3, in _fn\n    f()\ntriton.'
    )
    fix = diagnose_log(compiled, None).findings[0].fixes[0]
    assert fix.changes == {"env": {"TORCH_COMPILE_DISABLE": "1"}}
