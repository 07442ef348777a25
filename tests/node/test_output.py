"""`coach run` keeps its command's output and passes it on unchanged, also after coach was killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import NODE, Start, children_of
from tests.waiting import wait_until

NUM_PRINTS = 100
COUNTING = f"""
import sys, time
print("ready", flush=True)
sys.stdin.readline()
for number in range({NUM_PRINTS}):
    print("print", number, flush=True)
"""
PRINTS = [f"print {number}" for number in range(NUM_PRINTS)]


class Terminal:
    """A command on a controlling terminal of its own, and all that the terminal was sent."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.resize(30, 90)
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (one call of the kernel)
        )
        os.close(slave)
        self.sent = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def shows(self, text: str) -> bool:
        """Read the output so far."""
        with contextlib.suppress(OSError):
            while select.select([self.master], [], [], 0)[0]:
                self.sent += os.read(self.master, 65536)
        return text.encode() in self.sent

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.end()


@pytest.fixture
def on_terminal(terminals: list[Terminal], clean_env: dict[str, str], tmp_path: Path) -> Any:
    def start_one(*command: str) -> Terminal:
        argv = [sys.executable, str(NODE), "run", "--run-dir", str(tmp_path / "run"), "--", *command]
        terminals.append(Terminal(argv, clean_env))
        return terminals[-1]

    return start_one


def _run(tmp_path: Path) -> list[str]:
    return ["run", "--run-dir", str(tmp_path / "run")]


def _output_of(run_dir: Path) -> Mapping[str, str]:
    output: Mapping[str, str] = json.loads((run_dir / "run.json").read_text())["output"]
    return output


def _helpers(run_dir: Path) -> list[int]:
    """Processes of `coach run` for this run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(run_dir).encode() in (entry / "cmdline").read_bytes().split(
                b"\0"
            ):
                found.append(int(entry.name))
    return found


def _nothing_is_left(run_dir: Path) -> None:
    wait_until(lambda: not _helpers(run_dir), what="the end of all helpers")


def test_both_streams_of_a_pipeline_are_kept_apart_and_passed_on(start: Start, tmp_path: Path) -> None:
    training = start(*_run(tmp_path), "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert training.communicate(timeout=60) == ("out\n", "err\n")
    assert training.returncode == 3
    run_dir = tmp_path / "run"
    assert (run_dir / "stdout.log").read_text() == "out\n"
    assert (run_dir / "stderr.log").read_text() == "err\n"
    assert _output_of(run_dir) == {"stdout": "stdout.log", "stderr": "stderr.log"}
    _nothing_is_left(run_dir)


def test_two_streams_into_one_pipe_keep_their_order(clean_env: dict[str, str], tmp_path: Path) -> None:
    script = f"for i in $(seq {NUM_PRINTS}); do echo out $i; echo err $i >&2; done"
    argv = [sys.executable, str(NODE), *_run(tmp_path), "--", "sh", "-c", script]
    done = subprocess.run(
        argv, env=clean_env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    expected = [f"{name} {i}" for i in range(1, NUM_PRINTS + 1) for name in ("out", "err")]
    assert done.stdout.splitlines() == expected
    assert (tmp_path / "run" / "stdout.log").read_text().splitlines() == expected
    assert not (tmp_path / "run" / "stderr.log").exists()
    assert _output_of(tmp_path / "run") == {"stdout": "stdout.log", "stderr": "stdout.log"}


def test_a_file_stays_the_commands_own_and_is_named(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "my.log"
    with open(log, "wb") as file:
        argv = [sys.executable, str(NODE), *_run(tmp_path), "--", "cat"]
        env = {**os.environ, "SLURMD_NODENAME": "node1"}
        training = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file, stderr=file, env=env)
    wait_until(lambda: len(children_of(training.pid)) == 3, what="command, witness and sampler, no copier")
    training.communicate(b"hello\n", timeout=60)
    assert log.read_text() == "hello\n"
    assert _output_of(tmp_path / "run") == {"stdout": str(log), "stderr": str(log)}
    assert not list((tmp_path / "run").glob("std*.log"))


def test_output_sent_to_dev_null_is_kept(clean_env: dict[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, str(NODE), *_run(tmp_path), "--", "sh", "-c", "echo out; echo err >&2"]
    null = subprocess.DEVNULL
    assert subprocess.run(argv, env=clean_env, stdout=null, stderr=null, timeout=60).returncode == 0
    assert (tmp_path / "run" / "stdout.log").read_text() == "out\nerr\n"
    _nothing_is_left(tmp_path / "run")


def test_a_slow_reader_of_a_pipeline_does_not_hold_up_the_command(start: Start, tmp_path: Path) -> None:
    script = f"seq 400000; echo > {tmp_path}/done"
    training = start(*_run(tmp_path), "--", "sh", "-c", script)
    wait_until((tmp_path / "done").exists, what="the end of a command that nobody reads")
    stdout, _ = training.communicate(timeout=60)
    assert stdout == "".join(f"{number}\n" for number in range(1, 400001))
    assert (tmp_path / "run" / "stdout.log").read_text() == stdout


def test_a_reader_that_leaves_neither_ends_the_command_nor_its_log(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    run = " ".join([sys.executable, str(NODE), *_run(tmp_path)])
    script = f"{run} -- sh -c 'seq 100000; exit 5' | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=clean_env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 5)
    assert len((tmp_path / "run" / "stdout.log").read_text().splitlines()) == 100000
    _nothing_is_left(tmp_path / "run")


def test_a_pipeline_still_gets_the_training_s_output_after_coach_was_killed(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    argv = [sys.executable, str(NODE), *_run(tmp_path), "--", sys.executable, "-c", COUNTING]
    pipe = subprocess.PIPE
    training = subprocess.Popen(argv, env=clean_env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    training.kill()
    training.wait()
    stdout, _ = training.communicate("go\n", timeout=60)
    assert stdout.splitlines() == PRINTS
    assert (tmp_path / "run" / "stdout.log").read_text().splitlines() == ["ready", *PRINTS]
    _nothing_is_left(tmp_path / "run")


def test_a_terminal_still_gets_the_training_s_output_after_coach_was_killed(
    on_terminal: Any, tmp_path: Path
) -> None:
    terminal = on_terminal("setsid", sys.executable, "-c", COUNTING)
    wait_until(lambda: terminal.shows("ready"), what="the command's first word")
    terminal.process.kill()
    terminal.process.wait()
    terminal.type("go\n")
    wait_until(lambda: terminal.shows(PRINTS[-1]), what="the last print")
    shown = terminal.sent.decode().splitlines()
    assert [line for line in shown if line.startswith("print")] == PRINTS
    assert (tmp_path / "run" / "stdout.log").read_text().splitlines() == ["ready", *PRINTS]
    _nothing_is_left(tmp_path / "run")


def test_a_progress_bar_runs_on_a_terminal_as_if_there_were_no_coach(
    on_terminal: Any, tmp_path: Path
) -> None:
    bar = (
        "import os, sys\n"
        "assert sys.stdout.isatty() and sys.stderr.isatty()\n"
        "for done in range(3):\n"
        "    sys.stderr.write(f'\\r{done}/2')\n"
        "print(); print(os.get_terminal_size(1).columns, os.get_terminal_size(2).lines)\n"
    )
    terminal = on_terminal(sys.executable, "-c", bar)
    wait_until(lambda: terminal.process.poll() is not None and not terminal.shows("\0"), what="the end")
    assert terminal.process.returncode == 0
    assert terminal.sent == b"\r0/2\r1/2\r2/2\r\n90 30\r\n"
    assert (tmp_path / "run" / "stdout.log").read_bytes() == b"\r0/2\r1/2\r2/2\n90 30\n"
    _nothing_is_left(tmp_path / "run")


def test_a_new_size_of_the_terminal_reaches_the_command(on_terminal: Any) -> None:
    sizes = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n"
        "print('ready', flush=True)\n"
        "while os.get_terminal_size(1).columns != 77:\n"
        "    signal.sigwait({signal.SIGWINCH})\n"
        "print('fits', flush=True)\n"
    )
    terminal = on_terminal(sys.executable, "-c", sizes)
    wait_until(lambda: terminal.shows("ready"), what="the command's first word")
    terminal.resize(40, 77)
    wait_until(lambda: terminal.shows("fits"), what="the new size")
    assert terminal.process.wait(30) == 0


def test_ctrl_c_and_typed_lines_reach_the_command_as_before(on_terminal: Any, tmp_path: Path) -> None:
    terminal = on_terminal(sys.executable, "-c", "print('hello', input(), flush=True); input()")
    terminal.type("ada\n")
    wait_until(lambda: terminal.shows("hello ada"), what="the answer to the typed line")
    terminal.type("\x03")
    assert terminal.process.wait(60) == -signal.SIGINT
    assert "KeyboardInterrupt" in (tmp_path / "run" / "stdout.log").read_text()


def test_a_killed_copier_is_replaced(on_terminal: Any, tmp_path: Path) -> None:
    terminal = on_terminal("sh", "-c", "echo ready; read answer; echo got $answer")
    wait_until(lambda: terminal.shows("ready"), what="the command's first word")
    names = children_of(terminal.process.pid)
    # Witness and copier look alike; the copier alone has left the session.
    copier = next(pid for pid in names if os.getsid(pid) == pid and " sample " not in names[pid])
    wait_until(lambda: _age_s(copier) > 1.1, what="a copier older than a second")
    os.kill(copier, signal.SIGKILL)
    terminal.type("this\n")
    wait_until(lambda: terminal.shows("got this"), what="what was printed after that")
    assert terminal.process.wait(30) == 0


def test_a_killed_copier_of_a_pipeline_is_replaced(clean_env: dict[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, str(NODE), *_run(tmp_path), "--", sys.executable, "-c", COUNTING]
    pipe = subprocess.PIPE
    training = subprocess.Popen(argv, env=clean_env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    names = children_of(training.pid)
    copier = next(pid for pid in names if os.getsid(pid) == pid and " sample " not in names[pid])
    wait_until(lambda: _age_s(copier) > 1.1, what="a copier older than a second")
    os.kill(copier, signal.SIGKILL)
    assert training.communicate("go\n", timeout=60)[0].splitlines() == PRINTS
    assert training.returncode == 0
    assert (tmp_path / "run" / "stdout.log").read_text().splitlines() == ["ready", *PRINTS]


def _age_s(pid: int) -> float:
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def test_output_of_background_processes_is_passed_on_and_coach_does_not_wait(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "gate").mkdir()
    os.mkfifo(tmp_path / "gate" / "fifo")
    training = start(
        *_run(tmp_path), "--", "sh", "-c", f"(read word; echo $word) < {tmp_path}/gate/fifo & echo now"
    )
    assert training.wait(60) == 0
    (tmp_path / "gate" / "fifo").write_text("later\n")
    assert training.communicate(timeout=60)[0] == "now\nlater\n"
    _nothing_is_left(tmp_path / "run")


@pytest.mark.parametrize("name", ["stdout.log", "stderr.log"])
def test_a_log_that_cannot_be_made_lets_its_stream_pass_by(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "run" / name).mkdir(parents=True)
    training = start(*_run(tmp_path), "--", "sh", "-c", "echo out; echo err >&2")
    assert training.communicate(timeout=60) == ("out\n", "err\n")
    assert training.returncode == 0
