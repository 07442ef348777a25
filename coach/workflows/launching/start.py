"""Turn a plan into a run: its directory, its code, and a job in the queue or a supervisor on this machine.

The one place where both backends meet. The run directory is complete before anything can start in it, and a
refused submission leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from coach import __version__, runs
from coach.config import DEFAULT_CLUSTER, Settings, Switch
from coach.launch import array_script, local
from coach.launch import submit as slurm
from coach.launch.refusal import Refused
from coach.launch.snapshot import code_dir, make_snapshot, snapshot_files
from coach.model.errors import UserError
from coach.model.launching.launch import OwnKind, OwnProgram, Plan, Submitted
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.node import share
from coach.sources.io import Io, Query, SystemIo, scrubbed_environment
from coach.sources.machine.disk import why_not_kept
from coach.sources.runs.local_process import identify, state_of
from coach.workflows.launching.prepare import OTHER_RUNS_ROOT
from coach.workflows.launching.refusals import explained, keep_question
from coach.workflows.readonly import refuse_if_readonly

_LOOK_INTERVAL_S = 0.5
_QUEUE_INTERVAL_S = 5.0
_ENDING_INTERVAL_S = 1.0
"""Seconds between two questions to the controller soon after the run directory has reported an end."""
_FORGOTTEN_WAIT_S = 30.0
"""Seconds that an exit.json may take to appear on a shared file system after Slurm has forgotten the job."""

_TAKEN = {"launcher": None, "found_by": None}
TORN = "torn-"
"""Before the name of an incomplete checkpoint that a resumed run leaves out: no trainer takes it."""


def make_ready(plan: Plan) -> None:
    """Make everything that a run needs before its record: its directory, the folder in which Slurm opens the
    logs, and the code."""
    with _told(plan):
        _make_code(plan)
        paths = runs.create_run_dir(Path(plan.run_dir).parent, plan.run_id)
        try:
            if plan.backend == "slurm" and not _is_batch(plan):
                runs.link_scheduler_logs(paths)
        except OSError:
            shutil.rmtree(paths.run_dir, ignore_errors=True)
            raise


def check_ready(plan: Plan) -> None:
    """Raise the errors that `make_ready` would, without making a run.

    The code stays, so that the printed script can be started by hand. That script makes its own run
    directory. Slurm needs the folder of the logs before the script starts, so it is made here.
    """
    run_dir = Path(plan.run_dir)
    with _told(plan):
        if os.path.lexists(run_dir):
            raise FileExistsError
        why = why_not_kept(run_dir.parent)
        if why is not None:
            raise UserError(why, OTHER_RUNS_ROOT)
        _make_code(plan)
        if plan.backend == "slurm":
            runs.private_folder(run_dir.parent / runs.LOGS_FOLDER)


def _is_batch(plan: Plan) -> bool:
    """True if the plan is a batch file, whose own #SBATCH lines say where its output goes."""
    return plan.request.own is not None and plan.request.own.kind is OwnKind.BATCH


def _make_code(plan: Plan) -> None:
    files = snapshot_files(Path(plan.own_trainers) if plan.own_trainers else None)
    if plan.own_trainers and code_dir(Path(plan.run_dir).parent, files) != Path(plan.code_dir):
        raise UserError(
            f"{plan.own_trainers}: the trainer was changed since the plan was made", "make the plan again"
        )
    make_snapshot(Path(plan.code_dir), files)


@contextlib.contextmanager
def _told(run: Plan | Run) -> Iterator[None]:
    """Turn an error of the file system into a message for the user."""
    try:
        yield
    except FileExistsError:
        raise UserError(f"{run.run_dir}: this run exists already") from None
    except runs.RunFileError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        place = error.filename2 or error.filename or run.run_dir
        raise UserError(f"{place}: {error.strerror}", OTHER_RUNS_ROOT) from None


def submit(
    plan: Plan, settings: Settings, env: Mapping[str, str], io: Io, after: Run | None = None
) -> Submitted:
    """Launch exactly what the plan says, after the end of the run `after`. Raises UserError if it is
    refused."""
    with written_run(plan, settings, io):
        return start(plan, settings, env, after)


@contextlib.contextmanager
def written_run(plan: Plan, settings: Settings, io: Io) -> Iterator[None]:
    """Write all that the run needs to start; remove it again if the block raises a refusal.

    If sbatch does not answer, the files stay: the job may be in the queue, and needs the folder for its logs.
    """
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    make_ready(plan)
    paths = runs.RunPaths(plan.run_dir)
    try:
        runs.write_atomic(paths.job_script, plan.script)
        submitted: dict[str, Any] = {
            "submitted_time_s": io.now(),
            "state": "PENDING",
            "launcher": identify(psutil.Process()),
        }
        if plan.backend == "slurm" and settings.cluster != DEFAULT_CLUSTER:
            submitted["cluster"] = settings.cluster
        runs.write_json(paths.run_json, {**plan.run_json, **submitted})
    except OSError as error:
        shutil.rmtree(paths.run_dir, ignore_errors=True)
        raise UserError(f"{paths.run_dir}: cannot be written: {error.strerror or error}") from None
    share.share(paths)  # the plan and the job's log report a failure
    try:
        yield
    except slurm.NoAnswer:
        with contextlib.suppress(OSError, runs.RunFileError):
            runs.update_json(paths.run_json, {"launcher": None})
        raise
    except UserError as error:
        if isinstance(error, Refused):
            keep_question(error, settings)
        share.withdraw(paths)
        shutil.rmtree(paths.run_dir, ignore_errors=True)
        raise


def read_script(run: Run) -> str:
    """The batch script that a run of this user was launched with. Raises OSError."""
    return runs.read_own(runs.RunPaths(run.run_dir).job_script).decode("utf-8", "replace")


def command_of(plan: Plan, after: Run | None = None) -> str:
    """The exact command that starts one run, after the end of the run `after`."""
    return shlex.join(start_words(plan, after))


def start_words(run: Plan | Run, after: Run | None = None) -> tuple[str, ...]:
    """The words of that command."""
    run_dir = Path(run.run_dir)
    if run.backend == "local":
        return tuple(local.start_command(run_dir, Path(after.run_dir) if after else None))
    script = runs.RunPaths(run_dir).job_script
    return slurm.sbatch_command(script, after.job_id if after else None)


def start(plan: Plan, settings: Settings, env: Mapping[str, str], after: Run | None = None) -> Submitted:
    """Start a run that is already written. Raises UserError if it is refused."""
    paths = runs.RunPaths(plan.run_dir)
    if plan.backend == "local":
        with _told(plan):
            local.start(paths.run_dir, env, Path(after.run_dir) if after else None)
        return Submitted(plan.run_id, plan.run_dir, plan.run_id, "PENDING")
    accepted = _accepted(plan, paths.job_script, settings, env, after.job_id if after else None)
    task = array_script.task_of(plan)
    job_id = accepted.job_id if task is None else f"{accepted.job_id}_{task}"
    notes = (*(f"sbatch: {line}" for line in accepted.lines), *note_job(paths, job_id))
    return Submitted(plan.run_id, plan.run_dir, job_id, "PENDING", notes)


def note_job(paths: runs.RunPaths, job_id: str) -> tuple[str, ...]:
    """Write the id of an accepted job into run.json. If that fails, returns a note: the job is queued all the
    same, and coach finds it later by its output."""
    try:
        runs.update_json(paths.run_json, {"job_id": job_id, **_TAKEN})
        share.share(paths)  # the cohort knew the run before its job had a number
    except (OSError, runs.RunFileError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        words = f"job {job_id} is queued, but {paths.run_json} could not be written: {why}"
        return (f"{words}; `coach runs` finds the job again by its output",)
    return ()


def start_again(
    run: Run, checkpoint: str, torn: Iterable[str], settings: Settings, env: Mapping[str, str], io: Io
) -> Submitted:
    """Start a run that has ended once more: its script and its trainer go on from the checkpoint, and the
    torn ones get another name. Raises UserError if it is refused; all files are then as they were."""
    paths = runs.RunPaths(run.run_dir)
    with _told(run), _begun_again(run, checkpoint, torn, io):
        if run.backend == "local":
            local.start(paths.run_dir, env)
            share.share(paths)
            return Submitted(run.run_id, run.run_dir, run.run_id, "PENDING")
        directory = (run.launch.get("own") or {}).get("directory")
        accepted = slurm.submit(paths.job_script, env, settings.sbatch_timeout_s, directory=directory)
    notes = (*(f"sbatch: {line}" for line in accepted.lines), *note_job(paths, accepted.job_id))
    return Submitted(run.run_id, run.run_dir, accepted.job_id, "PENDING", notes)


@contextlib.contextmanager
def _begun_again(run: Run, checkpoint: str, torn: Iterable[str], io: Io) -> Iterator[None]:
    """Make the record that of a waiting run, set torn checkpoints aside, and mark the end of the earlier
    attempt in the logs. If the block fails, all is as it was before; if sbatch does not answer or is
    interrupted, the job may be in the queue. Of several processes that resume the run, one gets through."""
    paths = runs.RunPaths(run.run_dir)
    ends = (paths.exit_json, paths.exit_status, paths.verdict_json)
    attempt = {key: getattr(run, key) for key in ("job_id", "state", "started_time_s", "ended_time_s")}
    attempts = [*run.attempts, {**attempt, "checkpoint": checkpoint}]
    unknown = ("reason", "raw_job_id", "found_by", "started_time_s", "ended_time_s", "supervisor", "process")
    record = {
        **dict.fromkeys(unknown),
        "job_id": run.run_id if run.backend == "local" else None,
        "state": "PENDING",
        "submitted_time_s": io.now(),
        "launcher": identify(psutil.Process()),
        "attempts": attempts,
    }
    with contextlib.ExitStack() as undoing:
        with runs.locked(paths.run_dir / "resume"):
            recorded = runs.read_json(paths.run_json).get("attempts") or []
            if recorded[-1:] != [*run.attempts][-1:]:
                raise UserError(f"{run.run_id}: it was resumed a moment ago")
            for path in (*ends, paths.run_json):
                if path.exists():
                    text = runs.read_own(path).decode("utf-8", "surrogateescape")
                    undoing.callback(runs.write_atomic, path, text)
            for log in (paths.stdout_log, paths.stderr_log):
                with open(log, "a", encoding="utf-8") as file:
                    undoing.callback(os.truncate, log, file.tell())
                    file.write(f"coach: this is attempt {len(attempts) + 1} of job {run.run_id}\n")
            for path in map(Path, torn):
                aside = path.with_name(TORN + path.name)
                while os.path.lexists(aside):  # the same step was torn in an earlier attempt
                    aside = path.with_name(TORN + aside.name)
                path.rename(aside)
                undoing.callback(aside.rename, path)
            runs.update_json(paths.run_json, record)
            for path in ends:
                path.unlink(missing_ok=True)
        try:
            yield
        except (slurm.NoAnswer, KeyboardInterrupt):
            runs.update_json(paths.run_json, {"launcher": None})
            undoing.pop_all()
            raise
        undoing.pop_all()


def submit_array(
    plans: Sequence[Plan], at_once: int | None, settings: Settings, env: Mapping[str, str], io: Io
) -> tuple[Submitted, ...]:
    """Launch a group as one job array: all of its runs, or none. Raises UserError if it is refused."""
    first = plans[0]
    with contextlib.ExitStack() as written:
        for plan in plans:
            written.enter_context(written_run(plan, settings, io))
        script = Path(first.run_dir) / runs.ARRAY_SCRIPT
        try:
            runs.write_atomic(script, array_script.render(plans, at_once, __version__))
        except OSError as error:
            raise UserError(f"{script}: cannot be written: {error.strerror or error}") from None
        accepted = _accepted(first, script, settings, env, None)
    tasks = array_script.tasks_of(plans)
    ids = [f"{accepted.job_id}_{task}" for task in tasks]
    notes = tuple(f"sbatch: {line}" for line in accepted.lines)
    for plan, job_id in zip(plans, ids, strict=True):
        notes += note_job(runs.RunPaths(plan.run_dir), job_id)
    return tuple(
        Submitted(plan.run_id, plan.run_dir, job_id, "PENDING", () if index else notes)
        for index, (plan, job_id) in enumerate(zip(plans, ids, strict=True))
    )


def _accepted(
    plan: Plan, script: Path, settings: Settings, env: Mapping[str, str], after_job: str | None
) -> slurm.Accepted:
    directory = plan.request.own.directory if plan.request.own is not None else None
    try:
        return slurm.submit(script, env, settings.sbatch_timeout_s, after_job, directory)
    except Refused as refused:
        raise explained(
            refused, plan, SystemIo(scrubbed_environment(env), timeout_s=settings.slurm_timeout_s)
        ) from None


def submit_as_is(own: OwnProgram, settings: Settings, env: Mapping[str, str]) -> slurm.Accepted:
    """Hand a batch file to sbatch as it is, in the user's whole environment, without making a run of it.
    Raises UserError if it is refused."""
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    return slurm.submit_command(
        ("sbatch", "--parsable", *own.words), env, settings.sbatch_timeout_s, own.directory, as_is=True
    )


def wait(submitted: Submitted, backend: str, io: Io, on_note: Callable[[str], None]) -> str | None:
    """Wait for the run's end and return its state; None if no source reports it. Goes on waiting while the
    controller does not answer."""
    if backend == "local":
        return _wait_local(submitted, io)
    return _Queue(submitted, io, on_note).wait()


def _wait_local(submitted: Submitted, io: Io) -> str | None:
    paths = runs.RunPaths(submitted.run_dir)
    while True:
        try:
            state = state_of(runs.read_json(paths.run_json))
            if is_final(state):
                # A supervisor that ended since the last look has written its state by now, unless the disk is
                # full.
                return local.state_at_end(io, paths.run_dir)
        except runs.RunFileError as error:
            raise UserError(str(error)) from None
        time.sleep(_LOOK_INTERVAL_S)


class _Queue:
    """Waits for a job: reads the run directory often, and asks the controller seldom."""

    def __init__(self, submitted: Submitted, io: Io, on_note: Callable[[str], None]) -> None:
        self._submitted = submitted
        self._io = io
        self._on_note = on_note
        self._last_note: str | None = None

    def wait(self) -> str | None:
        asked_s = forgotten_since_s = said_since_s = None
        while True:
            now_s = time.monotonic()
            has_said = is_final(self._said())
            said_since_s = (now_s if said_since_s is None else said_since_s) if has_said else None
            # A job that was requeued keeps the record of its earlier end until it starts again.
            is_ending = said_since_s is not None and now_s - said_since_s < _FORGOTTEN_WAIT_S
            if asked_s is None or now_s - asked_s >= (_ENDING_INTERVAL_S if is_ending else _QUEUE_INTERVAL_S):
                asked_s = now_s
                state = self._ask()
                if is_final(state):
                    return state
                if state == "COMPLETING" and has_said:
                    return self._said()
                if state != "":
                    forgotten_since_s = None
                elif has_said:
                    return self._said()
                else:
                    forgotten_since_s = forgotten_since_s or now_s
                    if now_s - forgotten_since_s >= _FORGOTTEN_WAIT_S:
                        return None
            time.sleep(_LOOK_INTERVAL_S)

    def _said(self) -> str | None:
        """The state at the end, as the run directory reports it."""
        try:
            state = runs.read_json(runs.RunPaths(self._submitted.run_dir).exit_json).get("state")
        except runs.RunFileError:
            return None
        return state if isinstance(state, str) else None

    def _ask(self) -> str | None:
        """The state in the queue; empty if Slurm has forgotten the job, None if it does not answer."""
        argv = ("squeue", "-h", "-a", "-t", "all", "-j", self._submitted.job_id, "-o", "%T")
        result = self._io.run(Query("job-state", argv))
        if result.returncode == 0:
            return result.text.strip().split("\n")[0]
        if "Invalid job id" in result.stderr:
            return ""
        words = result.error or " ".join(result.stderr.split())
        if words != self._last_note:
            self._last_note = words
            self._on_note(f"still waiting: {words}")
        return None
