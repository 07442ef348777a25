"""The first fix fits what the log says, and does not contradict it."""

from __future__ import annotations

import pytest

from tests.rules.examples import diagnose_whole, of_a_whole_log

FRAMES = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in main\n    step()\n'
SHARED = FRAMES + '  File "/usr/lib/python3.11/multiprocessing/reduction.py", line 198, in DupFd\n    x()\n'
ARRAY = FRAMES + (
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate {} for an array with shape (2, 4) and "
    "data type float64\n"
)


@pytest.mark.parametrize(
    ("text", "rule", "first"),
    [
        (
            "slurm_script: line 4: /conda/2023/bin/activate: No such file or directory\n",
            "ENV008",
            "See whether compute nodes have it, and what lies there",
        ),
        (
            "slurm_script: line 4: conda: command not found\n",
            "ENV008",
            "Launch with --env conda=NAME: the script then activates it as a batch shell needs it",
        ),
        (
            FRAMES + "OSError: [Errno 24] Too many open files: '/etc/hostname'\n",
            "ENV012",
            "Close files after use",
        ),
        (
            SHARED + "OSError: [Errno 24] Too many open files: '/etc/hostname'\n",
            "ENV012",
            "Share tensors by name",
        ),
        (FRAMES + "OSError: [Errno 24] Too many open files\n", "ENV012", "Share tensors by name"),
        (ARRAY.format("596. GiB"), "MEM007", "Look at the shape and the dtype of the array"),
        (ARRAY.format("12.5 GiB"), "MEM007", "Ask for more host memory"),
        (FRAMES + "MemoryError\n", "MEM007", "Print the limit of address space"),
        (
            FRAMES + "PermissionError: [Errno 13] Permission denied: '/home/eve/data.json'\n",
            "ENV011",
            "See on a node which folder on its path forbids it",
        ),
        (
            FRAMES + "yaml.scanner.ScannerError: mapping values are not allowed here\n"
            '  in "conf.yaml", line 3, column 8\n',
            "COD001",
            "Correct conf.yaml at line 3, column 8",
        ),
        (
            '  File "/home/ada/fit.py", line 4\n    def f(\n         ^\nSyntaxError: unexpected EOF\n',
            "COD001",
            "Correct /home/ada/fit.py at line 4, or just above it",
        ),
        (
            FRAMES + "FloatingPointError: Loss became infinite or NaN at iteration=1207!\n",
            "NUM001",
            "Divide the learning rate",
        ),
        (
            FRAMES + "FloatingPointError: Loss became infinite or NaN at iteration=1!\n",
            "NUM001",
            "Look at the first batch",
        ),
        (" 40%|####  | 4/10 [00:40<01:00, 10.0s/it]Terminated\n", "JOB014", "Ask the scheduler how"),
        ("[rank3] epoch 4\nTerminated\n", "JOB014", "Find who sent it: see the first error of the other"),
        ("KeyboardInterrupt\n", "JOB014", "If it was not you"),
        (
            "FATAL:   container creation failed: mount /d->/d error: mount source /d doesn't exist\n",
            "ENV022",
            "The path /d that is bound into the container does not exist",
        ),
        (
            "FATAL:   While making image from oci registry: GET https://r.io/v2/x: UNAUTHORIZED: denied\n",
            "ENV022",
            "Log in to the registry once",
        ),
        (
            'FATAL:   "fit": executable file not found in $PATH\n',
            "ENV022",
            "Name the program by its full path",
        ),
        ("docker: Error response from daemon: No such image: seg:3\n", "ENV022", "Correct the image's name"),
        ('/opt/bin/mpirun: Error: unknown option "--hnp"\n', "JOB011", "This launcher does not know --hnp"),
        ("qsub: Unknown queue\n", "JOB011", "See the limits of the queue"),
        ("MOAB_INFO:  job exceeded wallclock limit\n", "JOB002", "Ask for more time"),
        ("failed 37 : qmaster enforced h_rt, h_cpu, or h_vmem limit\n", "JOB002", "See which limit it was"),
        (
            "slurmstepd-node1: error: execve(): /home/ada/./train.py: Permission denied\n"
            "srun: error: node1: task 0: Exited with exit code 13\n",
            "ENV011",
            "Make the file executable, or start it with python: python /home/ada/./train.py",
        ),
        ("/x/slurm_script: line 4: ./prepare.sh: Permission denied\n", "ENV011", "Make the file executable"),
        (
            "srun: error: node1: task 0: Exited with exit code 2\n"
            "slurmstepd-node1: error: execve(): accelerat: No such file or directory\n",
            "DAT011",
            "If its name is misspelt, correct it behind srun",
        ),
        ("/x/slurm_script: 4: ./runme: Permission denied\n", "ENV011", "Make the file executable"),
        (
            "/x/slurm_script: 4: cannot create /data/out.log: Permission denied\n",
            "ENV011",
            "Put runs, data and caches",
        ),
        (
            "/x/slurm_script: line 4: /data/out.log: Permission denied\n",
            "ENV011",
            "Put runs, data and caches",
        ),
        (
            "srun: unrecognized option '--container-image=nvcr.io/nvidia/pytorch:24.05-py3'\n"
            'Try "srun --help" for more information\n',
            "JOB011",
            "Slurm's plugin pyxis, which has this option, is not installed",
        ),
        (
            "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learning-rate 3\n",
            "COD001",
            "Correct the arguments that the job's script gives the program",
        ),
        ("srun: unrecognized option '--nosuch=3'\n", "JOB011", "Correct the option, or leave it out"),
        (
            FRAMES + "OSError: [Errno 98] Address already in use\n",
            "DST002",
            "See if the program opens the port twice",
        ),
        (
            FRAMES.replace(
                "train.py", 'train.py", line 4, in go\n    x()\n  File "/v/torch/distributed/rendezvous.py'
            )
            + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
            "network address. port: 29500, code: -98, name: EADDRINUSE, message: address already in use\n",
            "DST002",
            "On one node let torchrun choose the port",
        ),
        (
            FRAMES
            + 'yaml.parser.ParserError: while parsing a flow sequence\n  in "a.yaml", line 1, column 4\n'
            "expected ',' or ']', but got ':'\n"
            '  in "a.yaml", line 2, column 2\n',
            "COD001",
            "Correct a.yaml at line 2, column 2",
        ),
        (
            FRAMES + "yaml.scanner.ScannerError: mapping values are not allowed here\n"
            '  in "<unicode string>", line 3, column 8\n',
            "COD001",
            "Correct the program at the line that is shown",
        ),
        (
            FRAMES + "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 5 (char 40)\n",
            "COD001",
            "Correct the file that the shown line reads",
        ),
        (
            FRAMES + "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n",
            "COD001",
            "Look at the file or the answer that is read: it is empty, or not JSON",
        ),
        (
            FRAMES + "EOFError: EOF when reading a line\n",
            "COD001",
            "A batch job has no standard input",
        ),
        (
            FRAMES + "tomllib.TOMLDecodeError: Invalid value (at line 1, column 5)\n",
            "COD001",
            "Correct the file that the shown line reads",
        ),
        (
            "At line 212 of file solver.f90 (unit = 11, file = 'restart.dat')\n"
            "Fortran runtime error: End of file\n",
            "COD001",
            "See if restart.dat is complete",
        ),
        (
            "train.sh: line 6: syntax error: unexpected end of file\n",
            "COD001",
            "Correct that line of train.sh",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
            '  File "/home/ada/kernel.py", line 5 in load\n  File "/home/ada/train.py", line 9 in main\n',
            "COD002",
            "See the call that crashed: the newest in the stack of the log is load, line 5",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nThread 0x00007f401558d6c0 (most recent call first):\n"
            '  File "/home/ada/wait.py", line 3 in pin_memory\n\n'
            "Current thread 0x00007f4016030b80 (most recent call first):\n"
            '  File "/home/ada/kernel.py", line 5 in load\n  File "/home/ada/train.py", line 9 in main\n',
            "COD002",
            "See the call that crashed: the newest in the stack of the log is load, line 5",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n"
            '  File "/home/ada/kernel.py", line 5 in load\n',
            "COD002",
            "See the call that crashed: the newest in the stack of the log is load, line 5",
        ),
        (
            "Fatal Python error: Segmentation fault\n\n<no Python frame>\n",
            "COD002",
            "Rebuild or update the native package",
        ),
        (
            "train.sh: line 7: 17790 Segmentation fault      (core dumped) ./a.out input.dat\n",
            "COD002",
            "Write a core file",
        ),
        (
            "train.sh: line 7: 17790 Segmentation fault      (core dumped) python3 train.py\n",
            "COD002",
            "Let Python print where it crashes",
        ),
        (
            "train.sh: line 7: 17790 Segmentation fault      (core dumped) srun ./launch\n",
            "COD002",
            "Let Python print where it crashes",
        ),
        (
            "train.sh: line 9: 4242 Bus error     (core dumped) python train.py\n",
            "MEM011",
            "See on the node how",
        ),
        (
            FRAMES
            + "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for "
            "recv operation to complete\n",
            "DST020",
            "See where each rank waits",
        ),
        (
            FRAMES
            + "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:2901\n",
            "DST020",
            "Look for the rank that ended first",
        ),
        (
            "train.sh: line 5:  7920 CPU time limit exceeded (core dumped) python3 train.py\n",
            "JOB014",
            "Remove `ulimit -t` from the batch script",
        ),
        (
            FRAMES + "RuntimeError: CUDA error: unspecified launch failure\n"
            "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.\n",
            "HDW002",
            "Leave this node out",
        ),
        (
            FRAMES + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "NVRM: Xid (PCI:0000:41:00): 31, pid=7, name=python\n",
            "CUD003",
            "Run once with CUDA_LAUNCH_BLOCKING=1",
        ),
        (
            FRAMES + "RuntimeError: CUDA error: unspecified launch failure\n"
            "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
            "HDW001",
            "Leave this node out",
        ),
        (
            "srun: error: Unable to create step for job 2270: More processors requested than permitted\n",
            "JOB011",
            "Compare srun's --ntasks",
        ),
        (
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n",
            "JOB011",
            "Give the script Unix line ends",
        ),
        (
            "sbatch: error: More processors requested than permitted\n",
            "JOB011",
            "See what the partitions offer",
        ),
    ],
)
def test_the_first_fix_fits_the_words_of_the_log(text: str, rule: str, first: str) -> None:
    finding = diagnose_whole(text).findings[0]
    assert finding.rule == rule
    assert finding.fixes[0].title.startswith(first)


STEPS = tuple(f"step {step} loss {2 / step:.3f}" for step in range(1, 300))


@pytest.mark.parametrize(
    "lines",
    [
        ("cp: cannot stat '/data/old.ckpt': No such file or directory", *STEPS),
        ("cp: cannot stat '/data/old.ckpt': No such file or directory", "starting", "done"),
        ("note: a job beyond it ends by 'CPU time limit exceeded'", *STEPS),
        ("WARNING: read of the old restart: Fortran runtime error: End of file, starting cold", *STEPS),
        ("the tutorial shows: line 6: syntax error: unexpected end of file", *STEPS),
    ],
)
def test_words_of_an_error_that_ended_nothing_are_no_alarm(lines: tuple[str, ...]) -> None:
    assert not of_a_whole_log(*lines)


def test_a_failed_copy_is_not_blamed_for_an_exception_below_it() -> None:
    text = "cp: cannot stat '/data/old.ckpt': No such file or directory\n" + FRAMES + "KeyError: 'lr'\n"
    assert [finding.rule for finding in diagnose_whole(text).findings] == ["COD001"]


def test_a_crash_names_the_frame_of_its_own_thread_once() -> None:
    (finding,) = diagnose_whole(
        "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
        '  File "/home/ada/wait.py", line 3 in pin_memory\n\nCurrent thread 0x2 (most recent call first):\n'
        '  File "/home/ada/kernel.py", line 5 in load\n'
    ).findings
    (frame,) = [each.text for each in finding.evidence if "own code" in each.text]
    assert "kernel.py" in frame
