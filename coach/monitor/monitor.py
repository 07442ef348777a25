"""Turn readings into one snapshot for screens and commands, and one history per watched target.

Sources are independent and fail independently. The monitor combines their answers: it joins a job's queue row
and its run directory into one target, keeps the last data of a failed source with their age, and calls the
rules again when there is something new to judge. Not thread-safe: one thread applies readings and takes
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from coach.analysis.jobs.belonging import RunJobs
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.reading import JobList, JobRow, LogFiles, NodeList, PartitionList, Reading, RunList
from coach.model.slurm.cluster import Job, Node, Partition, is_final
from coach.model.snapshot import Snapshot, SourceStatus, TargetSnapshot
from coach.model.training.run import Run
from coach.monitor.target import WatchedTarget

DIAGNOSE_INTERVAL_S = 1.0


class Diagnose(Protocol):
    def __call__(self, snapshot: TargetSnapshot, history: History) -> Diagnosis: ...


class Monitor:
    """Applies readings; returns snapshots.

    `diagnose` is `Engine.diagnose`; None if no findings are needed. `cluster` is the name of the cluster
    whose queue is read; None if it has no name.
    """

    def __init__(self, user: str, diagnose: Diagnose | None, cluster: str | None = None) -> None:
        self._user = user
        self._diagnose = diagnose
        self._nodes: tuple[Node, ...] = ()
        self._partitions: tuple[Partition, ...] = ()
        self._jobs: dict[str, Job] = {}
        self._queue: tuple[Job, ...] = ()
        self._has_jobs = False
        self._is_queue_whole = False
        self._hidden: frozenset[str] = frozenset()
        self._runs: tuple[Run, ...] = ()
        self._run_jobs = RunJobs(cluster)
        self._run_problems: tuple[str, ...] = ()
        self._targets: dict[str, WatchedTarget] = {}
        self._diagnoses: dict[str, Diagnosis] = {}
        self._sources: dict[str, SourceStatus] = {}

    def watch(self, targets: Mapping[str, Iterable[str]]) -> list[str]:
        """Follow these targets, each by the sources with these names.

        Returns the targets that were dropped, with their histories.
        """
        dropped = [name for name in self._targets if name not in targets]
        for name in dropped:
            del self._targets[name]
            self._diagnoses.pop(name, None)
        for key in [key for key in self._sources if key.partition(":")[2] in dropped]:
            del self._sources[key]
        for name, sources in targets.items():
            if name not in self._targets:
                followed = frozenset(sources)
                self._targets[name] = WatchedTarget(name, followed, dict.fromkeys(followed, 1))
        return dropped

    def apply(self, reading: Reading) -> bool:
        """Take in one reading.

        Returns True if anything but the time is new. A reading for a target that is not watched is ignored.
        """
        target = self._targets.get(reading.target) if reading.target is not None else None
        if reading.target is not None and target is None:
            return False
        key = reading.source if reading.target is None else f"{reading.source}:{reading.target}"
        is_news = self._note_source(key, reading)
        if target is not None:
            is_news = target.note_progress(reading) or is_news
        return self._apply_payload(reading, target) or is_news

    def _note_source(self, key: str, reading: Reading) -> bool:
        """Record the state of a source. Returns True if anything but the time is new."""
        if reading.is_part:
            return False
        old = self._sources.get(key) or SourceStatus(key, None, None, None, 0, None)
        new = _failed(old, reading) if reading.error is not None else _answered(old, reading)
        self._sources[key] = new
        was, now = ((status.error, status.num_bad_rows, status.data_time_s is None) for status in (old, new))
        return was != now

    def _apply_payload(self, reading: Reading, target: WatchedTarget | None) -> bool:
        match reading.payload:
            case JobList():
                is_news = self._note_hidden("jobs", reading.payload.are_others_hidden)
                return self._apply_queue(reading.payload) or is_news
            case NodeList():
                is_news = self._note_hidden("nodes", reading.payload.is_hidden)
                return self._apply_nodes(reading.payload) or is_news
            case PartitionList():
                is_news = self._note_hidden("partitions", reading.payload.is_hidden)
                return self._apply_partitions(reading.payload) or is_news
            case RunList():
                return self._apply_runs(reading.payload)
            case JobRow():
                return self._apply_row(reading.payload, target)
            case _:
                return target.apply(reading) if target is not None else False

    def _note_hidden(self, what: str, is_hidden: bool) -> bool:
        """Record what the site hides. Returns True if that is new."""
        before = self._hidden
        self._hidden = before | {what} if is_hidden else before - {what}
        return self._hidden != before

    def _apply_queue(self, queue: JobList) -> bool:
        is_other_scope, self._is_queue_whole = queue.is_all != self._is_queue_whole, queue.is_all
        own = (job for job in queue.jobs if job.user == self._user)
        is_found = queue.has_outputs and self._run_jobs.see_outputs(own)
        rows = {job.job_id: job for job in sorted(queue.jobs, key=lambda job: job.user != self._user)}
        is_news, self._has_jobs = rows != self._jobs, True
        if is_news:
            # Make a new tuple only if a row has changed: a screen rebuilds its table for every new object.
            self._jobs, self._queue = rows, tuple(rows.values())
            self._run_jobs.see_rows(rows)
        for target in self._targets.values():
            self._join_job(target)
        return is_news or is_other_scope or is_found

    def _apply_row(self, payload: JobRow, target: WatchedTarget | None) -> bool:
        """Take the row of a job that the queue does not list. An own job that is not in the queue has ended,
        so a row from before its end is ignored."""
        job = payload.job
        if target is None or job is None or (job.user == self._user and not is_final(job.state)):
            return False
        is_news, target.told = payload != target.told, payload
        target.is_changed = target.is_changed or is_news
        self._join_job(target)
        return is_news

    def _apply_nodes(self, payload: NodeList) -> bool:
        is_news = payload.nodes != self._nodes
        if is_news:
            self._nodes = payload.nodes
            for target in self._targets.values():
                target.note_nodes(self._nodes)
        return is_news

    def _apply_partitions(self, payload: PartitionList) -> bool:
        is_news, self._partitions = payload.partitions != self._partitions, payload.partitions
        return is_news

    def _apply_runs(self, payload: RunList) -> bool:
        is_news = (payload.runs, payload.problems) != (self._runs, self._run_problems)
        self._runs, self._run_problems = payload.runs, payload.problems
        self._run_jobs.see_runs(payload.runs)
        return is_news

    def _join_job(self, target: WatchedTarget) -> None:
        run = target.run
        target.join_job(self._run_jobs.row(target.name) if run is None else self._run_jobs.row_of(run))
        target.note_nodes(self._nodes)

    def snapshot(self, now_s: float) -> Snapshot:
        """Everything that is known, with a diagnosis of each watched target."""
        for target in self._targets.values():
            self._refresh(target, now_s)
        return Snapshot(
            now_s=now_s,
            nodes=self._nodes,
            partitions=self._partitions,
            jobs=self._queue,
            is_queue_whole=self._is_queue_whole,
            hidden=self._hidden,
            runs=tuple(self._run_jobs.with_state(run) for run in self._runs),
            run_problems=self._run_problems,
            targets=MappingProxyType(
                {name: target.snapshot for name, target in self._targets.items() if target.snapshot}
            ),
            diagnoses=MappingProxyType(dict(self._diagnoses)),
            sources=MappingProxyType(dict(self._sources)),
        )

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs as their directories describe them."""
        return self._runs

    def found_in_queue(self) -> list[tuple[Run, str]]:
        """Own runs without a job id in run.json, each with the id of its job in the queue."""
        return self._run_jobs.found()

    def ended_in_queue(self) -> list[tuple[Run, Job]]:
        """Own runs whose job has ended according to the queue, with its row."""
        rows = ((run, self._run_jobs.row_of(run)) for run in self._runs)
        return [(run, row) for run, row in rows if row and is_final(row.state) and row.user == self._user]

    def target(self, name: str, now_s: float) -> TargetSnapshot:
        """The current state of one target, even before all of its sources have answered."""
        return self._look_at(self._targets.get(name) or WatchedTarget(name, frozenset(), {}), now_s)

    def history(self, target: str) -> History:
        """The series of a target; empty for an unknown one.

        The series keep growing: another thread needs a copy.
        """
        known = self._targets.get(target)
        return known.history if known is not None else History()

    @property
    def awaited(self) -> frozenset[str]:
        """Keys of the sources that targets wait for since their ends became known."""
        ended = [each for each in self._targets.values() if each.ended_s]
        return frozenset(f"{source}:{each.name}" for each in ended for source in each.awaited)

    def judge_again(self) -> None:
        """Diagnose every target anew, because the rules have changed."""
        for target in self._targets.values():
            target.is_changed, target.diagnosed_s = True, None

    def _refresh(self, target: WatchedTarget, now_s: float) -> None:
        """Renew a target's snapshot and its diagnosis, if due."""
        is_live = target.snapshot is None or not target.snapshot.has_ended
        is_due = target.diagnosed_s is None or not 0 <= now_s - target.diagnosed_s < DIAGNOSE_INTERVAL_S
        if target.snapshot is not None and not (target.is_changed or (is_live and is_due)):
            return
        was_alive = target.snapshot is not None and target.snapshot.state is not None and is_live
        target.snapshot = self._look_at(target, now_s)
        if was_alive and target.snapshot.has_ended:
            target.await_end(now_s)
            self._diagnoses.pop(target.name, None)  # it was of the running job
        if not target.is_judgeable or not (is_due or target.snapshot.has_ended):
            return
        if self._diagnose is None:
            return
        self._diagnoses[target.name] = self._diagnose(target.snapshot, target.history)
        target.is_changed, target.diagnosed_s = False, now_s

    def _look_at(self, target: WatchedTarget, now_s: float) -> TargetSnapshot:
        self._join_job(target)
        return target.look(target.moment(now_s, is_queue_known=self._has_jobs))


def _failed(old: SourceStatus, reading: Reading) -> SourceStatus:
    """Keep the time of a failed source's last data."""
    return replace(old, error=reading.error, error_time_s=reading.time_s, duration_s=reading.duration_s)


def _answered(old: SourceStatus, reading: Reading) -> SourceStatus:
    """The bad rows of a list replace the earlier count; those of a file are added to it."""
    is_list = isinstance(reading.payload, JobList | NodeList | PartitionList | RunList)
    num_bad = reading.num_bad_rows + (0 if is_list else old.num_bad_rows)
    new = SourceStatus(old.source, reading.time_s, None, None, num_bad, reading.duration_s)
    if isinstance(reading.payload, LogFiles):
        # If one of several logs cannot be read, the source reports its problem; the other logs are read at
        # their usual pace.
        problem = next((file.problem for file in reading.payload.files if file.problem), None)
        new = replace(new, error=problem, error_time_s=reading.time_s if problem else None)
    return new
