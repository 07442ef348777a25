"""What a run shows its cohort, as far as coach decides it: where, and what a look at it has found.

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
"""How long the verdict of a job waits for the shared directory. The job's end itself has waited before it."""


def shared_where(request: LaunchRequest) -> tuple[LaunchRequest, tuple[str, ...], tuple[str, ...]]:
    """The request with the directory as it is, what the plan says of it, and what it warns of.

    Raises UserError for a directory that was named for this launch and cannot be shared in; one that the
    config or the parent run brings along is left out instead.
    """
    if request.share is None or request.share == NOWHERE:
        return request, (), ()
    directory = Path(request.share).resolve()
    problem = _why_not(directory)
    if problem is None:
        said = f"shares a summary in {directory}: state, samples/s and finding, for everybody to read"
        return replace(request, share=str(directory)), (said,), ()
    if "share" not in request.defaulted and request.parent_run_id is None:
        raise UserError(f"--share {directory}: {problem}", "a directory like /tmp would do: chmod 1777")
    return replace(request, share=None), (), (f"shares no summary: {directory}: {problem}",)


def unshared(request: LaunchRequest) -> LaunchRequest:
    """A launch that tries coach or the site, and is nobody's work, shares nothing unless it was said to, or
    the site has locked where."""
    if request.share is not None:
        return request
    return replace(request, share=NOWHERE, defaulted=request.defaulted | {"share"})


def _why_not(directory: Path) -> str | None:
    try:
        problem = share.why_unsafe(directory.stat())
    except OSError as error:
        return error.strerror or str(error)
    if problem is None and not os.access(directory, os.W_OK | os.X_OK):
        return "you may not write there"
    return problem


def share_diagnosis(run: Run | None, diagnosis: Diagnosis) -> None:
    """Tell the cohort what was judged, and how the run ended where it has."""
    if run is not None and _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir), _told(diagnosis), _end_of(diagnosis))


def share_own_verdict(run: Run | None, diagnosis: Diagnosis) -> None:
    """The same for a job that judges itself at its end, and holds its nodes meanwhile."""
    if run is not None and _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir), _told(diagnosis), _end_of(diagnosis), JOB_PATIENCE_S)


def share_answer(run: Run) -> None:
    """Tell the cohort how far a learner is with a drill; what it was, is not told."""
    if _is_shared(run):
        share.share_in_time(runs.RunPaths(run.run_dir))


def _told(diagnosis: Diagnosis) -> dict[str, str] | None:
    """What there is to tell of it; None where nobody may be told yet."""
    return None if why_withheld(diagnosis) is not None else _primary(diagnosis.findings)


def _primary(findings: Sequence[Finding]) -> dict[str, str]:
    """Empty where nothing was found."""
    primary = next((finding for finding in findings if finding.is_primary), None)
    return {} if primary is None else {"code": primary.rule, "severity": primary.severity.word}


def _end_of(diagnosis: Diagnosis) -> str | None:
    return diagnosis.state if is_final(diagnosis.state) else None


class Aside:
    """Does what writes files, in a thread of its own: a directory that hangs must not keep the screens
    waiting."""

    def __init__(self) -> None:
        self._tasks: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def do(self, name: str, task: Callable[[], object]) -> None:
        """Have it done soon, in the place of one of this name that is not begun. Returns at once."""
        with self._lock:
            self._tasks[name] = task
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="aside", daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until all is done, for so long at most."""
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
            task()


class Sharer:
    """Passes on what a session finds."""

    def __init__(self) -> None:
        self._told: dict[str, object] = {}
        self._aside = Aside()

    def tell(self, snapshot: Snapshot) -> None:
        """Note what is new. Returns at once."""
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
        """Note how a job ended that could not say so itself: it was killed, or never started. Returns at
        once."""
        if _is_shared(run):
            paths = runs.RunPaths(run.run_dir)
            self._aside.do(f"end of {run.run_id}", partial(share.share_in_time, paths, None, state))


def _is_shared(run: Run) -> bool:
    return run.launch.get("share") not in (None, NOWHERE)
