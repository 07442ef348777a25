"""The run directory of `coach run`: join the one that a launch made, or make one for a user's own command.

In a Slurm step the tasks of all nodes share one run directory without communication: the first task creates a
symbolic link named after the step. Creating a link with its content is atomic on every file system.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from coach import __version__, runs
from coach.node.node_name import is_first_node, raw_job_id, slurm_job_id
from coach.node.output import Output
from coach.node.processes import read_stat
from coach.node.secret_words import mask_command
from coach.trusted import private_folder, read_small

_BY_COMMAND = "command"


def prepare(
    run_dir: Optional[str],
    root: Path,
    recipe: str,
    command: List[str],
    time_s: float,
    env: Mapping[str, str],
    asked: Mapping[str, Any],
) -> Optional[runs.RunPaths]:
    """The run directory, with its folders. `asked` goes into a new run.json.

    If it cannot be made, returns None after one line on stderr: the command runs all the same.
    """
    try:
        if run_dir:
            paths = runs.RunPaths(Path(run_dir).absolute())
        else:
            private_folder(root)
            paths = runs.RunPaths(root / _shared_run_id(root, recipe, time_s, env))
        is_new = not paths.run_dir.exists()
        if is_new:
            private_folder(paths.run_dir)
        for folder in (paths.metrics_dir, paths.telemetry_dir, paths.checkpoints_dir):
            folder.mkdir(exist_ok=True)
        if is_first_node(env) and not paths.run_json.exists():
            runs.update_json(paths.run_json, {**_new_run(paths, recipe, command, time_s, env), **asked})
        if is_new and not run_dir and is_first_node(env):
            print(f"coach run: {paths.run_dir}", file=sys.stderr)
    except (OSError, runs.RunFileError) as error:
        print(f"coach run: no samples and no record of this run: {error}", file=sys.stderr)
        return None
    return paths


def has_no_script(paths: runs.RunPaths) -> bool:
    """True if `coach run` made the run itself: then no batch script and no local supervisor keeps its output
    and records its end."""
    return _BY_COMMAND in runs.read_json(paths.run_json)


def is_without_script(paths: runs.RunPaths) -> bool:
    """The same, but False if run.json cannot be read."""
    with contextlib.suppress(OSError, runs.RunFileError):
        return has_no_script(paths)
    return False


def output_of(paths: runs.RunPaths, env: Mapping[str, str]) -> Optional[Output]:
    """The output to keep or to record: that of the first task, unless a launch has handled it."""
    with contextlib.suppress(OSError, runs.RunFileError):
        if is_first_node(env) and has_no_script(paths):
            return Output.of_run(paths, env)
    return None


def _shared_run_id(root: Path, recipe: str, time_s: float, env: Mapping[str, str]) -> str:
    run_id = runs.new_run_id(recipe, time_s)
    if not (env.get("SLURM_JOB_ID") and env.get("SLURM_STEP_ID")):
        return run_id
    parts = (env.get("SLURM_CLUSTER_NAME"), env["SLURM_JOB_ID"], env["SLURM_STEP_ID"])
    step = "-".join(part for part in (*parts, env.get("SLURM_RESTART_COUNT")) if part).replace("/", "_")
    links = root / ".steps"
    links.mkdir(mode=0o700, exist_ok=True)
    try:
        (links / step).symlink_to(run_id)
    except FileExistsError:
        # Path.readlink would resolve nothing more, and the text is needed.
        return os.readlink(links / step)  # noqa: PTH115
    return run_id


def note_command(paths: runs.RunPaths, places: Mapping[str, Any]) -> None:
    """In the process that becomes the command: write its pid, its supervisor, and the files of its output
    into run.json.

    Only for a run that `coach run` made. It happens before the command starts, so run.json names the command
    at each moment of its life. `places` has `stdout` and `stderr`.
    """
    with contextlib.suppress(OSError, runs.RunFileError):
        run = runs.read_json(paths.run_json)
        earlier = run.get("output") or {}  # from an earlier command in the same directory
        found: Dict[str, Any] = {"output": {**dict.fromkeys(earlier), **places}}
        if run.get("backend") == "local":
            found.update(supervisor=_supervisor(os.getppid()), process=identify(os.getpid()))
        runs.update_json(paths.run_json, found)


def stderr_log(paths: runs.RunPaths) -> Optional[Path]:
    """The file of the command's standard error, as `note_command` recorded it; None if it is not recorded."""
    place = (runs.read_json(paths.run_json).get("output") or {}).get("stderr")
    return paths.run_dir / place if isinstance(place, str) else None


def identify(pid: int) -> Dict[str, Any]:
    """Facts that identify a process on this machine since its last boot: pid and start time. A later process
    with the same pid has another start time."""
    found: Dict[str, Any] = {"pid": pid, "node": os.uname().nodename}
    if runs.boot_id():
        found["boot_id"] = runs.boot_id()
    with contextlib.suppress(OSError):
        found["pid_namespace"] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (the text is wanted)
    stat = read_stat(pid)
    if stat:
        found["start_ticks"] = stat.start_ticks
    return found


def _supervisor(pid: int) -> Dict[str, Any]:
    """The process of `coach run`: its presence shows that the run is alive; cancel signals it, and stacks are
    found through it."""
    found = {key: value for key, value in identify(pid).items() if key in ("pid", "node", "boot_id")}
    with contextlib.suppress(OSError, ValueError, IndexError):
        booted = read_small("/proc/stat").partition("\nbtime ")[2].split()[0]
        stat = read_stat(pid)
        if stat:
            found["create_time_s"] = int(booted) + stat.start_ticks / os.sysconf("SC_CLK_TCK")
    return found


def _new_run(
    paths: runs.RunPaths, recipe: str, command: List[str], time_s: float, env: Mapping[str, str]
) -> Dict[str, Any]:
    run_id = paths.run_dir.name
    job_id = slurm_job_id(env)
    user = None
    with contextlib.suppress(Exception):
        user = getpass.getuser()
    return {
        "schema": runs.SCHEMA,
        "run_id": run_id,
        "recipe": recipe,
        "trainer": None,
        _BY_COMMAND: mask_command(command),
        "parameters": {},
        "resources": {},
        "backend": "local" if job_id is None else "slurm",
        "cluster": env.get("SLURM_CLUSTER_NAME"),
        "job_id": job_id or run_id,
        "raw_job_id": raw_job_id(env),
        **({"supervisor": _supervisor(os.getpid())} if job_id is None else {}),
        "user": user,
        "created_time_s": time_s,
        "started_time_s": time_s,
        "state": "RUNNING",
        "environment": {"python": sys.executable, "setup": []},
        "versions": {"coach": __version__, "python": platform.python_version()},
    }
