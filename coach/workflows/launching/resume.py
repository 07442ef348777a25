"""Let an ended run go on in its own directory, from its newest whole checkpoint, as a requeued job does.

The run's batch script and its trainer resume by themselves: the script removes the record of the earlier end,
and the trainer takes the newest checkpoint of the run directory. So only the record changes here, and the
same script is started again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from coach import runs
from coach.analysis.jobs.belonging import is_of_another_cluster
from coach.config import Settings, Switch
from coach.launch import local
from coach.launch import submit as slurm
from coach.launch.limits import check_running
from coach.model.errors import UserError
from coach.model.launching.launch import OwnKind, Submitted
from coach.model.slurm.job_action import JobAction, Step, Verb
from coach.model.training.run import Checkpoint, Run
from coach.node import share
from coach.sources.follow import describe
from coach.sources.io import Io, for_folder
from coach.sources.machine.user import user_name
from coach.sources.runs.local_process import identify
from coach.sources.runs.run_files import read_checkpoints
from coach.sources.runs.run_index import RunIndex
from coach.sources.runs.run_list import read_listed_run
from coach.workflows.backend import resolve_backend
from coach.workflows.jobs.known_runs import read_known_run
from coach.workflows.jobs.own_checkpoints import saved_below
from coach.workflows.jobs.own_jobs import run_of
from coach.workflows.judging.targets import known_cluster
from coach.workflows.launching.prepare import num_alive_runs
from coach.workflows.launching.start import note_job
from coach.workflows.readonly import refuse_if_readonly

_TORN = "torn-"
"""Before the name of an incomplete checkpoint: no trainer takes it."""


@dataclass(frozen=True, slots=True)
class _Resumption:
    """An ended run, the checkpoint from which it goes on, and newer ones that are incomplete, with the
    reason."""

    run: Run
    checkpoint: Checkpoint
    torn: tuple[tuple[Checkpoint, str], ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The exact command that starts the run again."""
        run_dir = Path(self.run.run_dir)
        if self.run.backend == "local":
            return tuple(local.start_command(run_dir))
        return slurm.sbatch_command(runs.RunPaths(run_dir).job_script)

    @property
    def notes(self) -> tuple[str, ...]:
        name = Path(self.checkpoint.path).name
        notes = [f"the same run goes on from {name} (step {self.checkpoint.step}); its logs and metrics grow"]
        for each, why in self.torn:
            name = Path(each.path).name
            notes.append(f"incomplete: {name}: {why}; it gets the name {_TORN}{name}")
        if self.run.launch.get("own"):
            notes.append("your program must find its checkpoint by itself, in $COACH_CHECKPOINT_DIR")
        return tuple(notes)


def plan_resume(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, backend: str = "auto"
) -> JobAction:
    """The exact command that lets an own, ended run go on. Raises UserError with the reason if it cannot, and
    if it is not of this backend."""
    found = _find(target, settings, env, io)
    run = found.run
    if backend not in ("auto", run.backend):
        raise UserError(f"{run.run_id}: its batch script is for the backend {run.backend}, not {backend}")
    step = Step(found.command, (run.run_id,), run.run_dir)
    return JobAction(Verb.RESUME, (step,), notes=found.notes, timeout_s=settings.sbatch_timeout_s)


def perform_resume(action: JobAction, settings: Settings, env: Mapping[str, str], io: Io) -> Submitted:
    """Start the run again. Its record is that of a waiting run from then on. Raises UserError if it is
    refused, or cannot be resumed any more; record and logs are then as they were."""
    (run_id,) = action.job_ids
    found = _find(run_id, settings, env, io)
    run, paths = found.run, runs.RunPaths(found.run.run_dir)
    index = RunIndex(settings.cache_dir, settings.runs_root)  # it must not show the run as ended
    index.save((name, each) for name, each in index.load().items() if name != run_id)
    with _begun_again(found, io):
        for torn, _ in found.torn:
            place = Path(torn.path)
            place.rename(place.with_name(_TORN + place.name))
        if run.backend == "local":
            local.start(paths.run_dir, env)
            share.share(paths)
            return Submitted(run_id, run.run_dir, run_id, "PENDING")
        own = run.launch.get("own") or {}
        accepted = slurm.submit(paths.job_script, env, action.timeout_s, directory=own.get("directory"))
    notes = (*(f"sbatch: {line}" for line in accepted.lines), *note_job(paths, accepted.job_id))
    return Submitted(run_id, run.run_dir, accepted.job_id, "PENDING", notes)


def _find(target: str, settings: Settings, env: Mapping[str, str], io: Io) -> _Resumption:
    refuse_if_readonly(settings, "resumes nothing", Switch.LAUNCH, Switch.RESUBMIT)
    run = run_of(target, settings, env, io)
    if run is None:
        raise UserError(f"{target}: no run of coach", "`coach runs` lists the runs that coach knows")
    try:
        run = read_listed_run(io, Path(run.run_dir))
        runs.read_own(runs.RunPaths(run.run_dir).job_script)
    except FileNotFoundError:
        raise UserError(f"{run.run_id}: coach has no batch script of it to start again") from None
    except OSError as error:
        raise UserError(f"{run.run_id}: {describe(error)}", "coach starts only your own runs") from None
    _refuse_other(run, settings)
    resolve_backend(run.backend, env, settings)
    known = read_known_run(run, settings, io, user_name())
    if known.alive_because is not None:
        raise UserError(f"{run.run_id}: it has not ended: {known.alive_because}")
    again = f"`coach resubmit {run.run_id}` launches it again, as a new run"
    if known.run.state == "COMPLETED":
        raise UserError(f"{run.run_id}: it has completed: nothing is left to do", again)
    alive = num_alive_runs(settings, io, io.now(), without=run.run_id)
    can_cancel = Switch.CANCEL not in settings.switched_off
    check_running(alive, settings.limits, settings.origins, can_cancel=can_cancel)
    torn: list[tuple[Checkpoint, str]] = []
    found = saved_below(for_folder(io, Path(run.run_dir)), runs.RunPaths(run.run_dir).checkpoints_dir, 0.0)
    for each in reversed(read_checkpoints(io, Path(run.run_dir))):
        parts = (part for part in found.torn if f"{part.path}/".startswith(f"{each.path}/"))
        why = next((part.torn for part in parts if part.torn), None)
        if why is None:
            return _Resumption(known.run, each, tuple(torn))
        torn.append((each, why))
    raise UserError(f"{run.run_id}: it has no whole checkpoint{_how_to_save(run)}", again)


def _refuse_other(run: Run, settings: Settings) -> None:
    """Raise UserError for a run that is not this user's, or of another cluster, or a batch file's."""
    if run.why_not_mine is not None:
        raise UserError(f"{run.why_not_mine}: coach starts nothing from the run {run.run_id}")
    cluster = known_cluster(settings)
    if is_of_another_cluster(run, cluster):
        raise UserError(f"{run.run_id}: it is a run of cluster {run.cluster}, and this is {cluster}")
    own = run.launch.get("own")
    if isinstance(own, dict) and own.get("kind") == OwnKind.BATCH:
        raise UserError(
            f"{run.run_id}: it is a batch file of yours, which decides itself where it goes on",
            f"`coach resubmit {run.run_id}` submits it again",
        )


def _how_to_save(run: Run) -> str:
    if run.launch.get("own"):
        return " in its run directory"
    if "checkpoint_every" not in run.parameters:
        return ": its recipe saves none"
    return "; at the launch, --set checkpoint_every=N saves one every N steps"


@contextlib.contextmanager
def _begun_again(found: _Resumption, io: Io) -> Iterator[None]:
    """Make the record that of a waiting run, and mark the end of the earlier attempt in its logs. If the
    block fails, both are as they were before; if sbatch does not answer, the job may be in the queue."""
    paths = runs.RunPaths(found.run.run_dir)
    with _told(), contextlib.ExitStack() as undoing:
        record = runs.read_own_record(paths.run_dir)
        earlier = record["attempts"] if isinstance(record.get("attempts"), list) else []
        for path in (paths.exit_json, paths.exit_status, paths.verdict_json, paths.run_json):
            if path.exists():
                undoing.callback(
                    runs.write_atomic, path, runs.read_own(path).decode("utf-8", "surrogateescape")
                )
        line = f"coach: this is attempt {len(earlier) + 2} of job {found.run.run_id}\n"
        for log in (paths.stdout_log, paths.stderr_log):
            with open(log, "a", encoding="utf-8") as file:
                undoing.callback(os.truncate, log, file.tell())
                file.write(line)
        runs.update_json(paths.run_json, {**_changes(found, io), "attempts": [*earlier, _attempt(found)]})
        for path in (paths.exit_json, paths.exit_status, paths.verdict_json):
            path.unlink(missing_ok=True)
        try:
            yield
        except slurm.NoAnswer:
            runs.update_json(paths.run_json, {"launcher": None})
            undoing.pop_all()
            raise
        undoing.pop_all()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn an error of the run's files into a message for the user."""
    try:
        yield
    except OSError as error:
        raise UserError(describe(error)) from None
    except runs.RunFileError as error:
        raise UserError(str(error)) from None


def _attempt(found: _Resumption) -> dict[str, Any]:
    """The attempt that has ended, for run.json."""
    run = found.run
    times = {"started_time_s": run.started_time_s, "ended_time_s": run.ended_time_s}
    return {"job_id": run.job_id, "state": run.state, **times, "checkpoint": found.checkpoint.path}


def _changes(found: _Resumption, io: Io) -> dict[str, Any]:
    """The keys of run.json that say how far the run is."""
    unknown = ("reason", "raw_job_id", "found_by", "started_time_s", "ended_time_s", "supervisor", "process")
    return {
        **dict.fromkeys(unknown),
        "job_id": found.run.run_id if found.run.backend == "local" else None,
        "state": "PENDING",
        "submitted_time_s": io.now(),
        "launcher": identify(psutil.Process()),
    }
