"""Many short logs: all wordings of each cause, and healthy logs that sound bad."""

from __future__ import annotations

import math
from textwrap import dedent

import pytest

from coach.model.judging.finding import Severity
from tests.rules.examples import causes, diagnose_log, of_a_whole_log

FRAMES = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
WORDINGS = {
    "no_network": [
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in "
            "the cached files"
        ),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
            "them in the cached files."
        ),
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file "
        "on the Hub and we cannot find the requested "
        "files in the local cache. Please check your connection and try again or make sure your Internet "
        "connection is on.",
        (
            "ValueError: Connection error, and we cannot find the requested files in the cached path. Please "
            "try again or make sure your Internet connection is on."
        ),
        "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max "
        "retries exceeded with url: /gpt2/resolve/main/config.json "
        '(Caused by NameResolutionError("<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to '
        "resolve 'huggingface.co' ([Errno -2] Name or service not known)\"))",
        "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='download.pytorch.org', port=443): Max "
        "retries exceeded with url: /models/resnet18.pth "
        "(Caused by ConnectTimeoutError(<urllib3.connection.HTTPSConnection object at 0x7f>, 'Connection to "
        "download.pytorch.org timed out. (connect timeout=10)'))",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max "
        "retries exceeded with url: /graphql (Caused by "
        "NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new "
        "connection: [Errno 101] Network is unreachable'))",
        (
            "ConnectionError: Couldn't reach https://raw.githubusercontent.com/huggingface/datasets/2.0/datas"
            "ets/squad/squad.py (ConnectionError(MaxRetryError()))"
        ),
        "ConnectionError: Couldn't reach 'wikitext' on the Hub (LocalEntryNotFoundError)",
        "httpx.ConnectError: [Errno -3] Temporary failure in name resolution",
        (
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host s3.amazonaws.com:443 "
            "ssl:default [Network is unreachable]"
        ),
        "curl: (6) Could not resolve host: huggingface.co",
        "fatal: unable to access 'https://github.com/user/data.git/': Could not resolve host: github.com",
        "wget: unable to resolve host address ‘github.com’",
        "Failed to download (trying next):\n<urlopen error [Errno -2] Name or service not known>\n"
        + FRAMES
        + "RuntimeError: Error downloading train-images-idx3-ubyte.gz",
    ],
    "dataloader_pickle": [
        "TypeError: cannot serialize '_io.TextIOWrapper' object",
        (
            "multiprocessing.pool.MaybeEncodingError: Error sending result: '<x>'. Reason: "
            "'PicklingError(\"Can't pickle <class 'a'>\")'"
        ),
    ],
    "stale_nfs": [
        "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/data/x.npy'",
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/data/train'",
        "OSError: [Errno 121] Remote I/O error: '/scratch/data/train.bin'",
    ],
    "state_dict_mismatch": [
        (
            "Exception: Cannot load model parameters from checkpoint /runs/c.pt; please ensure that the "
            "architectures match."
        ),
        (
            "CheckpointingException: Global shape mismatch for loaded (torch.Size([50304, 1024])) and "
            "expected ((50432, 1024)) tensor for key model.embedding.weight"
        ),
        (
            "ValueError: Received incompatible tensor with shape (3, 3, 1, 64) when attempting to restore "
            "variable with shape (3, 3, 3, 64) and name conv2d/kernel:0."
        ),
        (
            "ValueError: Requested shape: (256, 32) is not compatible with the stored shape: (512, 32). "
            "Truncating/padding is disabled by setting of `strict=True`."
        ),
        (
            "ValueError: Size mismatch between saved torch.Size([8, 4]) and current: torch.Size([32]) for "
            "model.embed.weight"
        ),
        FRAMES
        + '  File "/env/lib/python3.9/site-packages/torch/distributed/checkpoint/default_planner.py", line '
        "131, in create_default_local_load_plan\n"
        "    md = metadata.state_dict_metadata[fqn]\nKeyError: 'pos_embedding'",
        "ValueError: You are trying to load a weight file containing 13 layers into a model with 19 layers.",
        (
            "ValueError: Layer count mismatch when loading weights from file. Model expected 5 layers, found "
            "4 saved layers."
        ),
        (
            "ValueError: Shape mismatch in layer #0 (named dense)for weight dense/kernel. Weight expects "
            "shape (3, 4). Received saved weight with shape (3, 5)"
        ),
        (
            "ValueError: Layer 'dense' expected 2 variables, but received 0 variables during loading. "
            "Expected: ['kernel', 'bias']"
        ),
        "Exception: Layer weight shape (4, 1, 9) not compatible with provided weight shape (5, 1, 9).",
        (
            "NotFoundError: Restoring from checkpoint failed. This is most likely due to a Variable name or "
            "other graph key that is missing from the checkpoint."
        ),
    ],
    "disk_quota": [
        (
            "RuntimeError: [enforce fail at inline_container.cc:325] . PytorchStreamWriter failed writing "
            "file data/53: file write failed"
        ),
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 13216422080 vs 13216421968",
    ],
    "cublas_cudnn_error": [
        (
            "RuntimeError: cublas runtime error : library not initialized at "
            "/pytorch/aten/src/THC/THCGeneral.cpp:216"
        )
    ],
    "cuda_oom": [
        (
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 15.91 GiB."
        ),
        (
            "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; "
            "55.01 GiB already allocated)"
        ),
        "Error out of memory at line 380 in file /src/bitsandbytes/csrc/pythonInterface.c",
        "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
        "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        (
            "mxnet.base.MXNetError: [12:00:00] src/storage/./pooled_storage_manager.h:161: cudaMalloc retry "
            "failed: out of memory"
        ),
        (
            "F0311 12:00:00.123456 1234 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out "
            "of memory\n*** Check failure stack trace: ***"
        ),
        "RuntimeError: Triton Error [CUDA]: out of memory",
        (
            "F tensorflow/core/common_runtime/gpu/gpu_device.cc:103] EigenAllocator for GPU ran out of "
            "memory when allocating 0.\nAborted (core dumped)"
        ),
        "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
            "/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory"
        ),
        (
            "ResourceExhaustedError:\n\nOut of memory error on GPU 0. Cannot allocate 98.0MB memory on GPU "
            "0, available memory is only 0.0B."
        ),
        (
            "MemoryError: batch 3 does not fit: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.56 "
            "GiB total capacity)"
        ),
        (
            "RuntimeError: cuda runtime error (2) : out of memory at "
            "/pytorch/aten/src/THC/generic/THCStorage.cu:58"
        ),
        (
            "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can "
            "be stored in KV cache (4096)."
        ),
        'multiprocessing.pool.RemoteTraceback:\n"""\n'
        + FRAMES
        + 'torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"""',
    ],
    "host_oom": [
        (
            "RuntimeError: unable to mmap 4976698592 bytes from file "
            "</data/pytorch_model-00001-of-00002.bin>: Cannot allocate memory (12)"
        ),
        "MemoryError: std::bad_alloc",
        "mpirun noticed that process rank 1 with PID 63 on node n8 exited on signal 9 (Killed).",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit "
        "detail: Worker unexpectedly exits "
        "with a connection error code 2. End of file. There are some potential root causes. (1) The process "
        "is killed by SIGKILL by OOM killer",
    ],
    "segfault": [
        "mpirun noticed that process rank 0 with PID 63 on node n8 exited on signal 11 (Segmentation fault).",
        "*** SIGSEGV received at time=1698236410 on cpu 12 ***",
        "free(): invalid pointer\nAborted (core dumped)",
        "*** Error in `python': double free or corruption (!prev): 0x0000000001ff97e0 ***",
        "*** SIGSEGV (@0x0) received by PID 7 (TID 0x7f0) from PID 0; stack trace: ***",
    ],
    "shm_bus_error": [
        "mpirun noticed that process rank 0 with PID 63 on node n8 exited on signal 7 (Bus error)."
    ],
    "cuda_unavailable": [
        "MisconfigurationException('No supported gpu backend found!')",
        (
            "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
            "cuda>=11.0"
        ),
        (
            "AssertionError: Invalid CUDA '--device 0' requested, use '--device cpu' or pass valid CUDA "
            "device(s)"
        ),
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
    ],
    "invalid_device_ordinal": [
        "RuntimeError: cuda runtime error (10) : invalid device ordinal at torch/csrc/cuda/Module.cpp:87",
        "MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0, 1]",
    ],
    "driver_too_old": ["Failed to initialize NVML: Driver/library version mismatch"],
    "no_kernel_image": [
        "RuntimeError: cutlassF: no kernel found to launch!",
        "ptxas fatal   : Value 'sm_90' is not defined for option 'gpu-name'",
    ],
    "file_not_found": [
        "RuntimeError: Found 0 files in subfolders of: /data/imagenet/train",
        "FileNotFoundError: Found no valid file for the classes cat, dog. Supported extensions are: .jpg",
        (
            "tensorflow.python.framework.errors_impl.NotFoundError: Unsuccessful TensorSliceReader "
            "constructor: Failed to find any matching files for model.ckpt"
        ),
        "huggingface_hub.utils._errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1-65)",
        "RuntimeError: Parent directory /scratch/out does not exist.",
        "AssertionError: tfrecords file not found: data/train_feature.tfrecords",
        "ValueError: Checkpoint folder /scratch/run/ckpt does not exist",
        "ValueError: Can't find a valid checkpoint at /runs/a/checkpoint-500",
        "OSError: work_dirs/faster_rcnn_r50.pth is not a checkpoint file",
        (
            "ValueError: Couldn't find cache for org/corpus for config 'default-17'\nAvailable configs in "
            "the cache: ['default-18']"
        ),
        FRAMES + '  File "train.py", line 9, in main\n    assert os.path.isdir(args.data)\nAssertionError',
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in main\n'
        "[rank0]:     assert root.exists()\n[rank0]: AssertionError",
    ],
    "hub_access": [
        "huggingface_hub.utils._errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-6)",
        (
            "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            "https://huggingface.co/x/y."
        ),
    ],
    "permission_denied": [
        "lmdb.ReadonlyError: mdb_dbi_open: Permission denied",
        (
            "PermissionError: [Errno 13] Unable to synchronously open file (unable to open file: name = "
            "'a.h5', errno = 13, error message = 'Permission denied')"
        ),
        "IOError: [Errno 13] Permission denied: '/data/train.bin'",
        (
            "tensorflow.python.framework.errors_impl.PermissionDeniedError: /logs/run; Permission denied "
            "[Op:CreateSummaryFileWriter]"
        ),
    ],
    "module_not_found": [
        (
            "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`: Please run `pip "
            "install transformers[torch]`"
        ),
        (
            "ImportError: Please install apex from https://www.github.com/nvidia/apex to use distributed and "
            "fp16 training."
        ),
    ],
    "fsdp_error": [
        "Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got HandleTrainingState.FORWARD",
        (
            "ValueError: expected to be in states [<TrainingState.BACKWARD_POST: 4>] but current state is "
            "TrainingState.IDLE"
        ),
        (
            "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while "
            "rank 1 is all-gathering 2"
        ),
        FRAMES
        + '  File "/env/lib/python3.11/site-packages/torch/distributed/fsdp/_init_utils.py", line 127, in '
        "_init\n"
        "    state = x[1]\nIndexError: list index out of range",
    ],
    "torch_compile_error": [
        FRAMES
        + (
            '  File "/env/lib/python3.11/site-packages/torch/_inductor/codecache.py", line 12, in load\n    '
            "raise x\nAssertionError"
        )
    ],
    "nan_loss": [
        "ValueError: The parameter loc has invalid values",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "FloatingPointError: Predicted boxes or scores contain Inf/NaN. Training has diverged.",
        "it 1 D loss: nan  G loss: 0.3\nit 2 D loss: nan  G loss: 0.2",
        (
            "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it "
            "cannot be clipped."
        ),
        "FloatingPointError: invalid value (nan) encountered in jit(train_step)",
        "      1/299      4.21G        nan        nan        nan         44        640\n" * 2,
        " 1201: nan, nan avg loss, 0.001000 rate, 3.211 seconds, 76864 images\n" * 2,
    ],
    "nccl_timeout": [
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', "
        "but store->get('0') got error: Socket Timeout"
    ],
    "pg_not_initialized": ["AssertionError: tensor model parallel group is not initialized"],
    "slurm_timeout": [
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit code 140.",
        "=>> PBS: job killed: walltime 3631 exceeded limit 3600",
        "submitit.core.utils.UncompletedJobError: Job not requeued because: timed-out too many times.",
    ],
    "slurm_preempted": [
        "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T04:13:06 DUE TO JOB REQUEUE ***",
        "TERM_PREEMPT: job killed after preemption.",
    ],
    "loss_divergence": [
        "Divergence threshold reached: val_loss = 812.1 > 100.0. Signaling Trainer to stop.",
        "Loss exploded to 378655.87500 at step 67464\nExiting due to exception: Loss exploded\n"
        + FRAMES
        + "Exception: Loss exploded\n"
        + FRAMES
        + "TypeError: exceptions must derive from BaseException",
    ],
    "cuda_version_mismatch": [
        (
            "RuntimeError:\nThe detected CUDA version (11.8) mismatches the version that was used to "
            "compile\nPyTorch (12.1)."
        ),
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:378] Loaded runtime CuDNN library: 7103 "
        "(compatibility version 7100) but source was "
        "compiled with 7005 (compatibility version 7000).\n" + FRAMES + "EOFError",
        (
            "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 9, 2) but found "
            "runtime version (8, 5, 0)."
        ),
    ],
    "slurm_cancelled": [
        "TERM_OWNER: job killed by owner.\nExited with exit code 143.",
        "slurmstepd-n1: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T04:13:06 ***\n"
        "scheduler - INFO - End scheduler at 'tcp://n1:8786'\n"
        + FRAMES
        + (
            "TimeoutError: Operation timed out after None seconds\nsrun: error: n1: task 0: Exited with exit "
            "code 1"
        ),
    ],
    "slurm_invalid_request": [
        (
            "  sbatch: error: invalid partition specified: batch\n  sbatch: error: Batch job submission "
            "failed: Invalid partition name specified"
        ),
        (
            "sbatch: error: qosmaxwalldurationperjoblimit\nsbatch: error: batch job submission failed: job "
            "violates accounting/qos policy"
        ),
    ],
    "amp_overflow": [
        "[Rank 0] step=2400, skipped=1501, lr=[0.0001], mom=[(0.9, 0.95)]\n"
        "[Rank 0] step=2500, skipped=1586, lr=[0.0001], mom=[(0.9, 0.95)]",
        "[deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1\n" * 3,
        (
            " lm loss: 3.1E+00 | loss scale: 1.0 | number of skipped iterations:  97 | number of nan "
            "iterations:   0 |\n"
        )
        * 3,
    ],
    "sigterm_signal": [
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/env/lib/python3.10/site-packages/torch/distributed/elastic/multiprocessing/api.py", line '
        "62, in _terminate_process_handler\n"
        '    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)\n'
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2890 got signal: 1",
    ],
    "rendezvous_timeout": [
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 7, for key: "
        "store_based_barrier_key:1 "
        "(world_size=8, worker_count=9, timeout=0:30:00) WARNING No nodes ran.",
    ],
    "rank_mismatch_collective": ["RuntimeError: Mismatch collective detected between ranks 0 and 1"],
    "hostname_resolution": [
        "socket.gaierror: [Errno 11001] getaddrinfo failed",
        "ConnectionError: [Errno -2] while asking for head-node",
    ],
    "port_in_use": [
        (
            "ConnectionError: Tried to launch distributed communication on port `29500`, but another process "
            "is utilizing it."
        ),
    ],
    "shape_mismatch": [
        "mat1 and mat2 shapes cannot be multiplied (512x2048 and 768x768)",
        (
            "ValueError: Using a target size (torch.Size([64])) that is different to the input size "
            "(torch.Size([64, 1])) is deprecated."
        ),
    ],
    "version_conflict": [
        "AttributeError: _ARRAY_API not found",
        (
            "RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision "
            "versions are incompatible"
        ),
        (
            "RuntimeError: Failed to import x because of the following error:\n/env/x.so: undefined symbol: "
            "_ZN3c105ErrorC2E"
        ),
    ],
    "slurm_node_fail": [
        "srun: error: Task launch for StepId=88.0 failed on node gpu3: Communication connection failure"
    ],
    "gloo_connect": ["RuntimeError: Application timeout caused pair closure"],
    "dataloader_worker_killed": ["RuntimeError: DataLoader timed out after 120 seconds"],
    "too_many_open_files": [
        "RuntimeError: unable to open shared memory object </torch_34_17> in read-write mode\n"
        + FRAMES
        + "OSError: [Errno 24] Too many open files"
    ],
    "checkpoint_corrupt": [
        "Error while deserializing header: MetadataIncompleteBuffer",
        (
            "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted "
            "or this is not a parquet file."
        ),
        "lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type",
        "EOFError: Compressed file ended before the end-of-stream marker was reached",
        "RuntimeError: unexpected EOF. The file might be corrupted.",
        "RuntimeError: [enforce fail at inline_container.cc:222] . file not found: archive/data.pkl",
    ],
    "code_error": [
        FRAMES + "cv2.error: OpenCV(4.5.5) resize.cpp:4052: error: (-215:Assertion failed) !ssize.empty()",
        FRAMES + "torch._C._LinAlgError: linalg.cholesky: the input is not positive-definite",
        FRAMES + "UserWarning: taken as an error",
        FRAMES + '  File "train.py", line 9, in main\n    assert not os.path.exists(out)\nAssertionError',
        FRAMES + "ValueError: Task cola/v2 not found. Available: sst2",
        (
            "<ipython-input-5-1> in <module>\n      1 for b in loader:\n----> 2     "
            "print(b['x'])\n\nKeyError: 'x'"
        ),
    ],
}
HEALTHY = {
    "a help text": """
        usage: train.py [-h] [--lr LR]
          --shm-size   raise it when you see 'DataLoader worker (pid 1) is killed by signal: Bus error'
          --port PORT  change it on 'RuntimeError: Address already in use'
          --retry      catch
                       'RuntimeError: CUDA error: an illegal memory access was encountered'
        Epoch 1 done""",
    "a text in quotes": '''
        """Known problems
        RuntimeError: CUDA error: device-side assert triggered
            happens when labels are out of range.
        RuntimeError: Default process group has not been initialized
        Segmentation fault
        Killed
        """
        training done, accuracy 0.93''',
    "comments and shown commands": """
        # RuntimeError: CUDA error: device-side assert triggered
        + trap 'echo "RuntimeError: No CUDA GPUs are available"' TERM
        accuracy 0.93""",
    "tests that went as they should": """
        tests/test_ddp.py::test_oom PASSED
        E   RuntimeError: CUDA error: an illegal memory access was encountered
        XFAIL tests/test_x.py::test_b - RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)
        ==== 20 passed, 1 xfailed in 3.2s ====""",
    "dynamo's fall back": """
        torch._dynamo.convert_frame: [WARNING] last reason
        WON'T CONVERT forward train.py line 3
        due to:
        Traceback (most recent call last):
          File "/env/site-packages/torch/_dynamo/x.py", line 1, in f
            g()
        torch._dynamo.exc.Unsupported: call_function
        step 1 accuracy 0.3""",
    "a thread of a tracker": """
        Training finished, best acc 0.93
        Exception in thread Thread-3:
        Traceback (most recent call last):
          File "/env/site-packages/wandb/sdk/a.py", line 1, in run
            self.f()
        BrokenPipeError: [Errno 32] Broken pipe""",
    "a job that requeued itself": """
        Received SIGTERM, saving checkpoint
        Checkpoint saved to ckpt.pt
        Requeued job 17""",
    "an attempt that was preempted, and the next": """
        slurmstepd: error: *** JOB 17 ON node1 CANCELLED AT 2026-11-21T04:00:00 DUE TO PREEMPTION ***
        Resuming from checkpoint last.ckpt at step 12000
        step 12100 loss 1.21
        step 12200 loss 1.20
        Training complete.""",
    "a helper's end": """
        container tb-sidecar exited with code 137
        Training finished successfully""",
    "a step that was ended at the end": """
        srun: Force Terminated StepId=17.3
        Done""",
    "a command that a script went on without": """
        ssh: Could not resolve hostname backup: Name or service not known
        Done""",
    "words about memory": """
        note: DefaultCPUAllocator: not enough memory would appear with batch 4096
        std::bad_alloc handler installed
        Done""",
    "words about NCCL": """
        Enabling workaround for NCCL error: see #123
        NCCL communicator was aborted gracefully at shutdown
        Done""",
    "a fault of a program that went on": """
        dmesg: NVRM: Xid (PCI:0000:3b:00): 43, pid=1, Ch 00000010
        Done""",
    "words about ports": """
        hparams: {'on_error': 'EADDRINUSE'}
        error_handlers: [Errno 98] Address already in use -> retry
        Done""",
    "what is not known yet": """
        Epoch 1: val_loss improved from inf to 0.41235, saving model
        best_val_loss=inf
        epoch 1 train_loss 2.0 val_loss nan
        epoch 2 train_loss 1.9 val_loss nan""",
    "TensorFlow on a CPU": """
        W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file
        E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:8454] Unable to register cuDNN factory
        100/100 [==============================] - 5s 2ms/step - loss: 0.2976""",
    "a scale that was found far below": (
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.0\n"
    )
    + "".join(
        (
            f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0**-n}\nstep {n} "
            f"loss: 9.{n}\n"
        )
        for n in range(1, 4)
    )
    + "".join(f"step {n} loss: 8.{n}\n" for n in range(4, 9)),
    "steps skipped while a scale is found": (
        "[Rank 0] step=40, skipped=21, lr=[0.0001]\n[Rank 0] step=400, skipped=21, lr=[0.0001]"
    ),
    "what others say in data": """
        Example 0: Q: Why do I get "Segmentation fault (core dumped)"? A: Because of a null pointer.
        Example 1: Q: ModuleNotFoundError: No module named 'numpy' A: pip install numpy
        {'loss': 1.9, 'epoch': 0.01}""",
}
PARTS = [
    "{'loss': %s, 'aux_loss': nan}",
    "epoch 1 train_loss %s reg_loss nan",
    "step 1 | loss: %s | kd_loss: nan | lr: 0.1",
    "step 1 cls_loss 0.1 KL loss: nan total_loss: %s",
]


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in WORDINGS.items() for text in texts]
)
def test_every_wording_at_the_end_of_a_log_leads_to_its_cause(cause: str, text: str) -> None:
    assert of_a_whole_log("Epoch 1 done", *text.split("\n"))[:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_that_sounds_bad_is_no_alarm(name: str) -> None:
    assert not of_a_whole_log(*dedent(HEALTHY[name]).strip("\n").split("\n"))


@pytest.mark.parametrize("line", PARTS)
def test_a_nan_of_another_series_is_info_beside_a_finite_training_loss(line: str) -> None:
    text = "".join(f"{line % loss}\n" for loss in (2.0, 1.9, 1.8))
    findings = diagnose_log(text).findings
    assert [(finding.rule, finding.severity) for finding in findings] == [("NUM001", Severity.INFO)]


@pytest.mark.parametrize("line", PARTS)
def test_a_nan_in_the_training_loss_is_an_alarm_whatever_stands_beside_it(line: str) -> None:
    assert causes(diagnose_log(f"{line % 2.0}\n" + f"{line % math.nan}\n" * 3)) == ["nan_loss"]


def test_a_script_that_prints_done_after_a_failed_program_hides_no_cause() -> None:
    died = ("RuntimeError: CUDA error: an illegal memory access was encountered", "Training finished", "Done")
    assert of_a_whole_log(*died) == ["illegal_memory_access"]
    assert of_a_whole_log(*FRAMES.splitlines(), "ValueError: bad label", "Done") == ["code_error"]


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("host_oom", "slurm_script: line 9: 4242 Killed      python train.py"),
        ("permission_denied", "slurm_script: line 9: ./train.sh: Permission denied"),
        (
            "port_in_use",
            "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.",
        ),
        (
            "nccl_timeout",
            (
                "[E ProcessGroupNCCL.cpp:1413] [PG 1 Rank 5] Heartbeat monitor timed out! Process will be "
                "terminated"
            ),
        ),
        (
            "slurm_invalid_request",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        ),
        (
            "xid_hw_error",
            "[12.6] NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus.",
        ),
    ],
)
def test_the_cause_is_found_although_the_script_prints_that_the_job_is_done(cause: str, line: str) -> None:
    assert of_a_whole_log("Epoch 1 done", line, "Job finished at Sat Nov 21 10:10:10 UTC", "Done") == [cause]
