"""The wordings of libraries, launchers and the shell for memory, files or storage that is missing or
unusable."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.rules.examples import of_a_whole_log

FRAMES = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
SENDING = FRAMES + '  File "/env/lib/python3.9/multiprocessing/reduction.py", line 60, in dump\n    x\n'
WORDINGS = {
    "cuda_oom": [
        "MemoryError: ('Error allocating 1073741824 bytes of device memory (out of memory).', 'x')",
        "[LightGBM] [Fatal] [CUDA] out of memory /src/io/cuda/cuda_tree.cpp 35",
        "ValueError: Prefill out of memory. Try to lower your batch size.",
        (
            "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: a, alloc size: "
            "20132659200B."
        ),
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "RuntimeError: No executable batch size found, reached zero.",
        (
            "  what():  [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, p, s): out of "
            "memory (/src/tllmBuffers.h:117)"
        ),
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "openmm.OpenMMException: Error creating array savedForces: CUDA_ERROR_OUT_OF_MEMORY (2)",
        (
            "dgl._ffi.base.DGLError: [11:02:33] /src/cuda_device_api.cc:117: Check failed: e == cudaSuccess: "
            "CUDA: out of memory"
        ),
        (
            "ERROR (nnet3-train[5.5]:AllocateNewRegion():cu-allocator.cc:491) Failed to allocate a memory "
            "region. CUDA error: 'out of memory'"
        ),
        "ERROR: LoadError: Out of GPU memory trying to allocate 7.451 GiB",
        "RuntimeError: CUDA failed with error out of memory",
        (
            "RuntimeError: Error: 'err == cudaSuccess' failed: alloc fail type FlatData dev 0 size 3072 "
            "bytes (cudaMalloc error out of memory [2])"
        ),
        "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : "
        "RUNTIME_EXCEPTION : bfc_arena.cc:342 "
        "void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for "
        "requested buffer of size 6442450944",
    ],
    "host_oom": [
        (
            "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node n1 is used (60.9 / "
            "64.0 GB)."
        ),
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process was unexpectedly "
        "terminated.\n\n"
        "The exit codes of the workers are {SIGKILL(-9)}",
        "pyarrow.lib.ArrowMemoryError: realloc of size 4294967296 failed",
        "_duckdb.OutOfMemoryException: Out of Memory Error: could not allocate block of size 256.0 "
        "KiB (19.0 MiB/19.0 MiB used)",
        "memory allocation of 8589934592 bytes failed\nAborted (core dumped)",
        "Fatal error:\nNot enough memory. Failed to realloc 1389300000 bytes for nbl->cj, nbl->cj=0x0",
        "forrtl: severe (41): insufficient virtual memory",
        "Error: cannot allocate vector of size 14.9 Gb",
        "Error in matrix(0, n, n) : \n  cannot allocate vector of size 14.9 Gb",
        "    State:          Terminated\n      Reason:       OOMKilled",
        "ERROR: LoadError: OutOfMemoryError()",
    ],
    "shm_bus_error": [
        "[node01:12345:0:12345] Caught signal 7 (Bus error: nonexistent physical address)",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)",
        (
            "It appears as if there is not enough space for /dev/shm/vader_segment.n1.1000.3 (the "
            "shared-memory backing"
        ),
        "SystemError: (Fatal) DataLoader process (pid   1. If run DataLoader by "
        "DataLoader.from_generator(...).) exited is killed by signal: 17.\n"
        "  It may be caused by insufficient shared storage space.",
    ],
    "dataloader_worker_killed": [
        (
            "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the "
            "error, disable multiprocessing."
        ),
        "RuntimeError: DataLoader 2 workers exit unexpectedly, pids: 4211, 4212",
        (
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated "
            "abruptly while the future was running or pending."
        ),
        'Traceback (most recent call last):\n  File "/env/torch/utils/data/dataloader.py", line 724, in '
        "_try_get_data\n    raise Empty\n_queue.Empty\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        + FRAMES
        + "RuntimeError: DataLoader worker (pid(s) 18360) exited unexpectedly",
    ],
    "dataloader_pickle": [
        SENDING + "OverflowError: cannot serialize a bytes object larger than 4 GiB",
        SENDING + "struct.error: 'i' format requires -2147483648 <= number <= 2147483647",
        SENDING + "TypeError: no default __reduce__ due to non-trivial __cinit__",
        SENDING + "ValueError: ctypes objects containing pointers cannot be pickled",
        SENDING + "RecursionError: maximum recursion depth exceeded while pickling an object",
        SENDING + "TypeError: Pickling an AuthenticationString object is disallowed for security reasons",
        "RuntimeError: Queue objects should only be shared between processes through inheritance",
        "TypeError: Could not serialize the function __main__.train_func:",
    ],
    "too_many_open_files": [
        (
            "[n1:1] [[11234,0],0] ORTE_ERROR_LOG: The system limit on number of pipes a process can open was "
            "reached in file odls.c at line 807"
        ),
        (
            "ImportError: /env/lib/_csv.cpython-38-x86_64-linux-gnu.so: cannot open shared object file: Too "
            "many open files"
        ),
    ],
    "disk_quota": [
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/home/user']",
        "sqlite3.OperationalError: database or disk is full",
        "ray.exceptions.OutOfDiskError: Local disk is full",
        "OSError: 268435456 requested and 203423744 written",
        "train/000000123.jpg:  write error (disk full?).  Continue? (y/n/^C) ",
    ],
    "permission_denied": [
        "python: can't open file '/home/other/train.py': [Errno 13] Permission denied",
        (
            "docker: permission denied while trying to connect to the Docker daemon socket at "
            "unix:///var/run/docker.sock.\nSee 'docker run --help'."
        ),
        (
            "RuntimeError: open file failed because of errno 13 on fopen: Permission denied, file path: "
            "/models/model.pt"
        ),
        "sqlite3.OperationalError: attempt to write a readonly database",
        "FATAL:   could not open image /containers/torch.sif: lstat /containers: permission denied",
        "[proxy:0:0@n1] HYDU_create_process (launch.c:75): execvp error on file ./train (Permission denied)",
        "fatal: could not create work tree dir 'repo': Permission denied",
    ],
    "file_not_found": [
        (
            "/var/spool/slurmd/job4411/slurm_script: line 9: /home/user/env/bin/python: No such file or "
            "directory"
        ),
        (
            "ERROR (copy-feats[5.5.0]:SequentialTableReader():kaldi-table-inl.h:860) Error constructing "
            "TableReader: rspecifier is scp:data/train/feats.scp"
        ),
        (
            "tensorflow.python.framework.errors_impl.NotFoundError: /data/a.tfrecord; No such file or "
            "directory [Op:IteratorGetNext]"
        ),
        "OSError: /models/llama does not appear to have a file named config.json.",
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/models/x'."
        ),
        "OSError: Model file not found: checkpoints/checkpoint_best.pt",
        "soundfile.LibsndfileError: Error opening '/data/a.wav': System error.",
        "RuntimeError: Error loading audio file: failed to open file /data/a.wav",
        (
            "decord._ffi.base.DECORDError: [10:02:11] /src/video_reader.cc:151: ERROR opening: /data/a.mp4, "
            "No such file or directory"
        ),
        FRAMES
        + (
            'RuntimeError: Exception thrown in ImageFileReader_Execute:\nsitk::ERROR: The file "/a.nii" does '
            "not exist."
        ),
        "rasterio.errors.RasterioIOError: /data/a.tif: No such file or directory",
        "utils/validate_data_dir.sh: no such file data/train/feats.scp",
        "mpirun was unable to find the specified executable file, and therefore\ndid not launch the job.",
        (
            "[proxy:0:0@n1] HYDU_create_process (launch.c:75): execvp error on file ./train (No such file or "
            "directory)"
        ),
    ],
    "io_error": [
        "OSError: [Errno 5] Input/output error: '/lustre/data/train.bin'",
        "OSError: [Errno 5] Error reading bytes from file. Detail: [errno 5] Input/output error",
    ],
    "stale_nfs": [
        "FATAL:   container creation failed: could not mount /nfs/data: stale file handle",
        (
            "python: error while loading shared libraries: libpython3.8.so.1.0: cannot read file data: Stale "
            "file handle"
        ),
    ],
    "checkpoint_corrupt": [
        "_pickle.UnpicklingError: could not find MARK",
        "_pickle.UnpicklingError: A load persistent id instruction was encountered,",
        "EOFError: No data left in file",
        "gzip.BadGzipFile: Not a gzipped file (b'<!')",
        "zlib.error: Error -3 while decompressing data: incorrect header check",
        "OSError: Can't read data (inflate() failed)",
        "gguf_init_from_file_impl: invalid magic characters: '<!DO', expected 'GGUF'",
        "OSError: You seem to have cloned a repository without having git-lfs installed.",
        (
            "ValueError: The state dictionary of the model you are trying to load is corrupted. Are you sure "
            "it was properly saved?"
        ),
        'RuntimeError: invalid hash value (expected "0676ba61", got "b5b1a9cc")',
        "RuntimeError: Model has been downloaded but the SHA256 checksum does not not match.",
        (
            "could not load the checkpoint\nunexpected EOF, expected 3302200 more bytes. The file might be "
            "corrupted."
        ),
        (
            "llama_model_load: error loading model: tensor 'blk.30' data is not within the file bounds, "
            "model is corrupted or incomplete"
        ),
        (
            "InvalidProtobuf: [ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from model.onnx "
            "failed:Protobuf parsing failed."
        ),
        (
            "RuntimeError: Internal: sentencepiece_processor.cc(1101) "
            "[model_proto->ParseFromArray(serialized.data(), serialized.size())]"
        ),
        "OSError: Failed to interpret file '/models/w.npz' as a pickle",
    ],
}
HEALTHY = {
    "a script that lacks one of its commands": """
        ./run.sh: line 3: ./local/clean.sh: No such file or directory
        step 1 loss 1.1
        step 2 loss 1.0""",
    "a file that is fetched once more": """
        RuntimeError: invalid hash value (expected "0676ba61", got "b5b1a9cc"), retrying download
        step 1 loss 1.1
        step 2 loss 1.0""",
    "TensorFlow's allocator": """
        W tensorflow/bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB. The caller indicates that this is not a failure
        I tensorflow/cuda_driver.cc:831] failed to allocate 10.76G (11553800192 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
        500/500 [==============================] - 151s 301ms/step - loss: 1.3011""",
    "a temporary folder on NFS that multiprocessing cannot remove": """
        Epoch 10: loss 0.91
        Traceback (most recent call last):
          File "/env/lib/python3.9/multiprocessing/util.py", line 300, in _run_finalizers
            finalizer()
          File "/env/lib/python3.9/shutil.py", line 667, in _rmtree_safe_fd
            os.unlink(entry.name, dir_fd=topfd)
        OSError: [Errno 16] Device or resource busy: '.nfs00000001d2e3f4a500000012'
        Training complete in 34m 12s""",
    "files that are passed over": """
        WARNING: skipping /data/a.tar: tarfile.ReadError: unexpected end of data
        WARNING: OSError: [Errno 5] Input/output error: '/data/b.jpg', skipping
        Model file not found: last.pt, starting from scratch
        step 1 loss 1.1
        step 2 loss 1.0""",
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in WORDINGS.items() for text in texts]
)
def test_wordings_of_a_missing_resource_lead_to_its_cause(cause: str, text: str) -> None:
    assert of_a_whole_log("Epoch 1 done", *text.split("\n"))[:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_resource_that_was_missed_and_not_needed_is_no_alarm(name: str) -> None:
    assert not of_a_whole_log(*dedent(HEALTHY[name]).strip("\n").split("\n"))
