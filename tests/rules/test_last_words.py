"""How a program ended, by the last words of its log: cut, wrapped and prefixed tracebacks, programs that
are not Python, launchers and batch systems. No silence on a visible failure, no
alarm where it went on."""

from __future__ import annotations

from textwrap import dedent

import pytest

from coach.model.judging.finding import Severity
from tests.rules.examples import diagnose_whole

FRAMES = """\
Traceback (most recent call last):
  File "/home/ada/seg/fit.py", line 90, in <module>
    main()
  File "/home/ada/seg/fit.py", line 71, in main
    out = model(images)
"""
COMPILING = """\
Traceback (most recent call last):
  File "/home/ada/seg/fit.py", line 90, in <module>
    y = net(x)
  File "/env/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", line 465, in _fn
    return fn(*args, **kwargs)
  File "/env/lib/python3.12/site-packages/triton/compiler/compiler.py", line 273, in compile
    module = src.make_ir(options, codegen_fns, context)
"""
PACKAGE_R = "Error in library(lme4) : there is no package called 'lme4'\nExecution halted"
ENDS: dict[str, list[str]] = {
    "unknown_failure": [
        FRAMES,
        "".join(f"{line}\n" for line in FRAMES.splitlines()[:4]),
        "".join(f"(Actor pid=71) {line}\n" for line in FRAMES.splitlines()),
        "".join(f"3: {line}\n" for line in FRAMES.splitlines()[1:]),
        'File "/home/ada/fit.py", line 9, in run\nnet(x)\nFile "/home/ada/net.py", line 4, in call\ny = f(x)',
        "N E X T F L O W  ~  version 24.04.2\nERROR ~ No such variable: reads\n\n -- Check "
        "'.nextflow.log' file",
        "Error in rule align:\n    jobid: 4\nExiting because a job execution failed. Look above for "
        "error message",
        "step 3\nMPI_ABORT was invoked on rank 2 in communicator MPI COMMUNICATOR 3\nwith errorcode "
        "1.\n\nNOTE: x",
        "it 3\nAbort(1) on node 4: application called MPI_Abort(comm=0x84, 1) - process 4",
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 71 RUNNING AT node3\n=   "
        "EXIT CODE: 9",
        "sweep_config failed",
        "step 3\nsrun: error: n1: task 1: Exited with exit code 1\nsrun: Terminating job step 17.0\n"
        "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-02-01T00:00:00 ***\n"
        "srun: error: n1: tasks 0,2-3: Exited with exit code 1",
        "".join(f"rule sort{n}:\n    jobid: {n}\n\nFinished job {n}.\n" for n in range(4))
        + "Error in rule align:\n    jobid: 4\n\nError executing rule align on cluster (jobid: 4, external: "
        "Submitted batch job 71)\nExiting because a job execution failed. Look above for error message\n"
        "Complete log: /home/ada/.snakemake/log/1.snakemake.log",
        "epoch 1\n[2026-03-01 09:00:00,120][app.main][ERROR] - no shard fits pattern 'x*'\n"
        "[2026-03-01 09:00:00,130][app.main][INFO] - closing the pool",
        "2026-03-01 09:00:00.120 | ERROR    | app.main:run:17 - the vocabulary is empty",
        "ERROR:root:cannot find a split called dev2",
        "CRITICAL:app:stopping, the vocabulary is empty",
        "(raylet, ip=10.0.0.3) A worker died or was killed while executing a task by an unexpected "
        "system error.",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat A.run(A.java:3)',
    ],
    "scheduler_epilogue": [
        "t = 3\n   Job Id:   17.pbs\n   Exit Status:        271\n   NCPUs Requested:   4   NCPUs Used: 4",
        "t = 3\nExited with exit code 7.\n\nResource usage summary:\n\n    CPU time :   31.00 sec.",
    ],
    "torch_compile_error": [
        COMPILING,
        "".join(f"[rank1]: {line}\n" for line in COMPILING.splitlines()),
        FRAMES + "subprocess.CalledProcessError: Command '['/opt/cuda/bin/ptxas', '--gpu-name=sm_121a', "
        "'/tmp/a.ptx']'"
        " returned non-zero exit status 255.",
    ],
    "code_error": [
        "ERROR: MethodError: no method matching step!(::Nothing)\nStacktrace:\n [1] top-level scope\n   "
        "@ /h/a.jl:3",
        "Error in solve.default(a) : \n  system is computationally singular\nCalls: fit -> "
        "solve\nExecution halted",
        "Error: object 'rates' not found\nExecution halted",
        FRAMES + "AssertionError:\n  batch 12 has 3 classes,\n  the head has 2",
        "File \"/home/ada/a.py\", line 3, in load\nreturn rows[key]\nKeyError: 'mask'",
        "cp: cannot stat 'extra.yaml': No such file or directory\n"
        + FRAMES
        + "IndexError: list index out of range",
        "mkdir: cannot create directory '/data': Permission denied\n"
        + FRAMES
        + "ZeroDivisionError: division by zero",
        "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-02-01T00:00:00 ***\n"
        + "".join(f"sweep {n} energy -{n}.5\n" for n in range(250))
        + "Error in optim(p) : non-finite value supplied by optim\nExecution halted",
        "KeyError: 'mask'\n" + FRAMES,
        FRAMES + "EOFError",
        "RuntimeError: module compiled against API version 0xe but this version of numpy is 0xd\n"
        + FRAMES
        + "KeyError: 'mask'",
        FRAMES.replace("    main()", "Using seed 7\n    main()") + "KeyError: 'mask'",
        '  File "/home/ada/fit.py", line 4\n    \n    ^\nSyntaxError: unexpected EOF while parsing',
        "{Error using readmatrix (line 149)\nUnable to find column x.\n\nError in fit (line 3)\n}",
        "[n1:71] pml_ob1_sendreq.c:308 FATAL",
        "fatal Fortran runtime error(./in.f90:9): End of file during input\n"
        "/bin/sh: line 1:  71 Aborted   ./in",
        "Error: package or namespace load failed for ‘stats’:\n object ‘x’ not found",
        "WorkflowError:\nFailed to open source file profile/config.yaml",
    ],
    "device_mismatch": [
        FRAMES + "RuntimeError: Expected all tensors to be on the\nsame device, but found at least two "
        "devices, cuda:0 and "
        "cpu!",
        "".join(f"[rank2]: {line}\n" for line in FRAMES.splitlines())
        + "[rank2]: RuntimeError:\n[rank2]: Expected all tensors to be on the same device, but found at "
        "least two "
        "devices, cuda:0 and cpu!",
    ],
    "slurm_cancelled": [
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-02-01T00:00:00 ***\n"
        "[71] signal 15: Terminated\nin expression starting at /home/ada/fit.jl:7\n"
        + "uv_cond_wait at /src/libuv/thread.c:822\nclone at /lib64/libc.so.6 (unknown line)\n"
        "unknown function (ip: (nil))\n" * 120,
        "Job Name: fit\njob deleted\nJob deleted at request of root@head.cluster",
    ],
    "slurm_timeout": [
        "Job deleted at request of root@head.cluster\nMOAB_INFO:  job exceeded wallclock limit",
        "epoch 3\nfailed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
        "job 17.1 exceeded hard wallclock time - initiate terminate method",
    ],
    "sigterm_signal": ["trees:  20% (117/558) [#      ] eta 28:34:54 \\Terminated"],
    "container_start": [
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
        "ERRO[0000] error waiting for container:",
        "Unable to find image 'seg:3' locally\ndocker: Error response from daemon: pull access denied for "
        "seg, repository does not exist or may require 'docker login'",
        "FATAL:   container creation failed: mount /d->/d error: while mounting /d: mount source /d doesn't "
        "exist",
    ],
    "version_conflict": [
        "Solving environment: failed\n\nResolvePackageNotFound: \n"
        + "".join(f"  - lib{n}==1.{n}=h{n}\n" for n in range(60)),
        FRAMES + "TypeError: load() missing 1 required positional argument: 'Loader'",
    ],
    "checkpoint_world_size": [
        FRAMES + "AssertionError: pipeline_model_parallel_size value from checkpoint (4) is not equal to the "
        "input argument value (2).",
        FRAMES + "AssertionError: Loading a checkpoint for MP=2 but world size is 8",
    ],
    "bad_arguments": [
        "Usage: fit.py [OPTIONS]\nTry 'fit.py --help' for help.\n\nError: No such option: --rate",
        "ERROR: Could not consume arg: --rate\nUsage: fit.py <flags>",
        FRAMES + "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--rate', '3']",
    ],
    "module_not_found": [
        PACKAGE_R,
        "ERROR: LoadError: ArgumentError: Package Flux not found in current path.",
    ],
    "file_not_found": [
        "starting\n/var/spool/slurmd/job9/slurm_script: line 3: mpirun: command not found",
        "slurm_script: line 4: cd: /data/runs/7: No such file or directory",
        FRAMES + "RuntimeError: File /data/out/last.pt cannot be opened.",
        "Error using dlmread (line 61)\nThe file 'feats/1.mat' could not be opened\nbecause: No such file",
        FRAMES + "utils.TelemacException: In /run/t2d.cas missing file for GEOMETRY FILE:\n geo.slf",
    ],
    "mpi_launch": [
        "There are not enough slots available in the system to satisfy the 16\nslots that were "
        "requested:\n\n  hostname",
        'The application appears to have been direct launched using "srun",\nbut OMPI was not built with it',
        "srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed\n"
        "srun: error: MPI: Cannot create context for mpi/pmix",
        "srun: error: task 3 launch failed: Unspecified error",
        "srun: error: timeout waiting for task launch, started 0 of 4 tasks",
        "[n5] [[19,0],1] selected pml ob1, but peer [[19,0],0] on n4 selected pml ucx",
        "/opt/ompi/bin/mpirun: Error: unknown option \"--hnp\"\nType 'mpirun --help' for usage.",
    ],
    "slurm_invalid_request": [
        "sbatch: error: Your project has no hours left: use --qos=low",
        "sbatch: error: ==========\nsbatch: error: Jobs of this partition need a GPU: --gres=gpu:1",
        "srun: error: You must name an account: --account",
        "salloc: error: *** ERROR *** interactive jobs end after 2 hours",
        "qsub: Unknown queue MSG=cannot locate queue",
        "Error in rusage section: The value is above RESRSV_LIMIT of the queue. Job not submitted.",
    ],
    "service_login": [
        "wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])\n" + FRAMES,
        "wandb: Paste an API key from your profile and hit enter, or press ctrl+c to quit:",
        "License checkout failed.\nLicense Manager Error -9",
    ],
    "empty_dataset": [
        "`Trainer.fit` stopped: No training batches.",
        "INFO:lightning_fabric.utilities.rank_zero:`Trainer.fit` stopped: No training batches.",
        FRAMES + "ValueError: num_samples should be a positive integer value, but got num_samples=0",
    ],
    "hostname_resolution": ["nslookup: can't resolve 'trainer-0': Name does not resolve"],
    "no_network": [
        "wget: bad address 'files.example.org'",
        "License checkout failed.\nLicense Manager Error -15",
    ],
    "host_oom": [
        "Job 17.pbs has exceeded memory allocation on node cn-3",
        " 40%|####  | 4/10 [00:40<01:00, 10.0s/it] Killed",
        "Error: .onLoad failed in loadNamespace() for 'utils', details:\n  error: cannot popen "
        "'/usr/bin/which R', probable reason 'Cannot allocate memory'",
    ],
    "rendezvous_timeout": [
        "Waiting in store based barrier to initialize process group for rank: 1, key: "
        "store_based_barrier_key:1 "
        "(world_size=8, worker_count=2, timeout=0:30:00)\n" * 4,
    ],
    "cuda_oom": [
        FRAMES + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. "
        "Ran out of memory in memory space hbm. Used 21G of 7G hbm.",
        "3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        + "".join(f"0: step {n} loss 1.{n}\n" for n in range(40))
        + "srun: error: n1: tasks 2-3: Exited with exit code 1",
    ],
}
HEALTHY = {
    "a finalizer's exception": """
        epoch 3 loss 0.3
        Exception ignored in: <function Pool.__del__ at 0x7f>
        Traceback (most recent call last):
          File "/env/lib/python3.12/multiprocessing/pool.py", line 268, in __del__
        TypeError: 'NoneType' object is not callable
        exit code: 0
        """,
    "an R function that was tried": """
        Error in optim(start) : initial value is not finite
        next start value
        [1] "fit 2"
        [1] "fit 3"
        rmse 0.2
        """,
    "a logged error and steps": """
        2026-03-01 09:00:00,120 - hook - ERROR - the mail server does not answer
        2026-03-01 09:00:10,120 - train - INFO - epoch 4 loss 0.31
        """,
    "a warm-up that failed": """
        cache_warmup failed
        epoch 3 loss 0.4
        epoch 4 loss 0.3
        """,
    "places that a program prints": """
        saved at ./runs/a.pt:3
        epoch 3 loss 0.4
        """,
    "jobs of a workflow": """
        rule align:
            jobid: 1
        Finished job 1.
        rule sort:
            jobid: 2
        Finished job 2.
        """,
    "a task that nextflow retried": """
        [71/0c] NOTE: Process `B (2)` terminated with an error exit status (143) -- Execution is retried (1)
        [71/0c] process > B (2) [100%] 2 of 2, retries: 1
        Succeeded   : 6
        """,
    "a batch system's last words": """
        epoch 4 loss 0.31
           Job Id:             17.pbs
           Exit Status:        0
        """,
    "a fault handler's stacks": """
        Thread 0x00007f (most recent call first):
          File "/home/ada/fit.py", line 14 in wait
          File "/home/ada/fit.py", line 20 in <module>
        """,
    "a plugin that sbatch misses": """
        sbatch: error: spank: x11.so: Plugin file not found
        Submitted batch job 17
        """,
    "a script of the site": """
        Traceback (most recent call last):
          File "/etc/site/motd.py", line 3, in <module>
            import requests
        ModuleNotFoundError: No module named 'requests'
        epoch 1 loss 0.9
        epoch 2 loss 0.8
        """,
    "a command that its script missed": """
        job.sh: line 4: nvidia-smi: command not found
        epoch 1 loss 0.9
        epoch 2 loss 0.8
        """,
    "a file that its script missed": """
        job.sh: line 4: ./extra.sh: No such file or directory
        epoch 1 loss 0.9
        epoch 2 loss 0.8
        """,
}


@pytest.mark.parametrize(("cause", "log"), [(cause, log) for cause, logs in ENDS.items() for log in logs])
def test_a_visible_failure_is_told_with_its_cause(cause: str, log: str) -> None:
    findings = diagnose_whole(log.rstrip("\n") + "\n").findings
    assert [each.cause for each in findings if each.severity >= Severity.WARNING][:1] == [cause]


@pytest.mark.parametrize("name", HEALTHY)
def test_words_of_an_end_above_a_program_that_went_on_are_no_alarm(name: str) -> None:
    findings = diagnose_whole(dedent(HEALTHY[name]).lstrip("\n")).findings
    assert [each for each in findings if each.severity >= Severity.WARNING] == []


def test_a_message_below_its_type_is_quoted_whole() -> None:
    (finding,) = diagnose_whole(FRAMES + "ValueError:\n  expected 3 columns,\n  got 2\n").findings
    assert finding.summary == "ValueError: expected 3 columns, got 2"


def test_a_cut_traceback_names_its_innermost_frame() -> None:
    (finding,) = diagnose_whole(FRAMES).findings
    assert finding.summary == (
        "The log ends inside a traceback, so its error is not in it: "
        'File "/home/ada/seg/fit.py", line 71, in main'
    )


def test_the_tasks_that_jax_waited_for_are_named() -> None:
    message = "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Timed out task names:"
    lines = f"{FRAMES}jaxlib.xla_extension.{message}\n/job:jax_worker/replica:0/task:6\n"
    finding = diagnose_whole(lines).findings[0]
    assert finding.cause == "rendezvous_timeout"
    assert "tasks 6 " in finding.summary
    assert "task 6" in finding.fixes[0].title
