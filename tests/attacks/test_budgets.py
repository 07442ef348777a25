"""What another user's files, a broken client or the machine may cost: a bound, and one line that names it."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from coach.cli import guarded
from tests.ignored_signals import let_children_hear
from tests.installed import REPOSITORY
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real

BLANKS_MIB = 300
MAX_CPU_S = 10.0
"""Seconds. It took 80 s to search that many blanks again and again."""
MAX_MEMORY_BYTES = 6 << 30
FULL = "It could not write to its run directory when it ended: the file system was full"


def run_coach(
    home: Path, *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`coach WORDS` with a bound of memory, so that a missing budget costs this machine nothing."""
    let_children_hear()
    program = "import os, sys; sys.argv[:1] = ['coach']; gone = os.environ.pop('GONE', None)\n"
    program += "gone and (os.chdir(gone), os.rmdir(gone))\n"
    program += "from coach.__main__ import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=home if cwd is None else None,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "COACH_HOME": str(home / "coach"),
            "COACH_AS_ROOT": "1",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            **({} if cwd is None else {"GONE": str(cwd)}),
            **(env or {}),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES)),
    )


def assert_one_line(done: subprocess.CompletedProcess[str], words: str) -> None:
    lines = [line for line in done.stderr.splitlines() if "has not answered for" not in line]
    assert done.returncode == 2, done.stderr
    assert lines[0].startswith("coach: "), done.stderr
    assert words in lines[0]
    assert len(lines) <= 2, done.stderr


def test_blanks_before_the_events_of_a_trace_are_not_searched_again_and_again(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    with gzip.open(trace, "wb", compresslevel=1) as file:
        file.write(b"{")
        for _ in range(BLANKS_MIB):
            file.write(b" " * (1 << 20))
        file.write(b'"traceEvents": []}')
    before_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = run_coach(tmp_path, "trace", trace)
    assert_one_line(done, "not a trace of torch.profiler: no traceEvents near its begin")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_s < MAX_CPU_S


def test_a_trace_with_millions_of_events_that_are_not_looked_at_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": [' + "{}," * 2_500_000 + "{}]}")
    assert_one_line(run_coach(tmp_path, "trace", trace), "more than 2,000,000 events")


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A folder for clients of Slurm; each that is not there cannot be started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("where", "command"), [("", "jobs"), (" >&2", "jobs"), ("", "nodes")])
def test_a_client_that_prints_without_end_is_ended(
    where: str, command: str, clients: Path, tmp_path: Path
) -> None:
    for name in ("squeue", "scontrol", "sinfo", "sacct"):
        (clients / name).write_text(f"#!/bin/sh\nexec /bin/cat /dev/zero{where}\n")
        (clients / name).chmod(0o755)
    env = {"PATH": f"{clients}:{os.environ['PATH']}"}
    done = run_coach(tmp_path, command, "--backend", "slurm", env=env)
    assert_one_line(done, "printed too much")


def test_a_command_without_memory_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> int:
        raise MemoryError

    assert guarded(read) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "coach: out of memory: what was to be read is too large for this machine or its limit\n"


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (("check", "12"), 2, "coach: 12: no run, job or file of that name"),
        (("jobs",), 0, ""),
        (("nodes",), 0, ""),
        (("launch", "baseline", "--dry-run"), 2, "coach: the working directory does not exist any more"),
        (("ticket", "12", "--save", "x"), 2, "coach: the working directory does not exist any more"),
        (("trace", "x.json"), 2, "coach: the working directory does not exist any more"),
        (("record", "x"), 2, "coach: the working directory does not exist any more"),
    ],
)
def test_a_removed_working_directory_is_one_line_where_it_is_needed(
    words: tuple[str, ...], status: int, line: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    backend = () if words[0] in ("trace",) else ("--backend", "local")
    done = run_coach(tmp_path, *words, *backend, cwd=gone)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(line)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.root
def test_a_run_that_ends_well_on_a_full_disk_is_told_as_that(small_disk: Path, tmp_path: Path) -> None:
    env = {"COACH_HOME": str(small_disk / "coach")}
    script = tmp_path / "fill.sh"
    script.write_text(f"head -c 300M /dev/zero > {small_disk}/filler 2> {tmp_path}/said\nexit 0\n")
    options = ("--backend", "local", "--gpus", "0", "--wait")
    done = run_coach(tmp_path, "launch", *options, "--", "bash", script, env=env)
    assert "state   COMPLETED" in done.stdout, done.stderr + done.stdout
    (run,) = (small_disk / "coach" / "runs").glob("2*")
    why = run_coach(tmp_path, "why", run.name, env=env).stdout
    assert FULL in why
    assert "supervisor" not in why
    assert "NODE_FAIL" not in why
