"""coach opens no port and sends no data: by strace over its commands, and over the screens with a live run.

Slurm's clients may talk to their controller, and a training's ranks to each other: each socket is attributed
to the program that opened it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.terminal.tmux import Terminal
from tests.test_least_exposure import run_coach

pytestmark = [pytest.mark.long, pytest.mark.strace]

OpenTerminal = Callable[..., Terminal]

PROGRAM = "import time\nfor step in range(40):\n    print('loss 0.5', flush=True)\n    time.sleep(0.5)\n"
COMMANDS = (
    *("--version", "jobs", "nodes", "partitions", "history", "recipes", "runs", "runs clean --older-than 1d"),
    *(
        "check",
        "check {run}",
        "why",
        "why {run}",
        "fix {run}",
        "compare {run} {run}",
        "stacks {run}",
        "watch {run} --backend local",
    ),
    *(
        "doctor",
        "data",
        "config --explain",
        "explain MEM001",
        "init",
        "cohort {home}",
        "drill",
        "cancel 17 --yes",
    ),
    *("launch train.py --dry-run", "launch train.py --backend local --wait", "record {home}/a.coach --for 1"),
    "run -- {python} -c 0",
)
_CALL = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_FAILED = re.compile(r" = -1 E\w+ \(")
_OWN = re.compile(r'"(?:[^"]*/)?(?:coach|python)[\w.]*"')
_CHILD = re.compile(r"\) += (\d+)$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?:clone|clone3|fork|vfork) resumed>.* = (?P<child>\d+)$")
_TRACING = ("strace", "-f", "-qq", "-s", "200", "-e", "trace=%network,%process")


def sockets_of_coach(lines: Iterable[str]) -> list[str]:
    """The calls about the internet, but for those of Slurm's clients and other programs that coach
    starts."""
    others: set[str] = set()
    found = []
    for line in lines:
        resumed, call = _RESUMED.match(line), _CALL.match(line)
        if resumed is not None and resumed["pid"] in others:
            others.add(resumed["child"])
        if call is None:
            continue
        pid, rest = call["pid"], call["rest"]
        if call["call"] == "execve" and not _FAILED.search(rest) and not _OWN.match(rest):
            others.add(pid)
        elif call["call"] in ("clone", "clone3", "fork", "vfork") and pid in others:
            child = _CHILD.search(line)
            others.update([child[1]] if child is not None else [])
        elif pid not in others and ("AF_INET" in rest or call["call"] == "listen"):
            found.append(line)
    return found


def test_the_reader_of_the_trace_separates_coach_s_sockets_from_a_client_s() -> None:
    lines = [
        '10 execve("/x/bin/coach", ["coach", "jobs"], 0x7) = 0',
        "10 clone(child_stack=NULL, flags=CLONE_VM) = 11",
        '11 execve("/bin/squeue", ["squeue"], 0x7) = -1 ENOENT (No such file or directory)',
        '11 execve("/usr/bin/squeue", ["squeue"], 0x7 <unfinished ...>',
        "11 <... execve resumed>) = 0",
        "11 clone3({flags=CLONE_VM} <unfinished ...>",
        "11 <... clone3 resumed>) = 12",
        "12 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3",
        "11 connect(3, {sa_family=AF_INET, sin_port=htons(6817)}, 16) = 0",
        "10 socket(AF_UNIX, SOCK_STREAM, 0) = 3",
    ]
    assert sockets_of_coach(lines) == []
    own = ["10 socket(AF_INET6, SOCK_STREAM, 0) = 4", "10 listen(5, 1) = 0"]
    assert sockets_of_coach([*lines, *own]) == own


def test_no_command_opens_a_socket_to_anywhere(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('step 1 loss 0.5')\n")
    run_coach(tmp_path / "project", "run", "--", sys.executable, "train.py")
    (run,) = (tmp_path / "coach" / "runs").glob("2*")
    for command in COMMANDS:
        trace = tmp_path / "trace"
        words = command.format(run=run.name, home=tmp_path, python=sys.executable).split()
        done = run_coach(tmp_path / "project", *words, under=(*_TRACING, "-o", str(trace)))
        assert done.returncode in (0, 1, 2), (command, done.stderr)
        assert "Traceback" not in done.stderr, command
        assert sockets_of_coach(trace.read_text(errors="replace").splitlines()) == [], command


@pytest.mark.terminal
def test_the_screens_open_no_connection_while_a_run_is_alive(
    tmp_path: Path, open_terminal: OpenTerminal
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text(PROGRAM)
    run_coach(tmp_path / "project", "launch", "train.py", "--backend", "local")
    trace = tmp_path / "trace"
    argv = [*_TRACING, "-o", trace, sys.executable, "-m", "coach", "--backend", "local"]
    strace = shutil.which("strace")
    assert strace is not None
    env = {"HOME": str(tmp_path), "COACH_HOME": str(tmp_path / "coach"), "COACH_AS_ROOT": "1"}
    terminal = open_terminal(argv, env={**os.environ, **env}, cwd=tmp_path / "project")
    terminal.wait_for("train")
    for key in ("Enter", "Escape", "f", "Escape", "R", "Escape", "d", "Escape", "?"):
        terminal.send(key)
        terminal.wait_for(re.compile(r"\S"))
    terminal.send("C-q")
    terminal.close()
    lines = trace.read_text(errors="replace").splitlines()
    assert any("execve" in line for line in lines)
    assert sockets_of_coach(lines) == []
