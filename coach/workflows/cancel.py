"""Cancel an own run or job: first the exact command, then, when it was confirmed, the deed.

Two steps, because nothing irreversible happens without its text shown; the second does what the first said and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import Any

from coach import runs
from coach.config import Settings
from coach.launch import local
from coach.launch import submit as slurm
from coach.model.belonging import fits, is_of_another_cluster
from coach.model.cluster import is_final
from coach.model.errors import UserError
from coach.model.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io, Query
from coach.sources.local_process import find_supervisor
from coach.sources.run_files import parse_run
from coach.sources.run_list import read_listed_run
from coach.sources.slurm_text import parse_time
from coach.sources.user import user_name
from coach.workflows.backend import resolve_backend
from coach.workflows.readonly import refuse_if_readonly
from coach.workflows.targets import known_cluster

_WITH_A_SCRIPT = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States in which the batch script runs, and will say how it ended."""


class HasEnded(UserError):
    """There is nothing left to cancel."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What will be cancelled. `run_dir` is None for a job that coach did not launch."""

    backend: str
    job_id: str
    run_dir: str | None
    command: str
    """Exactly what will be done, as a command line."""
    is_waiting: bool = False
    """Its script is not running, also when an earlier attempt was: nobody but coach writes down how the run ends."""


def plan_cancel(target: str, settings: Settings, env: Mapping[str, str], io: Io) -> Cancellation:
    """Look up a run id or a job id. Raises UserError when there is nothing to cancel, or it is somebody else's."""
    refuse_if_readonly(settings, "cancels nothing")
    run_dir = settings.runs_root / target
    if runs.RUN_ID.match(target) and run_dir.is_dir():
        return _plan_run(target, run_dir, known_cluster(settings), io)
    if not slurm.is_job_id(target):
        raise UserError(f"{target!r}: neither a run in {settings.runs_root} nor a job id")
    if resolve_backend("auto", env) != "slurm":
        raise UserError(
            f"job {target}: there is no Slurm on this machine", "a local run is cancelled by its run id"
        )
    queued = _ask(target, io)
    return _plan_job(target, queued, _run_dir_of(target, queued, settings))


def cancel(cancellation: Cancellation, env: Mapping[str, str], now_s: float) -> None:
    """Do it. Raises UserError in Slurm's words when it is refused."""
    if cancellation.backend == "local":
        assert cancellation.run_dir is not None
        local.cancel(Path(cancellation.run_dir))
        return
    slurm.cancel(cancellation.job_id, env)
    if cancellation.run_dir is None:
        return
    run_json = runs.RunPaths(cancellation.run_dir).run_json
    if cancellation.is_waiting or _read(run_json).get("started_time_s") is None:
        runs.update_json(run_json, {"state": "CANCELLED", "ended_time_s": now_s})


def _plan_run(run_id: str, run_dir: Path, cluster: str | None, io: Io) -> Cancellation:
    run_json = _read(runs.RunPaths(run_dir).run_json)
    if run_json.get("backend") != "local":
        job_id = run_json.get("job_id")
        if not isinstance(job_id, str) or not slurm.is_job_id(job_id):
            raise UserError(f"{run_id}: it has no job id, it was never submitted")
        run = parse_run(run_json, str(run_dir))
        if is_of_another_cluster(run, cluster):
            raise UserError(f"{run_id}: it is job {job_id} of cluster {run.cluster}, and this is {cluster}")
        queued = _ask(job_id, io)
        if not queued.can_be_of(run, cluster):
            raise UserError(
                f"{run_id}: Slurm has forgotten its job; {job_id} is the number of another one now"
            )
        return _plan_job(job_id, queued, run_dir)
    supervisor = find_supervisor(run_json)
    try:
        run = read_listed_run(io, run_dir)
    except OSError as error:
        raise UserError(describe(error)) from None
    if is_final(run.state):
        raise HasEnded(f"{run_id}: it has ended already ({run.state})")
    if not run.is_visible:
        raise local.elsewhere(run_id, run.host)
    if supervisor is None:
        raise UserError(f"{run_id}: nothing of this run is running on this machine")
    return Cancellation("local", run_id, str(run_dir), f"kill -TERM {supervisor.pid}")


@dataclass(frozen=True, slots=True)
class _Queued:
    """What the queue says of a job: (state, user, time of submission) of each of its array tasks and components."""

    rows: tuple[tuple[str, str, float | None], ...]

    @property
    def is_waiting(self) -> bool:
        return not any(state in _WITH_A_SCRIPT for state, _, _ in self.rows)

    def can_be_of(self, run: Run, cluster: str | None) -> bool:
        return all(fits(run, user, submitted_s, cluster) for _, user, submitted_s in self.rows)


def _ask(job_id: str, io: Io) -> _Queued:
    """Raises UserError in Slurm's words when it does not know the job."""
    argv = ("squeue", "-h", "-a", "-t", "all", "-j", job_id, "-o", "%T %u %V")
    result = io.run(Query("job-owner", argv))
    if result.returncode != 0:
        words = result.error or " ".join(result.stderr.split())
        raise UserError(f"job {job_id}: {words}")
    rows = [line.split() for line in result.stdout.decode("utf-8", "replace").splitlines() if " " in line]
    if not rows:
        raise UserError(f"job {job_id}: Slurm does not know it, or has forgotten it")
    return _Queued(tuple((row[0], row[1], parse_time(row[2]) if row[2:] else None) for row in rows))


def _plan_job(job_id: str, queued: _Queued, run_dir: Path | None) -> Cancellation:
    others = {user for _, user, _ in queued.rows} - {user_name()}
    if others:
        raise UserError(
            f"job {job_id}: it belongs to {', '.join(sorted(others))}, coach cancels own jobs only"
        )
    states = [state for state, _, _ in queued.rows]
    if all(is_final(state) for state in states):
        raise HasEnded(f"job {job_id}: it has ended already ({states[0]})")
    command = join(slurm.cancel_command(job_id))
    return Cancellation("slurm", job_id, str(run_dir) if run_dir else None, command, queued.is_waiting)


def _run_dir_of(job_id: str, queued: _Queued, settings: Settings) -> Path | None:
    """The newest run of coach whose job this can be; job ids begin again when a cluster is set up anew."""
    names = [path for path in settings.runs_root.glob("*-*") if runs.RUN_ID.match(path.name)]
    for path in sorted(names, reverse=True):
        try:
            run_json = runs.read_json(runs.RunPaths(path).run_json)
        except runs.RunFileError:
            continue
        if run_json.get("job_id") != job_id or run_json.get("backend") != "slurm":
            continue
        if queued.can_be_of(parse_run(run_json, str(path)), known_cluster(settings)):
            return path
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return runs.read_json(path)
    except runs.RunFileError as error:
        raise UserError(str(error)) from None
