"""No process of coach stays on a login node: after every kind of end, with hanging Slurm clients, all of them
are gone within five seconds."""

from __future__ import annotations

import os
import pty
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Daemon, with_environment
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

GONE_S = 5.0
FIXTURES = Path(__file__).parent.parent / "fixtures" / "slurm"

# As at many sites, a script around the client: the one that hangs is its child.
HANGING = '#!/bin/sh\n: > "$ASKED"\nsleep 300\n'

AND_THEN = (
    'echo "before"; "$@"; echo "status $?"; stty -a | tr ";" "\\n" | grep -w -o -e "-*icanon" -e "-*echo"'
)
"""A shell's line before coach and its lines after: what the person finds in the terminal."""

ENDING = [getattr(signal, f"SIG{name}") for name in ("HUP", "TERM", "QUIT", "USR1", "USR2", "ALRM")]


class Login:
    """A login node whose squeue never answers. Its processes carry a mark in their environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked = root / "asked"
        self.mark = f"LEFTOVER_MARK={secrets.token_hex(8)}"
        self._bin = root / "bin"
        self._bin.mkdir()
        for name in ("squeue", "scontrol", "sinfo", "sbatch"):
            self.client(name, HANGING)

    def client(self, name: str, text: str) -> None:
        (self._bin / name).write_text(text)
        (self._bin / name).chmod(0o755)

    def argv(self, *args: str) -> list[str]:
        env = {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "COACH_HOME": str(self.root),
            "HOME": str(self.root),
        }
        settings = [f"{name}={value}" for name, value in {**env, "ASKED": self.asked}.items()]
        return ["env", self.mark, *settings, sys.executable, "-m", "coach", *args]

    def processes(self) -> list[Daemon]:
        return with_environment(self.mark)

    def wait_hanging(self) -> None:
        wait_until(self.asked.exists, 20.0, "Slurm was asked")
        assert len(self.processes()) >= 3  # coach, the script and its child

    def wait_gone(self) -> None:
        wait_until(lambda: not self.processes(), GONE_S, "nothing of coach is left")

    def coach(self) -> int:
        """The process of coach itself: the first of them."""
        return min(self.processes(), key=lambda process: process.start_ticks).pid


@pytest.fixture
def login(tmp_path: Path) -> Iterator[Login]:
    made = Login(tmp_path)
    yield made
    for process in made.processes():
        process.signal(signal.SIGKILL)


@pytest.mark.terminal
def test_a_closed_terminal_ends_the_screens_and_their_queries(
    login: Login, open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal(login.argv("--backend", "slurm"))
    terminal.wait_for("waiting for the first answer")
    login.wait_hanging()
    terminal.hang_up()
    login.wait_gone()


def test_a_closed_terminal_that_sends_no_signal_ends_the_screens_as_well(login: Login) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            login.argv("--backend", "slurm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,  # the terminal does not control it
        )
        os.close(theirs)
        painted = b""
        while b"waiting for the first answer" not in painted:
            painted += os.read(ours, 65536)
        login.wait_hanging()
    finally:
        os.close(ours)
    login.wait_gone()
    assert process.wait() == 128 + signal.SIGHUP


@pytest.mark.terminal
@pytest.mark.parametrize("number", ENDING)
def test_ended_from_outside_the_screens_give_the_terminal_back(
    login: Login, open_terminal: Callable[..., Terminal], number: signal.Signals
) -> None:
    terminal = open_terminal(["sh", "-c", AND_THEN, "sh", *login.argv("--backend", "slurm")])
    terminal.wait_for("waiting for the first answer")
    login.wait_hanging()
    os.kill(login.coach(), number)
    login.wait_gone()
    terminal.wait_exit()
    assert terminal.screen().split() == ["before", "status", str(128 + number), "icanon", "echo"]


STUCK = """
import sys
import threading
from coach.tui import exit_signals
from textual.app import App
exit_signals.LEAVE_TIMEOUT_S = 0.2
modes = exit_signals.terminal_modes()
class Stuck(App):
    def on_mount(self):
        exit_signals.leave_at_signals(self, modes)
        self.notify("it stands")
        if sys.argv[1] == "works":
            self.set_timer(0.5, self.wait)
    def wait(self):
        print("waits", file=open(sys.argv[2], "w"), flush=True)
        threading.Event().wait()
    def on_unmount(self):
        threading.Event().wait()
Stuck().run()
"""


@pytest.mark.terminal
@pytest.mark.parametrize("when", ["works", "leaves"])
def test_screens_that_do_not_answer_leave_all_the_same_and_give_the_terminal_back(
    login: Login, open_terminal: Callable[..., Terminal], when: str
) -> None:
    waits = login.root / "waits"
    program = ["env", login.mark, sys.executable, "-c", STUCK, when, str(waits)]
    terminal = open_terminal(["sh", "-c", AND_THEN, "sh", *program])
    terminal.wait_for("it stands")
    if when == "works":
        wait_until(waits.exists, 10.0, "the screens wait")
    os.kill(login.coach(), signal.SIGTERM)
    terminal.wait_exit()
    assert terminal.screen().split() == ["before", "status", "143", "icanon", "echo"]


@pytest.mark.terminal
def test_killed_screens_leave_no_client_behind(login: Login, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(login.argv("--backend", "slurm"))
    terminal.wait_for("waiting for the first answer")
    login.wait_hanging()
    os.kill(login.coach(), signal.SIGKILL)
    login.wait_gone()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", ["record", "launch"])
def test_a_command_that_waits_leaves_nothing_behind(
    login: Login, command: str, number: signal.Signals
) -> None:
    login.client("sbatch", "#!/bin/sh\necho 17\n")
    nodes, partitions = (FIXTURES / f"scontrol-{what}-22.05.txt" for what in ("nodes", "partitions"))
    login.client("scontrol", f'#!/bin/sh\ncase "$*" in *nodes*) cat {nodes};; *) cat {partitions};; esac\n')
    words = {"record": ["record", str(login.root / "kept.coach")], "launch": ["launch", "baseline", "--wait"]}
    process = subprocess.Popen(login.argv(*words[command], "--backend", "slurm"), stdout=subprocess.DEVNULL)
    try:
        login.wait_hanging()
        os.kill(process.pid, number)
        login.wait_gone()
    finally:
        process.kill()
        process.wait()
    assert command != "record" or number == signal.SIGKILL or process.returncode == 0
