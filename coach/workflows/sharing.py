"""Decide what a run shows its cohort: in which directory, and which findings.

The file itself is written by `coach.node.share`, which the run's own processes use as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coach import runs
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.launching.launch import NOWHERE, LaunchRequest
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import Snapshot
from coach.model.training.run import Run
from coach.node import share

JOB_PATIENCE_S = 3.0
"""Seconds that a job's verdict waits for the shared directory. The job's end has waited for it already."""


def shared_where(request: LaunchRequest) -> tuple[LaunchRequest, tuple[str, ...], tuple[str, ...]]:
    """The request with the directory resolved, the plan's notes on it, and its warnings.

    Raises UserError if a directory named for this launch cannot be used; one that the config or the parent
    run brings along is left out instead.
    """
    if request.share is None or request.share == NOWHERE:
        return request, (), ()
    directory = Path(request.share).resolve()
    problem = why_not_shared(directory)
    if problem is None:
        said = f"shares a summary in {directory}: state, samples/s and finding, for everybody to read"
        return replace(request, share=str(directory)), (said,), ()
    if "share" not in request.defaulted and request.parent_run_id is None:
        raise UserError(f"--share {directory}: {problem}", "a directory like /tmp would do: chmod 1777")
    return replace(request, share=None), (), (f"shares no summary: {directory}: {problem}",)


def unshared(request: LaunchRequest) -> LaunchRequest:
    """A request that shares nothing, for a launch that only tests coach or the site; unless the user asked to
    share, or the site has locked the directory."""
    if request.share is not None:
        return request
    return replace(request, share=NOWHERE, defaulted=request.defaulted | {"share"})


def why_not_shared(directory: Path) -> str | None:
    """The reason why this user cannot share there; None if all is well."""
    try:
        problem = share.why_unsafe(directory.stat())
    except OSError as error:
        return error.strerror or str(error)
    if problem is None and not os.access(directory, os.W_OK | os.X_OK):
        return "you may not write there"
    return problem


def share_diagnosis(run: Run | None, diagnosis: Diagnosis) -> None:
    """Tell the cohort the diagnosis, and how the run ended if it has."""
    if run is not None and _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir), _told(diagnosis), _end_of(diagnosis))


def share_own_verdict(run: Run | None, diagnosis: Diagnosis) -> None:
    """Tell it for a job that judges itself at its end, and holds its nodes meanwhile."""
    if run is not None and _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir), _told(diagnosis), _end_of(diagnosis), JOB_PATIENCE_S)


def share_answer(run: Run) -> None:
    """Tell the cohort how far a learner is with a drill, without the cause."""
    if _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir))


def _told(diagnosis: Diagnosis) -> dict[str, str] | None:
    """The part of the diagnosis to share; None if it must still be withheld."""
    return None if why_withheld(diagnosis) is not None else _primary(diagnosis.findings)


def _primary(findings: Sequence[Finding]) -> dict[str, str]:
    """Empty if there is no finding."""
    primary = next((finding for finding in findings if finding.is_primary), None)
    return {} if primary is None else {"code": primary.rule, "severity": primary.severity.word}


def _end_of(diagnosis: Diagnosis) -> str | None:
    return diagnosis.state if is_final(diagnosis.state) else None


class Aside:
    """Writes files in a thread of its own: a directory that hangs must not keep the screens waiting."""

    def __init__(self) -> None:
        self._tasks: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def do(self, name: str, task: Callable[[], object]) -> None:
        """Run the task soon; it replaces a waiting task of the same name. Returns at once."""
        with self._lock:
            self._tasks[name] = task
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="aside", daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until all tasks are done, at most `timeout_s`."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._thread = None
                    return
                name = next(iter(self._tasks))
                task = self._tasks.pop(name)
            try:
                task()
            except BaseException:
                with self._lock:
                    self._thread = None  # the next call starts another thread, for the waiting tasks too
                raise


class Sharer:
    """Shares a session's findings with the cohort."""

    def __init__(self) -> None:
        self._told: dict[str, object] = {}
        self._aside = Aside()

    def tell(self, snapshot: Snapshot) -> None:
        """Share new findings. Returns at once."""
        for name, diagnosis in snapshot.diagnoses.items():
            target = snapshot.targets.get(name)
            run = target.run if target is not None else None
            if run is None or not _is_shared(run):
                continue
            word = (_told(diagnosis), _end_of(diagnosis))
            if self._told.get(name) != word:
                self._told[name] = word
                self._aside.do(name, partial(share_diagnosis, run, diagnosis))

    def tell_end(self, run: Run, state: str) -> None:
        """Share how a job ended that could not report it itself: it was killed, or never started. Returns at
        once."""
        if _is_shared(run):
            paths = runs.RunPaths(run.run_dir)
            self._aside.do(f"end of {run.run_id}", partial(share.share_in_time, paths, None, state))


def _is_shared(run: Run) -> bool:
    return run.launch.get("share") not in (None, NOWHERE)
