"""Supervises one local run from start to end: time, memory, cancel, and the final state.

One loop does the work of Slurm's controller and node daemon: it sends a signal before the time limit, TERM
and then KILL at the limit, and KILL above the memory limit. The states are Slurm's words.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from coach import installed, runs
from coach.launch.spelling import parse_mem_mib, parse_signal_lead
from coach.node import judge, own_run, share

KILL_WAIT_S = 10.0
MEMORY_INTERVAL_S = 0.5
_WAIT_INTERVAL_S = 0.5
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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
