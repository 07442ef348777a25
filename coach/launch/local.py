"""The local backend: a small detached supervisor runs the script and enforces limits as a scheduler would.

It is a process of its own, so a run goes on when coach ends. It shares only the run directory with coach. All
processes of the run stay below it (it adopts orphans), so limits, cancel and the end reach each of them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from coach import installed, runs
from coach.launch.spelling import parse_mem_mib, parse_signal_lead
from coach.model.errors import UserError
from coach.model.training.other_machine import place
from coach.node import judge, own_run, share
from coach.sources.io import Io
from coach.sources.runs.local_process import (
    SUPERVISOR_MODULE,
    find_process,
    identify,
    is_to_be_waited_for,
    look,
)
from coach.sources.runs.run_list import read_listed_run

KILL_WAIT_S = 10.0
MEMORY_INTERVAL_S = 0.5
_WAIT_INTERVAL_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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


class Supervisor:
    """Runs the job.sh of one run directory."""

    def __init__(self, run_dir: Path, kill_wait_s: float = KILL_WAIT_S) -> None:
        self.paths = runs.RunPaths(run_dir)
        self._kill_wait_s = kill_wait_s
        self._is_cancelled = False
        self._wake = _WakeUp(self._cancel)

    def run(self, wait_while: Callable[[], bool] | None = None) -> None:
        """Wait for the parent run if there is one, run the script, and record how it ended."""
        try:
            state, exit_code = self._run(wait_while)
        except Exception:
            traceback.print_exc()  # into supervisor.log
            state, exit_code = "FAILED", None
        _end(_descendants(), self._kill_wait_s)
        self._write_end(state, exit_code)

    def _cancel(self) -> None:
        self._is_cancelled = True

    def _run(self, wait_while: Callable[[], bool] | None) -> tuple[str, int | None]:
        while wait_while is not None and not self._is_cancelled and wait_while():
            runs.update_json(self.paths.run_json, {"state": "PENDING", "reason": "Dependency"})
            self._wake.wait(_WAIT_INTERVAL_S)
        if self._is_cancelled:
            return "CANCELLED", None
        resources = runs.read_json(self.paths.run_json).get("resources") or {}
        _adopt_orphans()
        process = self._start_script()
        started = time.monotonic()
        now = {"state": "RUNNING", "reason": None, "started_time_s": time.time()}
        runs.update_json(self.paths.run_json, {**now, "process": own_run.identify(process.pid)})
        state = self._watch(process, started, _Limits(resources))
        exit_code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        if state is None:
            state = "COMPLETED" if exit_code == 0 else "FAILED"
        return state, exit_code

    def _start_script(self) -> subprocess.Popen[bytes]:
        run_dir = self.paths.run_dir
        supervisor_pid = os.getpid()
        with open(self.paths.stdout_log, "ab") as stdout, open(self.paths.stderr_log, "ab") as stderr:
            return subprocess.Popen(
                ["bash", str(self.paths.job_script)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=run_dir,
                env={
                    **os.environ,
                    "COACH_SUPERVISOR_PID": str(supervisor_pid),
                    runs.RUN_VARIABLE: run_dir.name,
                },
                start_new_session=True,
                # This process has no threads.
                preexec_fn=lambda: _end_with_parent(supervisor_pid),  # noqa: PLW1509
            )

    def _watch(self, process: subprocess.Popen[bytes], started: float, limits: _Limits) -> str | None:
        """Wait for the script's end and enforce its limits. Returns the state if a limit or a cancel ended
        it."""
        state: str | None = None
        is_signalled = False
        kill_at: float | None = None
        while process.poll() is None:
            elapsed = time.monotonic() - started
            if kill_at is not None:
                if elapsed >= kill_at:
                    _kill(_descendants())
            elif self._is_cancelled:
                state, kill_at = "CANCELLED", elapsed + self._kill_wait_s
                process.terminate()
            elif limits.time_s is not None and elapsed >= limits.time_s:
                state, kill_at = "TIMEOUT", elapsed + self._kill_wait_s
                process.terminate()
            elif limits.mem_mib is not None and memory_mib(_descendants()) > limits.mem_mib:
                state, kill_at = "OUT_OF_MEMORY", elapsed
                _kill(_descendants())
            elif not is_signalled and limits.signal_s is not None and elapsed >= limits.signal_s:
                is_signalled = True
                process.send_signal(signal.SIGUSR1)
            self._wake.wait(limits.next_look_s(elapsed, is_signalled, kill_at))
        if state is None and is_signalled and process.returncode != 0:
            return "TIMEOUT"  # it ended at the signal, with a checkpoint
        return state

    def _write_end(self, state: str, exit_code: int | None) -> None:
        ended = {"state": state, "ended_time_s": time.time()}
        runs.update_json(self.paths.exit_json, {**ended, "exit_code": exit_code})
        runs.update_json(self.paths.run_json, {**ended, "reason": None})
        share.share_in_time(self.paths)
        with contextlib.suppress(OSError), open(self.paths.stderr_log, "ab") as log:
            judge.say(self.paths, sys.executable, os.environ, log.fileno(), installed.one_file())


class _Limits:
    """The limits of a run: times in seconds since its start, memory in MiB. None: no limit."""

    def __init__(self, resources: dict[str, Any]) -> None:
        self.time_s: int | None = resources.get("time_limit_s")
        mem = resources.get("mem")
        self.mem_mib = (parse_mem_mib(mem, "mem") or None) if mem else None
        lead = resources.get("signal")
        self.signal_s = self.time_s - parse_signal_lead(lead, "signal") if lead and self.time_s else None

    def next_look_s(self, elapsed: float, is_signalled: bool, kill_at: float | None) -> float:
        """Seconds until the limits have to be looked at again."""
        if kill_at is not None:
            return max(0.05, kill_at - elapsed)
        times = [60.0]
        if self.mem_mib is not None:
            times.append(MEMORY_INTERVAL_S)
        if self.time_s is not None:
            times.append(self.time_s - elapsed)
        if self.signal_s is not None and not is_signalled:
            times.append(self.signal_s - elapsed)
        return max(0.01, min(times))


class _WakeUp:
    """Sleeps until a time has passed, a child has ended or TERM has come. A TERM that came before the sleep
    ends it at once."""

    def __init__(self, on_term: Callable[[], None]) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: on_term())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # `local.start` blocked it until now

    def wait(self, timeout_s: float) -> None:
        if select.select([self._reader], [], [], timeout_s)[0]:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._reader, 512):
                    pass


def memory_mib(processes: list[psutil.Process]) -> float:
    """Memory of the processes together, in MiB. Shared memory is counted once (PSS) if the kernel reports
    it."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            try:
                total += process.memory_full_info().pss
            except (psutil.AccessDenied, AttributeError):
                total += process.memory_info().rss
    return total / 2**20


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _end(processes: list[psutil.Process], kill_wait_s: float) -> None:
    """End the processes that the script left behind: TERM, then KILL."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, kill_wait_s)
    _kill(alive)
    psutil.wait_procs(alive, kill_wait_s)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _adopt_orphans() -> None:
    """Make this process the new parent of each process whose parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _end_with_parent(parent: int) -> None:
    """Runs in the script's shell before it starts: the kernel sends it TERM when the supervisor dies, even by
    KILL."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
