"""Launch a run and watch it to its end: the findings while it ran, and those of the whole run.

Kept apart from the screens' session: here nothing is withheld, one run comes after the other, and none is
left running, however the command ends.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

from coach import runs
from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.reading import JobList
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import Verb
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import Signature
from coach.rules.engine import Engine
from coach.rules.registry import signatures
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.workflows.jobs.job_actions import HasEnded, perform, plan_action
from coach.workflows.judging.judge import rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, jobs_source
from coach.workflows.launching.prepare import num_alive_runs, prepare
from coach.workflows.launching.start import submit, wait
from coach.workflows.sharing import unshared

_LOOK_INTERVAL_S = 1.0
_ROOM_INTERVAL_S = 5.0
_CANCEL_WAIT_S = 90.0
"""Seconds. A cancelled job may use its KillWait, and its node an epilog."""
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Started:
    """A submitted run, and its future final state; None if it cannot be known."""

    submitted: Submitted
    ended: futures.Future[str | None]


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
    def primary(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.is_primary), None)


class Launches:
    """Launches runs, one after the other, and watches each to its end."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        io: Io,
        backend: str,
        on_note: Callable[[str], None],
    ) -> None:
        self._settings, self._env, self._io, self._backend = settings, env, io, backend
        self._note = on_note

    def run(
        self,
        request: LaunchRequest,
        causes: Collection[str] = (),
        on_launched: Callable[[Submitted], None] = lambda submitted: None,
    ) -> Watched:
        """Launch and watch to the end. `causes`: the causes expected as primary finding while it runs. Raises
        UserError if the launch is refused."""
        self.wait_for_room()
        plan = prepare(unshared(request), self._settings, self._env, self._io, self._io.now())
        return self.run_plan(plan, causes, on_launched)

    def wait_for_room(self) -> None:
        """Wait until the site's limit admits one more of the user's runs."""
        most = self._settings.limits.max_running
        while most is not None and num_alive_runs(self._settings, self._io, self._io.now()) >= most:
            time.sleep(_ROOM_INTERVAL_S)

    def run_plan(
        self,
        plan: Plan,
        causes: Collection[str] = (),
        on_launched: Callable[[Submitted], None] = lambda submitted: None,
    ) -> Watched:
        rules = rules_of(self._settings)
        known = signatures(rules)
        with self.launched(plan) as started:
            on_launched(started.submitted)
            self._note(f"{plan.recipe}: {started.submitted.run_id}")
            seconds = self._seconds_to_finding(started, causes, Engine(rules), known) if causes else None
            state = started.ended.result()
        snapshot, history = self.read(started.submitted, known, state)
        _record_end(snapshot)
        findings = Engine(rules).diagnose(snapshot, history).findings
        return Watched(started.submitted, snapshot, history, findings, seconds)

    @contextlib.contextmanager
    def launched(self, plan: Plan) -> Iterator[Started]:
        """A submitted run, which is cancelled if the block is left by an exception or an interruption. Raises
        UserError if the launch is refused."""
        started: Started | None = None
        try:
            with _held():  # a submission must not be cut off in between
                started = Started(submit(plan, self._settings, self._env, self._io), futures.Future())
                threading.Thread(target=self._wait, args=(started,), daemon=True, name="launch").start()
            yield started
        except BaseException:
            if started is not None:
                self.cancel(started)
            raise

    def _wait(self, started: Started) -> None:
        try:
            started.ended.set_result(wait(started.submitted, self._backend, self._io, self._note))
        except BaseException as problem:
            started.ended.set_exception(problem)

    def cancel(self, started: Started) -> None:
        """Cancel a run, and wait for its end."""
        run_id = started.submitted.run_id
        try:
            with _held():
                action = plan_action(Verb.CANCEL, (run_id,), self._settings, self._env, self._io)
                perform(action, self._env, self._io.now())
            started.ended.result(timeout=_CANCEL_WAIT_S)
            self._note(f"{run_id} was cancelled")
        except HasEnded:
            return
        except TimeoutError:
            self._note(f"{run_id} was cancelled, but has not ended yet: look with `coach jobs`")
        except UserError as problem:
            self._note(f"{run_id} could not be cancelled: {problem.message}")

    def read(
        self, submitted: Submitted, known: Sequence[Signature], ended_as: str | None = None
    ) -> tuple[TargetSnapshot, History]:
        """All that is known about a run. `ended_as`: its state at its end. Raises UserError."""
        return read_once(
            *(_target_of(submitted), self._settings, self._io, self._backend, user_name(), known),
            ended_as=ended_as,
        )

    def _seconds_to_finding(
        self, started: Started, causes: Collection[str], engine: Engine, known: Sequence[Signature]
    ) -> float | None:
        source = jobs_source(self._io, self._backend, self._settings, user_name())
        asked_s, queue = -source.interval_s, None
        target = _target_of(started.submitted)
        while not futures.wait((started.ended,), _LOOK_INTERVAL_S).done:
            if self._io.now() - asked_s >= source.interval_s:  # less often than the files are read
                asked_s = self._io.now()
                lists = [reading.payload for reading in source.poll()]
                queue = next((each for each in lists if isinstance(each, JobList)), queue)
            snapshot, history = read_once(
                *(target, self._settings, self._io, self._backend, user_name(), known),
                queue=queue,
                is_queue_asked=False,
            )
            found = engine.diagnose(snapshot, history).findings
            first_s = _first_step_s(history)
            if first_s is not None and any(each.is_primary and each.cause in causes for each in found):
                return max(0.0, self._io.now() - first_s)
        return None


def _target_of(submitted: Submitted) -> Target:
    return Target(submitted.run_id, TargetKind.RUN, Path(submitted.run_dir))


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


@contextlib.contextmanager
def _held() -> Iterator[None]:
    """Delay an interruption until the end of the block, and raise KeyboardInterrupt then. Under `nohup`
    SIGHUP stays ignored."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in _INTERRUPTIONS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt
