"""Find out if a local run is alive: on this machine, on another one, or not at all.

run.json says RUNNING until somebody changes it; a supervisor that was killed, and a machine that was switched
off, never do. So readers ask here, and a reused pid is not mistaken for the run's process. The command
outlives a supervisor that was killed, so a run is alive as long as one of the two is. A home directory shared
by several login nodes holds the runs of all: a run on another machine cannot be seen from here, and is not
judged.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach import runs
from coach.late import LateModule
from coach.model.slurm.cluster import (
    LAUNCH_INTERRUPTED,
    MACHINE_RESTARTED,
    NOT_RECORDED,
    SUPERVISOR_DIED,
    is_final,
)
from coach.trusted import read_small

if TYPE_CHECKING:
    import psutil
else:
    psutil = LateModule("psutil")

SUPERVISOR_MODULE = "coach.launch.local"
"""The module that a supervisor runs, with the run directory as argument."""

_CLOCK_SLACK_S = 2.0
"""The start time of a process is derived from the boot time, which shifts a little when the clock is set."""

LAUNCH_MAY_LAST_S = 600.0
"""A submission older than this never reaches Slurm any more: munge's credentials are valid for five
minutes."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The real state of a local run. `state` is Slurm's state; None if none was recorded."""

    state: str | None
    reason: str | None = None
    """Why it ended, if the run could not record that itself."""
    host: str | None = None
    """The machine on which its supervisor was started; None if unknown."""
    is_visible: bool = True
    """False: the run is on another machine, and `state` is only the last known one."""


Look = Callable[[Mapping[str, Any]], Sighting]
"""How sources get a run's state from its run.json: `look`, or `as_recorded` in a replay."""


def identify(process: psutil.Process) -> dict[str, Any]:
    """The description of a process for run.json: of the supervisor, or of the launcher while a submission has
    no answer."""
    return {
        "pid": process.pid,
        "create_time_s": process.create_time(),
        "node": socket.gethostname(),
        "boot_id": runs.boot_id(),
    }


def look(run_json: Mapping[str, Any]) -> Sighting:
    """The state of a run as seen from this machine."""
    seen = as_recorded(run_json)
    said = _supervisor(run_json)
    if seen.host is None and seen.state == "PENDING":
        return _look_at_launch(run_json, seen)
    if seen.host is None or is_final(seen.state) or seen.state is None:
        return seen
    if seen.host != socket.gethostname() or not _sees_processes(run_json):
        return Sighting(seen.state, None, seen.host, is_visible=False)
    booted = runs.boot_id()
    if booted is not None and said.get("boot_id") not in (None, booted):
        return Sighting(NOT_RECORDED, MACHINE_RESTARTED, seen.host)
    return seen if is_alive(run_json) else Sighting(NOT_RECORDED, SUPERVISOR_DIED, seen.host)


def _look_at_launch(run_json: Mapping[str, Any], seen: Sighting) -> Sighting:
    """The state of a run whose supervisor has recorded nothing yet: its coach is starting one, or ended
    before it could."""
    said = _table(run_json, "launcher")
    host = said.get("node")
    if not isinstance(host, str):
        return seen  # a version that did not record its launcher
    if host != socket.gethostname():
        return Sighting(seen.state, None, host, is_visible=False)
    is_under_way = _find(said) is not None or _has_new_supervisor(str(run_json.get("run_id")))
    return seen if is_under_way else Sighting("FAILED", LAUNCH_INTERRUPTED, host)


def _has_new_supervisor(run_id: str) -> bool:
    """True if a supervisor of this run has been started but has written nothing yet."""
    for pid in psutil.pids():
        words = read_small(f"/proc/{pid}/cmdline").split("\0")
        if SUPERVISOR_MODULE in words and any(Path(word).name == run_id for word in words):
            return True
    return False


def as_recorded(run_json: Mapping[str, Any]) -> Sighting:
    """The state in the file, for a replay: its processes existed elsewhere and earlier, so they cannot be
    checked."""
    state, host = run_json.get("state"), _supervisor(run_json).get("node")
    return Sighting(
        state if isinstance(state, str) else None, None, host if isinstance(host, str) and host else None
    )


def state_of(run_json: Mapping[str, Any]) -> str | None:
    """The real state of a local run, as far as it can be seen from here."""
    return look(run_json).state


def may_be_launching(run_json: Mapping[str, Any], now_s: float) -> bool:
    """True while the coach that submits this run is alive. For a coach on another machine: for as long as a
    submission can take."""
    said = _table(run_json, "launcher")
    if not said:
        return False
    if said.get("node") == socket.gethostname():
        return _find(said) is not None
    submitted_s = run_json.get("submitted_time_s")
    return isinstance(submitted_s, (int, float)) and abs(now_s - submitted_s) < LAUNCH_MAY_LAST_S


def find_supervisor(run_json: Mapping[str, Any]) -> psutil.Process | None:
    """The supervisor's process on this machine; None if it has ended, is elsewhere or was never started."""
    return _find(_supervisor(run_json))


def _find(said: Mapping[str, Any]) -> psutil.Process | None:
    """The process that run.json describes by its pid and start time; None if it has ended or is elsewhere."""
    if said.get("node") != socket.gethostname() or said.get("boot_id") not in (None, runs.boot_id()):
        return None
    pid, create_time_s, ticks = said.get("pid"), said.get("create_time_s"), said.get("start_ticks")
    if not isinstance(pid, int) or pid <= 1:
        return None
    try:
        process = psutil.Process(pid)
        if isinstance(ticks, int):
            is_same = _start_ticks(pid) == ticks
        else:
            is_same = (
                isinstance(create_time_s, (int, float))
                and abs(process.create_time() - create_time_s) <= _CLOCK_SLACK_S
            )
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OverflowError):
        return None


def find_command(run_json: Mapping[str, Any]) -> psutil.Process | None:
    """The process of the run's command on this machine; None if it has ended, is elsewhere, or is not named
    in run.json."""
    return _find(_table(run_json, "process"))


def is_command_known(run_json: Mapping[str, Any]) -> bool:
    """True if run.json names the process of the command, so that its end can be detected."""
    return isinstance(_table(run_json, "process").get("start_ticks"), int)


def is_alive(run_json: Mapping[str, Any]) -> bool:
    """True if the run's supervisor or its command is running on this machine."""
    return _process(run_json) is not None


def find_process(run_json: Mapping[str, Any]) -> psutil.Process | None:
    """The process to signal: the run's supervisor, which passes signals on, or the command that outlived it.
    None also if it is another user's."""
    process = _process(run_json)
    with contextlib.suppress(psutil.Error):
        if process is not None and process.uids().effective == os.geteuid():
            return process
    return None


def _process(run_json: Mapping[str, Any]) -> psutil.Process | None:
    return find_supervisor(run_json) or find_command(run_json)


def processes_of_runs() -> dict[str, int]:
    """Run id → pid of one of its processes on this machine. Each process has the run's id in its
    environment."""
    wanted = f"{runs.RUN_VARIABLE}="
    found: dict[str, int] = {}
    for pid in psutil.pids():
        for entry in read_small(f"/proc/{pid}/environ").split("\0"):
            if entry.startswith(wanted):
                found.setdefault(entry.removeprefix(wanted), pid)
    return found


def is_to_be_waited_for(run_json: Mapping[str, Any]) -> bool:
    """True if a run that starts after this one must wait: on this machine until its supervisor is gone,
    elsewhere until its end is recorded."""
    seen = look(run_json)
    return is_alive(run_json) if seen.is_visible else not is_final(seen.state)


def _sees_processes(run_json: Mapping[str, Any]) -> bool:
    """False in another container than the run's, where the same pids are other processes."""
    namespace = _table(run_json, "process").get("pid_namespace")
    try:
        return namespace in (None, os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 (the text is wanted)
    except OSError:
        return False


def _start_ticks(pid: int) -> int | None:
    """The start time of a process, in clock ticks since the boot."""
    try:
        return int(read_small(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
    except (ValueError, IndexError):
        return None


def _supervisor(run_json: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(run_json, "supervisor")


def _table(run_json: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    said = run_json.get(key)
    return said if isinstance(said, Mapping) else {}
