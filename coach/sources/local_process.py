"""Whether the supervisor of a local run is still there.

run.json says RUNNING until somebody writes otherwise; a supervisor that was killed, or a machine that was switched off, never does.
So whoever reads it asks here, and a process number that was given to another process since is not mistaken for it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import psutil

from coach.model.cluster import is_final

_CLOCK_SLACK_S = 2.0
"""A process's start is derived from the boot time, which moves a little when the clock is set."""


def identify(process: psutil.Process) -> dict[str, Any]:
    """What run.json says of the supervisor, under `supervisor`."""
    return {"pid": process.pid, "create_time_s": process.create_time(), "node": socket.gethostname()}


def find_supervisor(run_json: Mapping[str, Any]) -> psutil.Process | None:
    """The supervisor's process on this machine, None when it has ended, runs elsewhere or was never started."""
    said = run_json.get("supervisor")
    if not isinstance(said, Mapping) or not _is_here(said):
        return None
    pid, create_time_s = said.get("pid"), said.get("create_time_s")
    if not isinstance(pid, int) or not isinstance(create_time_s, (int, float)) or pid <= 1:
        return None
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - create_time_s) <= _CLOCK_SLACK_S
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OverflowError):
        return None


def is_alive(run_json: Mapping[str, Any]) -> bool:
    """Whether the run's supervisor is running on this machine."""
    return find_supervisor(run_json) is not None


def state_of(run_json: Mapping[str, Any]) -> str | None:
    """The state of a local run as it really is: a supervisor that died without a word leaves a FAILED run."""
    state = run_json.get("state")
    if not isinstance(state, str):
        return None
    said = run_json.get("supervisor")
    if is_final(state) or not isinstance(said, Mapping) or not _is_here(said) or is_alive(run_json):
        return state
    return "FAILED"


def _is_here(said: Mapping[str, Any]) -> bool:
    # A home directory shared by several machines holds runs of them all.
    return said.get("node") == socket.gethostname()
