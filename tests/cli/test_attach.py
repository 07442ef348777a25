"""`coach attach` in a pipe whose reader has left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ATTACHED = """
import os
from coach.cli import guarded
from coach.cli.attach import _follow, _Printer
from coach.sources.slurm.overlap_step import StreamSource

record = '{"kind": "host", "node": "n1", "time_s": 1000.0, "cpu_pct": 5}'
source = StreamSource("17", ("yes", record), dict(os.environ))
raise SystemExit(guarded(lambda: _follow(source, _Printer(False))))
"""


def test_a_pipe_that_its_reader_left_is_not_told_as_an_error_of_srun() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ATTACHED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as attached:
        assert attached.stdout is not None
        assert attached.stderr is not None
        assert attached.stdout.readline().startswith("n1  cpu 5 %")
        attached.stdout.close()
        assert attached.stderr.read() == ""
        assert attached.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_behind_standard_output_is_named() -> None:
    with open("/dev/full", "w") as full:
        attached = subprocess.run(
            [sys.executable, "-c", ATTACHED], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert attached.stderr == "coach: a write failed: No space left on device\n"
    assert attached.returncode == 2
