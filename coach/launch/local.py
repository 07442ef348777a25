"""The local backend: a small detached supervisor runs the script and enforces limits as a scheduler would.

It is a process of its own, so a run goes on when coach ends. It shares only the run directory with coach. All
processes of the run stay below it (it adopts orphans), so limits, cancel and the end reach each of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from coach import installed, runs
from coach.launch.supervisor import KILL_WAIT_S, Supervisor
from coach.model.errors import UserError
from coach.model.training.other_machine import place
from coach.sources.io import Io
from coach.sources.runs.local_process import (
    SUPERVISOR_MODULE,
    find_process,
    identify,
    is_to_be_waited_for,
    look,
)
from coach.sources.runs.run_list import read_listed_run


def state_at_end(io: Io, run_dir: Path) -> str | None:
    """The final state of a run, also if a full disk kept its supervisor from recording it. Raises OSError or
    UserError."""
    return read_listed_run(io, run_dir).state


def start_command(run_dir: Path, after: Path | None = None) -> list[str]:
    """The exact command of a supervisor. If `after` is given, it first waits for that run's end."""
    argv = [*installed.start_words(SUPERVISOR_MODULE), str(run_dir)]
    return argv + (["--after", str(after)] if after else [])


def start(run_dir: Path, env: Mapping[str, str], after: Path | None = None) -> None:
    """Start the supervisor of a run whose run.json and job.sh are written."""
    paths = runs.RunPaths(run_dir)
    argv = start_command(run_dir, after)
    # `-m` searches the working directory first, so this starts the same coach, installed or not. coach as one
    # file needs no search.
    file = installed.one_file()
    directory = installed.package().parent if file is None else file.parent
    with open(run_dir / "supervisor.log", "ab") as log, _keeping_cancels():
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=dict(env),
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True, name="reap-supervisor").start()
    # The supervisor has ended already, or the disk is full. The supervisor writes the same facts, and the
    # end, itself.
    with contextlib.suppress(psutil.Error, OSError, runs.RunFileError):
        runs.update_json(
            paths.run_json, {"supervisor": identify(psutil.Process(process.pid)), "launcher": None}
        )


@contextlib.contextmanager
def _keeping_cancels() -> Iterator[None]:
    """Block TERM for processes started here, until they unblock it: a cancel before the supervisor listens
    would kill it silently, and the run would seem to have failed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cancel(run_dir: Path) -> None:
    """Ask the supervisor to end, or the command if it outlived the supervisor.

    Raises UserError if neither runs on this machine, RunFileError for a run of another user.
    """
    run_json = runs.read_own_record(run_dir)
    process = find_process(run_json)
    if process is None:
        seen = look(run_json)
        if not seen.is_visible:
            raise elsewhere(run_dir.name, seen.host)
        raise UserError(f"{run_dir.name}: nothing of this run is running on this machine")
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()  # psutil checks again that the pid still belongs to this process


def elsewhere(run_id: str, host: str | None) -> UserError:
    """The error for a run that cannot be cancelled from this machine; it names the machine that can."""
    return UserError(
        f"{run_id}: it is {place(host)}, not visible from here", f"`coach cancel {run_id}` ends it there"
    )


def main(argv: list[str] | None = None) -> int:
    """Supervise one run to its end."""
    parser = argparse.ArgumentParser(prog="python -m coach.launch.local", description=main.__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--after", type=Path, help="run directory of a run whose end is waited for")
    parser.add_argument(
        "--kill-wait",
        type=float,
        default=KILL_WAIT_S,
        help="seconds from TERM to KILL (default: %(default)g)",
    )
    args = parser.parse_args(argv)
    supervisor = Supervisor(args.run_dir.absolute(), args.kill_wait)
    runs.update_json(
        supervisor.paths.run_json, {"supervisor": identify(psutil.Process(os.getpid())), "launcher": None}
    )
    parent = args.after and runs.RunPaths(args.after).run_json
    supervisor.run(wait_while=(lambda: is_to_be_waited_for(runs.read_json(parent))) if parent else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
