"""Launch a run and watch it to its end: the findings while it ran, and those of the whole run.

Kept apart from the screens' session: here nothing is withheld, each run has its own engine, and one question
to the queue serves all runs that are watched at the same time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coach import runs
from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Severity
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.reading import JobList, Reading
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import Verb
from coach.model.snapshot import TargetSnapshot
from coach.monitor.monitor import Monitor
from coach.rules.base import Rule
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.base import PollingSource
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.workflows.jobs.job_actions import perform, plan_action
from coach.workflows.judging.lazy_engine import rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, jobs_source, known_cluster, target_sources
from coach.workflows.launching.fix_offer import Remedy, offer
from coach.workflows.launching.prepare import num_alive_runs, prepare
from coach.workflows.launching.start import submit, wait
from coach.workflows.sharing import unshared

_LOOK_INTERVAL_S = 1.0
_ROOM_INTERVAL_S = 5.0
_FORGOTTEN_S = 60.0
"""Seconds for which a job may be missing from the queue before it counts as ended, if its directory has no
record of the end."""


class Stopped(Exception):
    """The run was cancelled because nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that has ended."""

    submitted: Submitted
    snapshot: TargetSnapshot
    history: History
    findings: tuple[Finding, ...]
    """Findings of the whole run, the primary one first."""
    seconds_to_finding: float | None
    """Seconds from its first step to the look that found the expected cause while it ran; None if it was
    found only after the end, or if there was no step."""

    @property
    def state(self) -> str | None:
        return self.snapshot.state

    @property
    def loud(self) -> tuple[Finding, ...]:
        """The findings at warning or above."""
        return tuple(finding for finding in self.findings if finding.severity >= Severity.WARNING)

    @property
    def is_well(self) -> bool:
        return self.state == "COMPLETED" and not self.loud

    @property
    def primary(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.is_primary), None)


class Launches:
    """Launches runs and watches them, from several threads, within the number of runs that the site
    allows."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        io: Io,
        backend: str,
        user: str,
        on_note: Callable[[str], None],
    ) -> None:
        self._settings, self._env, self._io, self._backend, self._user = settings, env, io, backend, user
        self._on_note = on_note
        self._rules: Sequence[Rule] = rules_of(settings)
        self._queue = _Queue(jobs_source(io, backend, settings, user)) if backend == "slurm" else None
        self._launching = threading.Lock()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Cancel the running ones, and launch no more."""
        self._stop.set()

    def run(
        self,
        request: LaunchRequest,
        causes: Collection[str] = (),
        on_launched: Callable[[Submitted], None] = lambda submitted: None,
    ) -> Watched:
        """Launch and watch to the end. `causes`: the causes expected as primary finding while it runs.

        Raises UserError if the launch is refused, Stopped after `stop`.
        """
        return self._run(
            lambda: prepare(unshared(request), self._settings, self._env, self._io, self._io.now()),
            causes,
            on_launched,
        )

    def run_fix(self, remedy: Remedy, ran: Watched) -> Watched:
        """Launch a fix of a run as its child, and watch it to the end. Raises like `run`."""
        parent = ran.snapshot.run
        assert parent is not None, "a run that was launched has a record"
        seen = (ran.snapshot, ran.history)
        return self._run(lambda: offer(parent, remedy, *seen, self._settings, self._env, self._io).plan)

    def _run(
        self,
        make_plan: Callable[[], Plan],
        causes: Collection[str] = (),
        on_launched: Callable[[Submitted], None] = lambda submitted: None,
    ) -> Watched:
        settings, env, io = self._settings, self._env, self._io
        with self._launching:
            self._wait_for_room()
            plan = make_plan()
            submitted = submit(plan, settings, env, io)
        on_launched(submitted)
        self._on_note(f"{plan.recipe}: {submitted.run_id}")
        seconds = self._watch(submitted, causes)
        if self._backend == "local":
            wait(submitted, self._backend, io, self._on_note)
        queue = self._queue.jobs if self._queue is not None else None
        snapshot, history = read_once(
            *(_target_of(submitted), settings, io, self._backend, self._user, signatures(self._rules)),
            queue=queue,
        )
        _record_end(snapshot)
        findings = Engine(self._rules).diagnose(snapshot, history).findings
        return Watched(submitted, snapshot, history, findings, seconds)

    def _wait_for_room(self) -> None:
        most = self._settings.limits.max_running
        while most is not None and num_alive_runs(self._settings, self._io, self._io.now()) >= most:
            self._pause(_ROOM_INTERVAL_S)
        self._pause(0.0)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _watch(self, submitted: Submitted, causes: Collection[str]) -> float | None:
        target, io = _target_of(submitted), self._io
        makers = target_sources(target, io, lambda: signatures(self._rules), OutputPaths(io))
        sources = {key: make() for key, make in makers.items()}
        monitor = Monitor(self._user, Engine(self._rules).diagnose, known_cluster(self._settings))
        monitor.watch({target.name: [key.partition(":")[0] for key in sources]})
        seconds: float | None = None
        known_s = time.monotonic()
        while True:
            for reading in self._readings(sources.values()):
                monitor.apply(reading)
            picture = monitor.snapshot(io.now())
            seen = picture.targets[target.name]
            if seen.job is not None or self._is_queue_silent():
                known_s = time.monotonic()
            if not _is_in_queue(seen) and (seen.has_ended or self._is_forgotten(known_s)):
                return seconds
            diagnosis = picture.diagnoses.get(target.name)
            if seconds is None and diagnosis is not None and _names(diagnosis.findings, causes):
                first_s = _first_step_s(monitor.history(target.name))
                seconds = None if first_s is None else max(0.0, io.now() - first_s)
            try:
                self._pause(_LOOK_INTERVAL_S)
            except Stopped:
                self._cancel(submitted)
                raise

    def _readings(self, sources: Iterable[PollingSource]) -> Iterator[Reading]:
        for source in sources:
            yield from source.poll()
        if self._queue is not None:
            yield from self._queue.look()

    def _is_queue_silent(self) -> bool:
        """True if the newest question got no answer: then a missing job may still be in the queue."""
        return self._queue is not None and not self._queue.has_answered

    def _is_forgotten(self, known_s: float) -> bool:
        return self._queue is not None and time.monotonic() - known_s > _FORGOTTEN_S

    def _cancel(self, submitted: Submitted) -> None:
        with contextlib.suppress(UserError):  # it has ended by itself
            action = plan_action(Verb.CANCEL, (submitted.run_id,), self._settings, self._env, self._io)
            perform(action, self._env, self._io.now())


class _Queue:
    """The user's queue: one question serves all threads that watch a job in it."""

    def __init__(self, source: PollingSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._asked_s: float | None = None
        self._readings: tuple[Reading, ...] = ()
        self.jobs: JobList | None = None
        """The newest answer."""

    @property
    def has_answered(self) -> bool:
        """True if the newest question was answered."""
        return any(isinstance(reading.payload, JobList) for reading in self._readings)

    def look(self) -> tuple[Reading, ...]:
        with self._lock:
            now_s = time.monotonic()
            if self._asked_s is None or now_s - self._asked_s >= self._source.interval_s:
                self._asked_s, self._readings = now_s, tuple(self._source.poll())
                for reading in self._readings:
                    self.jobs = reading.payload if isinstance(reading.payload, JobList) else self.jobs
            return self._readings


def _target_of(submitted: Submitted) -> Target:
    return Target(submitted.run_id, TargetKind.RUN, Path(submitted.run_dir))


def _is_in_queue(seen: TargetSnapshot) -> bool:
    return seen.job is not None and not is_final(seen.job.state)


def _names(findings: Sequence[Finding], causes: Collection[str]) -> bool:
    return any(finding.is_primary and finding.cause in causes for finding in findings)


def _first_step_s(history: History) -> float | None:
    """Time at which the first known step began, in epoch seconds."""
    firsts = [next(iter(history.steps(rank)), None) for rank in history.ranks]
    return min(
        (step.time_s - (step.step_time_s or 0.0) for step in firsts if step and step.time_s is not None),
        default=None,
    )


def _record_end(snapshot: TargetSnapshot) -> None:
    """Write into run.json how a job ended that could not record it itself: otherwise it counts as running."""
    run, job = snapshot.run, snapshot.job
    if run is not None and job is not None and is_final(job.state) and not is_final(run.state):
        with contextlib.suppress(OSError, runs.RunFileError):
            runs.update_json(
                runs.RunPaths(run.run_dir).run_json, {"state": job.state, "ended_time_s": job.end_time_s}
            )
