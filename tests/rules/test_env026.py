"""The limit of processes and threads is told apart from errno 11 of sockets and pipes."""

from __future__ import annotations

import pytest

from tests.rules.examples import diagnose_whole, of_a_whole_log

BLAS = (
    "OpenBLAS blas_thread_init: pthread_create failed for thread 30 of 64: Resource temporarily unavailable\n"
    "OpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 1029723 max\n"
)
FRAMES = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    import numpy\n'


def test_threads_beyond_the_limit_lead_to_the_number_of_threads_and_not_to_the_line() -> None:
    first, *others = diagnose_whole(BLAS + FRAMES + "RuntimeError: can't start new thread\n").findings
    assert (first.rule, others) == ("ENV026", [])
    assert first.fixes[0].command == 'export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"'


@pytest.mark.parametrize(
    "lines",
    [
        (*BLAS.splitlines(), *(f"step {step} loss {2 / step:.3f}" for step in range(1, 300))),
        ("node1:7:9 [0] NCCL WARN Call to recv failed : Resource temporarily unavailable", "step 1 loss 2.0"),
        ("flock: Resource temporarily unavailable", "step 1 loss 2.0"),
        ("I can't start new thread safely, so I use one", "step 1 loss 2.0"),
    ],
)
def test_a_job_that_goes_on_with_fewer_threads_is_no_alarm(lines: tuple[str, ...]) -> None:
    assert "process_limit" not in of_a_whole_log(*lines)


def test_errno_11_of_a_pipe_is_the_programs_own_error() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/ada/log.py", line 3, in main\n'
        "    sys.stdout.write(text)\nBlockingIOError: [Errno 11] Resource temporarily unavailable\n"
    )
    assert "ENV026" not in [finding.rule for finding in diagnose_whole(text).findings]
