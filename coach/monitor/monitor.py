"""From readings to what is known: one value for screens and commands, one history per watched target.

Sources know nothing of each other and fail one by one. Here their answers meet: a job's row and its run directory become one target, a
failed source keeps its last data with their age, and the rules are asked again when there is something new to judge. Not thread-safe:
one thread applies readings and takes snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from coach.analysis.jobs.belonging import RunJobs
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.reading import (
    FlightRecords,
    JobList,
    LogChunk,
    LogFiles,
    MetricsChunk,
    NodeList,
    PartitionList,
    Reading,
    RunFacts,
    RunList,
    TelemetryChunk,
)
from coach.model.slurm.cluster import Job, Node, Partition, is_final
from coach.model.snapshot import Snapshot, SourceStatus, TargetSnapshot
from coach.model.training.flight import FlightRecord
from coach.model.training.log import ATTEMPT, REQUEUED, LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent
from coach.model.training.run import Run
from coach.model.training.telemetry import SensorGap
from coach.monitor.kept_hits import KeptHits

DIAGNOSE_INTERVAL_S = 1.0
MAX_EVENTS = 2000

_MAX_CLOCK_SKEW_S = 3600.0


class Diagnose(Protocol):
    def __call__(self, snapshot: TargetSnapshot, history: History) -> Diagnosis: ...


@dataclass(slots=True)
class _Target:
    """What is known of one target, as it grows."""

    name: str
    awaited: set[str]
    """Sources that have not answered yet: before they have, there is nothing to judge."""
    history: History = field(default_factory=History)
    facts: RunFacts | None = None
    job: Job | None = None
    hits: dict[tuple[str, str, str], KeptHits] = field(default_factory=dict)
    attempts: dict[tuple[str, str], LogHit] = field(default_factory=dict)
    """File and signature → the last line there that parts the attempts of a requeued job."""
    tails: dict[str, LogTail] = field(default_factory=dict)
    files: tuple[LogFile, ...] = ()
    flight: tuple[FlightRecord, ...] = ()
    events: list[MetricEvent] = field(default_factory=list)
    gaps: dict[tuple[str, str], SensorGap] = field(default_factory=dict)
    last_record_s: float | None = None
    behind: set[str] = field(default_factory=set)
    """Sources that still have unread bytes."""
    is_changed: bool = True
    diagnosed_s: float | None = None
    snapshot: TargetSnapshot | None = None


class Monitor:
    """Applies readings; tells what is known.

    `diagnose` is `Engine.diagnose`, or None where nobody asks for findings; `cluster` is whose queue is read, None when it has no name.
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
        self._runs: tuple[Run, ...] = ()
        self._run_jobs = RunJobs(cluster)
        self._run_problems: tuple[str, ...] = ()
        self._targets: dict[str, _Target] = {}
        self._diagnoses: dict[str, Diagnosis] = {}
        self._sources: dict[str, SourceStatus] = {}

    def watch(self, targets: Mapping[str, Iterable[str]]) -> list[str]:
        """Say which targets are followed, and by which sources (names). Returns the targets that were dropped, past and all."""
        dropped = [name for name in self._targets if name not in targets]
        for name in dropped:
            del self._targets[name]
            self._diagnoses.pop(name, None)
        for key in [key for key in self._sources if key.partition(":")[2] in dropped]:
            del self._sources[key]
        for name, sources in targets.items():
            if name not in self._targets:
                self._targets[name] = _Target(name, set(sources))
        return dropped

    def apply(self, reading: Reading) -> bool:
        """Take in one reading. Returns whether anything but its time is new. A target that is not watched is passed over."""
        target = self._targets.get(reading.target) if reading.target is not None else None
        if reading.target is not None and target is None:
            return False
        key = reading.source if reading.target is None else f"{reading.source}:{reading.target}"
        is_news = self._note_source(key, reading)
        if target is not None:
            if target.snapshot is None or reading.source in target.awaited:
                target.is_changed = True
            if not reading.is_caught_up:
                target.behind.add(reading.source)
            elif not reading.is_part:
                target.behind.discard(reading.source)
            if not reading.is_part:
                target.awaited.discard(reading.source)
        return self._apply_payload(reading, target) or is_news

    def _note_source(self, key: str, reading: Reading) -> bool:
        if reading.is_part:
            return False
        old = self._sources.get(key) or SourceStatus(key, None, None, None, 0, None)
        if reading.error is not None:
            new = replace(
                old, error=reading.error, error_time_s=reading.time_s, duration_s=reading.duration_s
            )
        else:
            is_list = isinstance(reading.payload, JobList | NodeList | PartitionList | RunList)
            num_bad = reading.num_bad_rows + (0 if is_list else old.num_bad_rows)
            new = SourceStatus(key, reading.time_s, None, None, num_bad, reading.duration_s)
            if isinstance(reading.payload, LogFiles):
                # One of several logs cannot be read: that is said, and the others go on at their pace.
                problem = next((file.problem for file in reading.payload.files if file.problem), None)
                new = replace(new, error=problem, error_time_s=reading.time_s if problem else None)
        self._sources[key] = new
        was, now = ((status.error, status.num_bad_rows, status.data_time_s is None) for status in (old, new))
        return was != now

    def _apply_payload(self, reading: Reading, target: _Target | None) -> bool:
        match reading.payload:
            case JobList(jobs=jobs, is_all=is_all, has_outputs=has_outputs):
                is_other, self._is_queue_whole = is_all != self._is_queue_whole, is_all
                if has_outputs:
                    self._run_jobs.see_outputs(job for job in jobs if job.user == self._user)
                return self._apply_jobs(jobs) or is_other
            case NodeList(nodes=nodes):
                is_news = nodes != self._nodes
                self._nodes = nodes if is_news else self._nodes
                return is_news
            case PartitionList(partitions=partitions):
                is_news, self._partitions = partitions != self._partitions, partitions
                return is_news
            case RunList(runs=runs, problems=problems):
                is_news = (runs, problems) != (self._runs, self._run_problems)
                self._runs, self._run_problems = runs, problems
                self._run_jobs.see_runs(runs)
                return is_news
            case None:
                return False
        if target is None:
            return False
        is_news = _apply_to_target(target, reading)
        target.is_changed = target.is_changed or is_news
        return is_news

    def _apply_jobs(self, jobs: tuple[Job, ...]) -> bool:
        rows = {job.job_id: job for job in sorted(jobs, key=lambda job: job.user != self._user)}
        is_news, self._has_jobs = rows != self._jobs, True
        if is_news:
            self._jobs, self._queue = rows, tuple(rows.values())  # screens arrange another object anew
            self._run_jobs.see_rows(rows)
        for target in self._targets.values():
            self._join_job(target)
        return is_news

    def _join_job(self, target: _Target) -> None:
        row = self._jobs.get(target.name) if target.facts is None else self._run_jobs.row_of(target.facts.run)
        if row is None and target.job is not None and is_final(target.job.state):
            return  # Slurm forgets a job minutes after its end; how it ended stays true
        if row != target.job:
            target.is_changed = True
        target.job = row

    def snapshot(self, now_s: float) -> Snapshot:
        """All that is known, with a diagnosis of each watched target."""
        for target in self._targets.values():
            self._refresh(target, now_s)
        return Snapshot(
            now_s=now_s,
            nodes=self._nodes,
            partitions=self._partitions,
            jobs=self._queue,
            is_queue_whole=self._is_queue_whole,
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
        """The runs as their directories tell them."""
        return self._runs

    def found_in_queue(self) -> list[tuple[Run, str]]:
        """Own runs without a job id in run.json, with the jobs that are theirs."""
        return self._run_jobs.found()

    def ended_in_queue(self) -> list[tuple[Run, Job]]:
        """Own runs whose job the queue says has ended."""
        rows = ((run, self._run_jobs.row_of(run)) for run in self._runs)
        return [(run, row) for run, row in rows if row and is_final(row.state) and row.user == self._user]

    def target(self, name: str, now_s: float) -> TargetSnapshot:
        """One target as it stands, whether or not everything about it was read."""
        return self._look_at(self._targets.get(name) or _Target(name, set()), now_s)

    def history(self, target: str) -> History:
        """The past of a target; empty for one that is not known. It goes on growing: copy it for another thread."""
        known = self._targets.get(target)
        return known.history if known is not None else History()

    def judge_again(self) -> None:
        """Diagnose every target anew: the rules have changed, though its data have not."""
        for target in self._targets.values():
            target.is_changed, target.diagnosed_s = True, None

    def _refresh(self, target: _Target, now_s: float) -> None:
        is_live = target.snapshot is None or not target.snapshot.has_ended
        is_due = target.diagnosed_s is None or not 0 <= now_s - target.diagnosed_s < DIAGNOSE_INTERVAL_S
        if target.snapshot is not None and not (target.is_changed or (is_live and is_due)):
            return
        target.snapshot = self._look_at(target, now_s)
        if target.awaited or target.behind or not (is_due or target.snapshot.has_ended):
            return  # half of the data would make findings that the other half takes back
        if self._diagnose is None:
            return
        self._diagnoses[target.name] = self._diagnose(target.snapshot, target.history)
        target.is_changed, target.diagnosed_s = False, now_s

    def _look_at(self, target: _Target, now_s: float) -> TargetSnapshot:
        self._join_job(target)
        facts = target.facts
        hits = [hit for kept in target.hits.values() for hit in kept]
        hits = [hit for hit in hits if hit.line > _last_line_before_attempt(target, hit.file)]
        hits.sort(key=lambda hit: (hit.file, hit.line))
        return TargetSnapshot(
            target=target.name,
            now_s=self._now_of(target, now_s),
            job=target.job,
            run=facts.run if facts is not None else None,
            exit=facts.exit if facts is not None else None,
            log_hits=tuple(hits),
            log_tails=tuple(tail for _, tail in sorted(target.tails.items())),
            log_files=target.files,
            flight=target.flight,
            events=tuple(target.events),
            checkpoints=facts.checkpoints if facts is not None else (),
            sensor_gaps=tuple(target.gaps.values()),
        )

    def _now_of(self, target: _Target, now_s: float) -> float | None:
        """The present for a live target, its end for one that has ended, the last record for one that nobody runs any more."""
        run = target.facts.run if target.facts is not None else None
        exit_ = target.facts.exit if target.facts is not None else None
        if run is None and target.job is None:
            times = [kept.time_s for hits in target.hits.values() for kept in hits]
            return max((time_s for time_s in times if time_s is not None), default=None)
        if target.job is not None and not is_final(target.job.state):
            return now_s
        ends = [
            target.job.end_time_s if target.job is not None else None,
            exit_.ended_time_s if exit_ is not None and is_final(exit_.state) else None,
            run.ended_time_s if run is not None and is_final(run.state) else None,
        ]
        has_ended = target.job is not None or any(
            is_final(state) for state in (run.state if run else None, exit_.state if exit_ else None)
        )
        if not has_ended:
            is_forgotten = self._has_jobs and run is not None and run.job_id is not None
            return target.last_record_s or now_s if is_forgotten else now_s
        known = [end for end in ends if end is not None and end <= now_s + _MAX_CLOCK_SKEW_S]
        # The queue's clock and the nodes' differ: the end is never before the last record.
        return max([*known, *([target.last_record_s] if target.last_record_s else [])], default=now_s)


def _apply_to_target(target: _Target, reading: Reading) -> bool:
    payload = reading.payload
    if isinstance(payload, RunFacts):
        is_news, target.facts = payload != target.facts, payload
        return is_news
    if isinstance(payload, MetricsChunk):
        if payload.is_restart:
            target.history.forget_steps()
            target.events.clear()
        target.history.add_steps(payload.steps)
        target.events.extend(payload.events)
        _leave_earlier_attempts(target, payload.events, reading.time_s)
        if len(target.events) > MAX_EVENTS:
            # The first say what was started; the last what happened lately.
            target.events[MAX_EVENTS // 2 : -MAX_EVENTS // 2] = []
        times = [*(step.time_s for step in payload.steps), *(event.time_s for event in payload.events)]
        _note_times(target, times, reading.time_s)
        return bool(payload.steps or payload.events)
    if isinstance(payload, TelemetryChunk):
        target.history.add_samples(payload.samples, payload.rung)
        for sample in payload.samples:
            if isinstance(sample, SensorGap):
                target.gaps[(sample.node, sample.what)] = sample
        times = [sample.time_s for sample in payload.samples if not isinstance(sample, SensorGap)]
        _note_times(target, times, reading.time_s)
        return bool(payload.samples)
    if isinstance(payload, LogChunk):
        return _apply_log(target, payload)
    if isinstance(payload, LogFiles):
        is_news, target.files = payload.files != target.files, payload.files
        return is_news
    if isinstance(payload, FlightRecords):
        is_news, target.flight = payload.records != target.flight, payload.records
        return is_news
    return False


def _leave_earlier_attempts(target: _Target, events: Iterable[MetricEvent], read_s: float) -> None:
    """A rank that says a second time that it starts was requeued, or started anew: what it wrote before then is of no account any more."""
    for event in events:
        start_s = event.time_s
        if event.event != "start" or start_s is None or start_s > read_s + _MAX_CLOCK_SKEW_S:
            continue
        target.history.begin_attempt(event.rank, start_s)
        target.events = [e for e in target.events if e.rank != event.rank or (e.time_s or start_s) >= start_s]


def _apply_log(target: _Target, chunk: LogChunk) -> bool:
    tail = chunk.tail
    if chunk.is_restart:
        target.hits = {key: hits for key, hits in target.hits.items() if key[0] != tail.file}
        target.attempts = {key: hit for key, hit in target.attempts.items() if key[0] != tail.file}
    for hit in chunk.hits:
        if hit.rule == ATTEMPT.rule:
            target.attempts[(hit.file, hit.signature)] = hit
    begun = target.attempts.get((tail.file, ATTEMPT.name))
    if begun is not None:
        # They are dropped, not only passed over: what is kept is bounded, and must have room for this attempt's.
        for key, kept in target.hits.items():
            if key[0] == tail.file:
                target.hits[key] = kept.from_line(begun.line)
    for hit in chunk.hits:
        if hit.rule == ATTEMPT.rule or (begun is not None and hit.line < begun.line):
            continue
        target.hits.setdefault((hit.file, hit.rule, hit.signature), KeptHits()).add(hit)
    is_news = bool(chunk.hits) or chunk.is_restart or target.tails.get(tail.file) not in (tail, None)
    if tail.size_bytes:
        is_news = is_news or tail.file not in target.tails
        target.tails[tail.file] = tail
    elif target.tails.pop(tail.file, None) is not None:
        is_news = True  # nothing stands in it: to the rules that is the same as no log
    return is_news


def _last_line_before_attempt(target: _Target, file: str) -> int:
    """The line that parts the present attempt of a requeued job from those before; 0 where there is none."""
    begun = target.attempts.get((file, ATTEMPT.name))
    ended, job = target.attempts.get((file, REQUEUED.name)), target.job
    lines = [0, begun.line if begun is not None else 0]
    if ended is not None and job is not None and job.state != "PENDING":
        # Slurm tells a job that it ends to be requeued; whether it was started again after that, the queue knows.
        ended_s, started_s = ended.time_s, job.start_time_s
        if ended_s is not None and started_s is not None and started_s >= ended_s:
            lines.append(ended.line)
    return max(lines)


def _note_times(target: _Target, times: Iterable[float | None], read_s: float) -> None:
    for time_s in times:
        if time_s is not None and time_s <= read_s + _MAX_CLOCK_SKEW_S:
            target.last_record_s = max(target.last_record_s or time_s, time_s)
