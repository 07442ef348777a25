"""The first fix fits what the log says, and does not contradict it."""

from __future__ import annotations

import pytest

from tests.rules.examples import diagnose_whole

FRAMES = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in main\n    step()\n'
SHARED = FRAMES + '  File "/usr/lib/python3.11/multiprocessing/reduction.py", line 198, in DupFd\n    x()\n'
ARRAY = FRAMES + (
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate {} for an array with shape (2, 4) and data "
    "type float64\n"
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
