"""Make a home with its own runs and Slurm clients, in which a test kills a program and then starts coach
again."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coach import runs
from coach.__main__ import main
from coach.launch.snapshot import code_dir, make_snapshot, snapshot_files
from coach.sources.machine.user import user_name
from coach.trusted import private_folder
from tests.cluster.processes import Daemon, with_environment
from tests.faults.clients import Clients, make_clients
from tests.forked import forked_coach
from tests.waiting import wait_until


@dataclass(frozen=True)
class World:
    """One home directory, with its programs and coach's files."""

    home: Path
    clients: Clients
    env: dict[str, str]
    pids: list[int] = field(default_factory=list)
    """Processes that a test started. `end` kills them."""

    @property
    def root(self) -> Path:
        """$COACH_HOME."""
        return self.home / "coach"

    @property
    def runs_root(self) -> Path:
        return self.root / "runs"

    @property
    def output(self) -> str:
        """The output of the killed program."""
        path = self.home / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def coach(self, *words: str, status: int | None = 0) -> subprocess.CompletedProcess[bytes]:
        """Start coach again, in a process of its own. Fails on a traceback, or on another exit status."""
        done = forked_coach(words, self.env)
        stderr = done.stderr.decode()
        assert "Traceback" not in stderr, stderr
        assert status is None or done.returncode == status, (words, done.returncode, done.stdout, stderr)
        return done

    def listed(self) -> list[dict[str, Any]]:
        """The runs that `coach runs` lists. Fails if a run directory cannot be read."""
        done = self.coach("runs", "--format", "json")
        told = json.loads(done.stdout)
        assert told["problems"] == [], told["problems"]
        found: list[dict[str, Any]] = told["runs"]
        return found

    def folders(self) -> list[Path]:
        """All run directories, also those without a run.json."""
        return sorted(path for path in self.runs_root.glob("2*-*") if path.is_dir())

    def record(self, run_id: str) -> dict[str, Any]:
        return runs.read_json(runs.RunPaths(self.runs_root / run_id).run_json)

    def body(self, words: Sequence[str], change: Callable[[], object] = lambda: None) -> Callable[[], int]:
        """A function that runs `coach WORDS` in a forked process, after `change`."""

        def run() -> int:
            self.enter()
            change()
            return main(words)

        return run

    def enter(self) -> None:
        """Make this forked process use this home, and write its output to a file."""
        os.environ.clear()
        os.environ.update(self.env)
        for number, name in enumerate((os.devnull, "output", "output")):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(name if number == 0 else str(self.home / name), flags, 0o600), number)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, mode, closefd=False), line_buffering=True)
            for number, mode in enumerate("rww")
        )

    def processes(self) -> list[Daemon]:
        """All processes with this home in their environment."""
        return with_environment(f"HOME={self.home}")

    def wait_for_silence(self, what: str) -> None:
        """Wait until no process of this home is left."""
        wait_until(lambda: not self.processes(), 20, f"{what}: all processes have ended")

    def end(self) -> None:
        """Kill the remaining processes, and remove the home."""
        for process in self.processes():
            process.signal(signal.SIGKILL)
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(self.home, ignore_errors=True)


class Worlds:
    """Makes homes. Each already has the copy of coach's code that its jobs run, which saves each launch that
    copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._num_made = 0
        files = snapshot_files()
        self._code = code_dir(folder / "first", files)
        make_snapshot(self._code, files)

    def make(self, has_code: bool = True) -> World:
        self._num_made += 1
        home = self._folder / f"home{self._num_made}"
        home.mkdir(mode=0o700)
        clients = make_clients(home / "bin", user_name())
        env = {
            "HOME": str(home),
            "COACH_HOME": str(home / "coach"),
            "PATH": f"{home / 'bin'}:/usr/bin:/bin",
            "COACH_AS_ROOT": "1",
            "LC_ALL": "C.UTF-8",
        }
        world = World(home, clients, env)
        if has_code:
            code = code_dir(world.runs_root, {}).parent / self._code.name
            private_folder(code.parent)
            shutil.copytree(self._code, code, copy_function=os.link)
        return world
