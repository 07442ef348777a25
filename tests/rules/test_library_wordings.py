"""The words that libraries have for one cause in other versions and frameworks, and healthy logs that hold
nearly the same."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.rules.examples import diagnose_log, of_a_whole_log

BAR = "train:  20%|██        | 11/56 [00:02<00:08,  5.02it/s, loss=0.31]"
FAILED_IMPORT = (
    "RuntimeError: Failed to import transformers.trainer because of the following error (look up to see its "
    "traceback):\n"
)
WORDINGS = {
    "cuda_unavailable": [
        "AssertionError: \nFound no NVIDIA driver on your system. Please check that you",
        (
            "RuntimeError: cuda runtime error (802) : system not yet initialized at "
            "/w/aten/src/THC/THCGeneral.cpp:50"
        ),
        "AssertionError: CUDA must be available in order to use Deep Daze",
        (
            "F0303 09:50:12.085932 3744 common.cpp:152] Check failed: error == cudaSuccess (38 vs. 0) no "
            "CUDA-capable device is detected"
        ),
        (
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=74 error=38 : no CUDA-capable "
            "device is detected"
        ),
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
        "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
        "RuntimeError: Failed to infer device type",
    ],
    "cuda_version_mismatch": [
        (
            "      RuntimeError:\n      The detected CUDA version (11.8) mismatches the version that was "
            "used to compile\n      PyTorch (12.4)."
        ),
        (
            "RuntimeError: Cuda extensions are being compiled with a version of Cuda that does not match the "
            "version used to compile Pytorch binaries."
        ),
        "RuntimeError: Detected that PyTorch and torch_scatter were compiled with different CUDA versions.",
        "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions.",
    ],
    "no_kernel_image": [
        "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",
        (
            "THCudaCheck FAIL file=/pytorch/torch/lib/THC/THCTensorCopy.cu line=204 error=8 : invalid device "
            "function"
        ),
        (
            "RuntimeError: cuda runtime error (8) : invalid device function at "
            "/pytorch/torch/lib/THC/THCTensorCopy.cu:204"
        ),
        "cudaCheckError() failed : invalid device function",
        (
            "F1008 04:30:16.139123  5360 roi_pooling_layer.cu:91] Check failed: error == cudaSuccess (8 vs. "
            "0)  invalid device function"
        ),
    ],
    "cublas_cudnn_error": [
        "[1,290]<stderr>:!!!! kernel execution error.",
        "!!!! kernel execution error. (m: 4096, n: 1024, k: 1024, error: 13)",
        "tensorflow.python.framework.errors_impl.NotFoundError: No algorithm worked!",
    ],
    "illegal_memory_access": [
        (
            "F0725 01:08:55.576004 10039 syncedmem.cpp:55] Check failed: error == cudaSuccess (4 vs. 0)  "
            "unspecified launch failure"
        ),
        (
            "F0925 14:07:56.489186 14091 math_functions.cu:79] Check failed: error == cudaSuccess (74 vs. 0) "
            " misaligned address"
        ),
        "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCTensorCopy.cu line=84 error=74 : misaligned address",
        "OSError: (External) CUDA error(719), unspecified launch failure.",
        "CUDA failure 4: unspecified launch failure ; GPU=0 ; expr=cudaFree((void*) bufferPtr)",
    ],
    "cuda_launch_fork": [
        (
            "RuntimeError: cuda runtime error (3) : initialization error at "
            "/pytorch/torch/csrc/cuda/Module.cpp:34"
        ),
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  CUDA error (3): "
            "initialization error"
        ),
        "THCudaCheck FAIL file=/pytorch/torch/csrc/cuda/Module.cpp line=34 error=3 : initialization error",
    ],
    "device_mismatch": [
        "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
        (
            "RuntimeError: Expected object of type torch.FloatTensor but found type torch.cuda.FloatTensor "
            "for argument #2 'other'"
        ),
        (
            "RuntimeError: Expected object of type torch.cuda.FloatTensor but found type torch.FloatTensor "
            "for argument #3 'other'"
        ),
        (
            "RuntimeError: Expected object of type Variable[torch.FloatTensor] but found type "
            "Variable[torch.cuda.FloatTensor] for argument #1 'mat2'"
        ),
        (
            "RuntimeError: Assertion `THCTensor_(checkGPU)(state, 4, input)' failed. Some of "
            "weight/gradient/input tensors are located on different GPUs."
        ),
        "RuntimeError: Input, output and indices must be on the current device",
        (
            "TypeError: can't convert CUDA tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        ),
        (
            "[12:00:01] ERROR trainer: Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!"
        ),
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu",
    ],
    "shape_mismatch": [
        (
            'einops.EinopsError:  Error while processing rearrange-reduction pattern "b -> b 1".\n Expected '
            "1 dimensions, got 2"
        ),
        "ValueError: cannot reshape array of size 784 into shape (28,28,3)",
        (
            "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, "
            "256, 1, 1])"
        ),
        (
            "RuntimeError: invalid argument 2: size '[32 x 100]' is invalid for input with 3136 elements at "
            "/pytorch/aten/src/TH/THStorage.c:41"
        ),
        (
            "ValueError: Error when checking target: expected conv2d_3 to have 4 dimensions, but got array "
            "with shape (0, 1)"
        ),
        "ValueError: Cannot feed value of shape (64,) for Tensor 'x:0', which has shape '(?, 10)'",
        (
            "InvalidArgumentError: Input to reshape is a tensor with 3136 values, but the requested shape "
            "requires a multiple of 1000"
        ),
        "InvalidArgumentError: Matrix size-incompatible: In[0]: [32,784], In[1]: [100,10]",
        "ValueError: Dimension 1 in both shapes must be equal, but are 3 and 4. Shapes are [2,3] and [2,4].",
        (
            "InvalidArgumentError: ConcatOp : Dimensions of inputs should match: shape[0] = [1,2] vs. "
            "shape[1] = [2,3]"
        ),
        "Graph execution error:\nIncompatible shapes: [32,10] vs. [32,11]",
        (
            "flax.errors.ScopeParamShapeError: Initializer expected to generate shape (3, 4) but got shape "
            '(3, 5) for parameter "kernel"'
        ),
        "ValueError: Attention mask should be of size (1, 1, 512, 1024), but is torch.Size([1, 1, 512, 512])",
        "RuntimeError: batch1 and batch2 must have same number of batches, got 8 and 16",
        "RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
        (
            "TypeError: Cannot concatenate arrays with shapes that differ in dimensions other than the one "
            "being concatenated"
        ),
        (
            "InvalidArgumentError: Cannot batch tensors with different shapes in component 0. First element "
            "had shape [2]"
        ),
        (
            "ValueError: Data cardinality is ambiguous. Make sure all arrays contain the same number of "
            "samples.'x' sizes: 100"
        ),
        (
            "ValueError: Unable to create tensor, you should probably activate truncation and/or padding "
            "with 'padding=True'"
        ),
    ],
    "torch_compile_error": [
        (
            "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped\n  Hint: Avoid "
            "calling the function `f`."
        ),
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmp5u/main.c', '-shared', '-o', "
        "'/tmp/tmp5u/__triton_launcher.so']'"
        " returned non-zero exit status 1.",
        "RuntimeError: `ptxas` failed with error code 255: ",
        (
            "OutOfResources: out of resource: shared memory, Required: 126978, Hardware limit: 101376. "
            "Reducing block sizes may help."
        ),
        (
            "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on "
            "data-dependent expression Eq(u0, 0)"
        ),
        "torch._subclasses.fake_tensor.DataDependentOutputException: aten._local_scalar_dense.default",
    ],
    "deepspeed_build": [
        (
            "ERROR: Fused kernels configured but not installed. Please run `python setup.py install` to "
            "install them"
        ),
        "subprocess.CalledProcessError: Command '['which', 'c++']' returned non-zero exit status 1.",
        "nvcc fatal   : Unsupported gpu architecture 'compute_86'",
        "AssertionError: Unable to pre-compile async_io",
        "ValueError: Unknown CUDA arch (9.0a) or GPU not supported",
        "RuntimeError: Ninja build failed. Ninja output:",
        (
            "RuntimeError: The current installed version of g++ (13.2.0) is greater than the maximum "
            "required version by CUDA 11.7."
        ),
        (
            "RuntimeError: PyTorch version mismatch! DeepSpeed ops were compiled and installed with a "
            "different version than what is"
        ),
    ],
    "shared_library_missing": [
        (
            "RuntimeError:\n        CUDA Setup failed despite GPU being available. Please run the following "
            "command to get more information:"
        ),
        "OSError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block",
        (
            "ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid "
            "argument"
        ),
        "python: symbol lookup error: /env/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded",
        "OSError: sndfile library not found",
        "RuntimeError: Could not load libtorchcodec. Likely causes:",
        "Intel MKL FATAL ERROR: Cannot load libmkl_avx512.so.2 or libmkl_def.so.2.",
        (
            "RuntimeError: cannot load MPI library\nlibmpi.so.12: cannot open shared object file: No such "
            "file or directory"
        ),
        "AssertionError: libcuda.so cannot found!",
    ],
    "module_not_found": [
        f"{FAILED_IMPORT}No module named 'triton'",
        (
            "ImportError: \nT5Tokenizer requires the SentencePiece library but it was not found in your "
            "environment. Check out the"
        ),
        (
            "ImportError: This modeling file requires the following packages that were not found in your "
            "environment: flash_attn."
        ),
        (
            "ImportError: Using `low_cpu_mem_usage=True` or a `device_map` requires Accelerate: `pip install "
            "accelerate`"
        ),
        (
            "ModuleNotFoundError: Neither `tensorboard` nor `tensorboardX` is available. Try `pip "
            "install`ing either."
        ),
        "RuntimeError: WandbCallback requires wandb to be installed. Run `pip install wandb`.",
        "ValueError: Trainer tried to instantiate apex FusedAdam but apex is not installed!",
        "ValueError: Couldn't instantiate the backend tokenizer from one of: \n"
        "You need to have sentencepiece or tiktoken installed to convert a slow tokenizer to a fast one.",
    ],
    "version_conflict": [
        f"{FAILED_IMPORT}cannot import name 'UNSIGNED' from 'botocore' (unknown location)",
        "ImportError: cannot import name 'Trainer' from 'transformers' (unknown location)",
        (
            "ImportError: This example requires a source install from HuggingFace diffusers "
            "(see\n`https://huggingface.co/docs`), but the version found is 0.14.0."
        ),
        "AssertionError: MMCV==1.7.2 is used but incompatible. Please install mmcv>=2.0.0rc4.",
        (
            "ValueError: numpy.ndarray size changed, may indicate binary incompatibility. Expected 88 from C "
            "header, got 80 from PyObject"
        ),
        "RuntimeError: module compiled against API version 0xe but this version of numpy is 0xd",
        "AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.",
        "AttributeError: module 'distutils' has no attribute 'version'",
        (
            "ImportError: cannot import name 'Mapping' from 'collections' "
            "(/usr/lib/python3.10/collections/__init__.py)"
        ),
        "ImportError: This example requires a minimum version of 4.21.0, but the version found is 4.20.1.",
        "RuntimeError: jaxlib version 0.4.14 is newer than and incompatible with jax version 0.4.13.",
        "python: symbol lookup error: /env/x.so: undefined symbol: _ZN3c105ErrorC2E",
        (
            "ValueError: Due to a serious vulnerability issue in `torch.load`, we now require users to "
            "upgrade torch to at least v2.6"
        ),
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers does "
            "not recognize this architecture."
        ),
        "ImportError: AttnProcessor2_0 requires PyTorch 2.0, to use it, please upgrade PyTorch to 2.0.",
        "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'",
        "Disabling PyTorch because PyTorch >= 2.4 is required but found 2.1.2\nImportError: \n"
        "AutoModel requires the PyTorch library but it was not found in your environment. Checkout the "
        "instructions on the",
    ],
    "checkpoint_world_size": [
        (
            "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world "
            "size of 8 but the current"
        ),
    ],
    "state_dict_mismatch": [
        "KeyError: 'layers.0.self_attn.q_proj.lora_A.weight'",
        "ValueError: There is no module or parameter named 'lm_head.base_layer' in LlamaForCausalLM",
        (
            "ValueError: Following weights were not initialized from checkpoint: "
            "{'layers.31.mlp.gate_up_proj.weight'}"
        ),
        (
            "ValueError: A total of 4 objects could not be loaded. Example error message for object <Dense "
            "name=dense_2, built=True>:"
        ),
        (
            "ValueError: Shape of variable a:0 ((30522, 768)) doesn't match with shape of tensor a ([21128, "
            "768]) from checkpoint reader."
        ),
        (
            "ValueError: The target dict keys and state dict keys do not match, target dict contains keys "
            "{'bias'}"
        ),
    ],
    "dataloader_worker_killed": [
        (
            "SystemError: (Fatal) DataLoader process (pid 17) exited is killed by signal: Killed. (at "
            "/paddle/x.cc:181)"
        ),
        "SystemError: (Fatal) DataLoader process (pid   17) exited unexpectedly with code 1.",
    ],
    "env_vars_missing": [
        (
            "RuntimeError: Could not find 'RANK' in the torch environment, visit https://www.colossalai.org/ "
            "for more"
        ),
        "RuntimeError: Could not find 'SLURM_PROCID' in the SLURM environment",
    ],
    "deepspeed_config_error": [
        "AssertionError: DeepSpeed does not recognize LR scheduler CosineDecay",
        "AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled",
        "AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
        (
            "deepspeed.elasticity.config.ElasticityIncompatibleWorldSize: World size (7) is not valid with "
            "the current list of GPU counts"
        ),
        "ValueError: You cannot specify an optimizer in the config file and in the code at the same time.",
        "hjson.scanner.HjsonDecodeError: Expecting ',' delimiter or '}': line 31 column 5 (char 812)",
        (
            "lightning.fabric.utilities.exceptions.MisconfigurationException: Do not set "
            "`gradient_accumulation_steps` in the DeepSpeed config"
        ),
    ],
    "device_side_assert": [
        (
            "/w/ATen/native/hip/Indexing.hip:1292: indexSelectLargeIndex: Device-side assertion `srcIndex < "
            "srcSelectDimSize' failed."
        ),
        (
            "/w/native/cuda/Indexing.cu:1422: indexSelectLargeIndex: block: [31,0,0], thread: [0,0,0] "
            "Assertion `srcIndex < srcSelectDimSize`\nfailed."
        ),
        (
            "../aten/src/ATen/native/cuda/Indexing.cu:1308: indexSelectLargeIndex: block: [6,0,0] Assertion "
            "`srcIndex < srcSelectDimSize` failed."
        ),
    ],
    "no_network": [
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the "
        "cached files\n"
        "Checkout your internet connection or see how to run the library in offline mode at "
        "'https://huggingface.co/docs/transformers/installation#offline-mode'.",
    ],
    "conda_not_initialised": [
        (
            "usage: conda [-h] [-V] COMMAND ...\nconda: error: argument COMMAND: invalid choice: 'activate' "
            "(choose from 'clean', 'run')"
        ),
        "CondaEnvironmentNotFoundError: Could not find environment: train .",
        (
            "/var/spool/slurmd/job17/slurm_script: line 9: /home/user/miniconda3/etc/profile.d/conda.sh: No "
            "such file or directory"
        ),
        "slurm_script: line 9: /opt/anaconda3/bin/activate: No such file or directory",
        "critical libmamba Shell not initialized",
        "/home/u/miniconda3/etc/profile.d/conda.sh: line 51: PS1: unbound variable",
        "conda: Command not found.",
        "run.zsh:12: command not found: conda",
    ],
    "nccl_error": [
        (
            "[E net_dag.cc:188] caffe2::EnforceNotMet: [enforce fail at cuda_nccl_gpu.cc:24] status == "
            "ncclSuccess. 2 vs 0.  Error at: x.cc24: system error"
        ),
        (
            "F0725 01:08:55.576004 10039 parallel.cpp:200] Check failed: result == ncclSuccess (2 vs. 0)  "
            "system error"
        ),
    ],
    "shm_bus_error": [
        (
            "ERROR: Unexpected BUS error encountered in DataLoader worker. This might be caused by "
            "insufficient shared memory (shm)"
        ),
        "RuntimeError: Couldn't open shared file mapping: <torch_5316_1834758>, error code: <1455>",
        f"{BAR}Bus error (core dumped)",
        (
            "[2026-11-21 04:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits "
            "with return code = -7"
        ),
    ],
    "permission_denied": [
        "zsh: permission denied: ./train.sh",
        "docker: Error response from daemon: OCI runtime create failed: container_linux.go:380: starting "
        "container process caused: "
        'exec: "/app/run.sh": permission denied: unknown.',
    ],
    "slurm_invalid_request": [
        (
            "submitit.core.utils.FailedJobError: sbatch: error: Parameter --gres=gpu:1 no longer acceptable, "
            "please switch to --gpus=1"
        ),
    ],
    "segfault": [
        f"{BAR}Segmentation fault (core dumped)",
        "0it [00:00, ?it/s]Segmentation fault",
        "./train.sh: line 22: 1956726 Aborted                 (core dumped) python3 main.py",
        "terminate called without an active exception\nAborted (core dumped)",
        "  exitcode  : -6 (pid: 3042)",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)",
        "forrtl: severe (174): SIGSEGV, segmentation fault occurred",
        "[4411] signal (11.1): Segmentation fault\nin expression starting at /p/run.jl:12",
        "nid001.local: rank 12 died from signal 11 and dumped core",
        " *** caught segfault ***\naddress 0x8, cause 'memory not mapped'",
        "#\n#  SIGSEGV (0xb) at pc=0x00007f1, pid=12, tid=13",
        "# Ended (code 139) at Sun Aug 01 10:10:10 UTC 2021, elapsed time 12 seconds",
    ],
    "host_oom": [f"{BAR}Killed"],
    "user_interrupt": [
        (
            "WARNING tune.py:186 -- Stop signal received (e.g. via SIGINT/Ctrl+C), ending Ray Tune run. This "
            "will try to checkpoint"
        ),
    ],
    "sigterm_signal": [
        f"{BAR}Terminated",
        "lightning_fabric.utilities.exceptions.SIGTERMException",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)",
        "*** SIGTERM received by PID 2231 (TID 2231) on cpu 12 from PID 1; stack trace: ***",
    ],
    "nccl_network": [
        "n1:6015:6224 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer n2<59227>\n"
        + "n1:6015:6224 [1] NCCL INFO misc/socket.cc:546 -> 6\n" * 12
        + "n1:6015:6015 [1] NCCL INFO comm 0x1b838b90 rank 1 nranks 4 cudaDev 1 busId 7000 - Abort COMPLETE",
    ],
    "nan_loss": [
        "Epoch 1 Batch 50 Loss nan Accuracy 0.2588\nEpoch 1 Batch 100 Loss nan Accuracy 0.2588",
        "RuntimeError: Model diverged with loss = NaN.",
        "ValueError: Expected parameter loc (Parameter of shape (1,)) of distribution Normal(loc: Parameter "
        "containing:\n"
        "tensor([nan])) to satisfy the constraint Real(), but found invalid values:",
    ],
}
HEALTHY = {
    "TensorFlow looks for a GPU": """
        E tensorflow/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
        100/100 [==============================] - 5s 2ms/step - loss: 0.2976""",
    "JAX looks for a GPU": """
        INFO:jax._src.xla_bridge:Unable to initialize backend 'cuda': module 'jaxlib' has no attribute 'x'
        step 1 accuracy 0.3""",
    "an optional module": """
        No module named 'triton'
        cannot import name 'flash_attn_func' from 'flash_attn'
        step 1 loss 0.3
        step 2 loss 0.2""",
    "advice to install": """
        Warning: ImportError: requires `pip install flash-attn`, using eager attention
        T5Tokenizer requires the SentencePiece library
        Disabling PyTorch because PyTorch >= 2.4 is required but found 2.1.2
        # SIGSEGV handlers are installed
        Failed to load: KeyError: 'head.weight', falling back to random weights
        step 1 loss 0.3
        step 2 loss 0.2""",
    "a sanitizer": """
        /src/x.cc:12:3: runtime error: load of misaligned address 0x7f12 for type 'int', which requires 4 byte alignment
        Done""",
    "numpy only warns": """
        RuntimeWarning: numpy.ndarray size changed, may indicate binary incompatibility. Expected 88 from C header, got 96
        Done""",
    "dtypes, and both on the GPU": """
        Expected object of type torch.cuda.LongTensor but found type torch.cuda.FloatTensor: cast to it
        Done""",
    "bars with words behind them": """
        test:  20%|██        | 11/56 [00:02<00:08,  5.02it/s]Segmentation faulty pixels: 3
        test: 100%|██████████| 56/56 [00:11<00:00,  5.02it/s]Killed 3 of 40 agents
        Done""",
    "a script of somebody else": """
        zsh: permission denied: /etc/profile.d/site.sh
        epoch 1 loss 0.3
        epoch 2 loss 0.2""",
    "a sample that is left out": """
        ValueError: cannot reshape array of size 12 into shape (2,5): skipping sample 17
        epoch 1 loss 0.3
        epoch 2 loss 0.2""",
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in WORDINGS.items() for text in texts]
)
def test_wordings_of_other_versions_and_frameworks_lead_to_the_same_cause(cause: str, text: str) -> None:
    assert of_a_whole_log("Epoch 1 done", *text.split("\n"))[:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_nearly_the_same_words_in_a_healthy_log_are_no_alarm(name: str) -> None:
    assert not of_a_whole_log(*dedent(HEALTHY[name]).strip("\n").split("\n"))


def test_an_optional_module_that_is_missing_does_not_hide_the_error_that_ended_the_program() -> None:
    end = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert of_a_whole_log("No module named 'triton'", end)[:1] == ["cuda_oom"]
    assert of_a_whole_log("cannot import name 'f' from 'flash_attn'", end)[:1] == ["cuda_oom"]


def test_an_abort_is_reported_only_if_the_log_names_no_other_cause() -> None:
    end = ("terminate called after throwing an instance of 'c10::Error'", "Aborted (core dumped)")
    assert of_a_whole_log("  what():  CUDA error: device-side assert triggered", *end) == [
        "device_side_assert"
    ]
    assert "segfault" not in of_a_whole_log("RuntimeError: NCCL communicator was aborted on rank 1.", *end)


def test_an_import_that_failed_for_another_reason_is_still_reported() -> None:
    frames = ("Traceback (most recent call last):", '  File "/p/train.py", line 3, in <module>')
    assert of_a_whole_log(*frames, FAILED_IMPORT.strip(), "libfoo says no")[:1] == ["code_error"]


def test_a_column_that_is_called_as_a_variable_of_the_environment_is_a_mistake_of_the_program() -> None:
    frames = ("Traceback (most recent call last):", '  File "/p/rank.py", line 3, in <module>')
    assert of_a_whole_log(*frames, "    frame = frame[frame['RANK'] < 9]", "KeyError: 'RANK'")[:1] == [
        "code_error"
    ]
    own = "    rank = int(os.environ['RANK'])"
    deeper = '  File "<frozen os>", line 679, in __getitem__'
    assert of_a_whole_log(*frames, own, deeper, "KeyError: 'RANK'")[:1] == ["env_vars_missing"]


def test_a_missing_mpi_is_reported_with_the_package_that_needs_it() -> None:
    (finding,) = diagnose_log("RuntimeError: cannot load MPI library\n").findings
    assert (finding.rule, finding.summary) == ("ENV006", "mpi4py found no MPI library")
    assert finding.fixes[0].command == "python -m pip install mpich"
