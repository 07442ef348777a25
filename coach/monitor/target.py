"""Collect the data of one watched target from its readings: a run, a job, a log, or a run with its job.

The monitor knows the cluster and decides when to call the rules. The target has one method per kind of
payload, and knows the moment for which its data are valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coach.lookback.history import History
from coach.model.reading import (
    FlightRecords,
    JobRow,
    LogChunk,
    LogFiles,
    MetricsChunk,
    Payload,
    Reading,
    RunFacts,
    StackChunk,
    TelemetryChunk,
)
from coach.model.slurm.cluster import Job, Node, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import MARK, LogFile, LogHit, LogTail
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Run, RunExit
from coach.model.training.stacks import StackBurst
from coach.model.training.telemetry import SensorGap
from coach.monitor.kept_hits import KeptHits
from coach.rules.from_logs.runs import first_line_to_keep

MAX_EVENTS = 2000

_MAX_CLOCK_SKEW_S = 3600.0
"""A time further in the future than this comes from a wrong clock and is ignored."""


@dataclass(slots=True)
class WatchedTarget:
    """Everything that is known about one target."""

    name: str
    sources: frozenset[str]
    """The sources that follow it."""
    awaited: dict[str, int]
    """Source → the number of complete answers that it still owes. The target is judged only after all."""
    ended_s: float = 0.0
    """When its end became known, if it was followed before; answers from before that do not count."""
    history: History = field(default_factory=History)
    facts: RunFacts | None = None
    job: Job | None = None
    told: JobRow | None = None
    """Slurm's answer about this one job, for a job that the queue does not list."""
    hits: dict[tuple[str, str, str], KeptHits] = field(default_factory=dict)
    """(file, rule, signature) → hits."""
    tails: dict[str, LogTail] = field(default_factory=dict)
    files: tuple[LogFile, ...] = ()
    flight: FlightRecords = field(default_factory=lambda: FlightRecords("", ()))
    events: list[MetricEvent] = field(default_factory=list)
    bursts: dict[tuple[str, int], list[StackBurst]] = field(default_factory=dict)
    """(node, rank, or pid for a process without a rank) → the newest two bursts."""
    gaps: dict[tuple[str, str], SensorGap] = field(default_factory=dict)
    """(node, quantity) → newest report that the sampler could not measure it."""
    left_aside: str = ""
    node_reasons: dict[str, str] = field(default_factory=dict)
    last_record_s: float | None = None
    behind: set[str] = field(default_factory=set)
    """Sources with unread bytes."""
    is_changed: bool = True
    """True if something is new since the last diagnosis."""
    diagnosed_s: float | None = None
    snapshot: TargetSnapshot | None = None

    @property
    def run(self) -> Run | None:
        return self.facts.run if self.facts is not None else None

    @property
    def exit(self) -> RunExit | None:
        return self.facts.exit if self.facts is not None else None

    @property
    def is_judgeable(self) -> bool:
        """False while a source still has data to deliver: findings from half of the data would be withdrawn
        later."""
        return not self.awaited and not self.behind

    def await_end(self, now_s: float) -> None:
        """Wait for its sources again: they were read before its end, which has just become known.

        Each owes two answers, because the log scanner holds back an unfinished error until a look finds
        nothing more. The row is left out: it costs Slurm a request, and has told the end.
        """
        self.awaited, self.ended_s = dict.fromkeys(self.sources - {"row"}, 2), now_s

    def apply(self, reading: Reading) -> bool:
        """Take in one reading. Returns True if its payload was new."""
        is_news = self._apply_payload(reading.payload, reading.time_s)
        self.is_changed = self.is_changed or is_news
        return is_news

    def note_progress(self, reading: Reading) -> bool:
        """Record whether the reading's source has answered and caught up. Returns True if the target waited
        for that."""
        num_owed = self.awaited.get(reading.source, 0)
        if self.snapshot is None or num_owed:
            self.is_changed = True
        if not reading.is_caught_up:
            self.behind.add(reading.source)
        elif not reading.is_part:
            self.behind.discard(reading.source)
        is_late = reading.time_s - reading.duration_s >= self.ended_s
        if not num_owed or reading.is_part or not is_late:
            return False
        if num_owed == 1 or reading.error is not None:
            del self.awaited[reading.source]
        elif reading.is_caught_up:
            self.awaited[reading.source] = num_owed - 1
        return True

    def join_job(self, row: Job | None) -> None:
        """Set the target's row in the queue."""
        row = row or (self.told.job if self.told is not None else None)
        if row is None and self.job is not None and is_final(self.job.state):
            # Slurm forgets a job minutes after its end, but its final state remains valid.
            return
        if row != self.job:
            self.is_changed = True
        self.job = row

    def note_nodes(self, nodes: Iterable[Node]) -> None:
        """Keep the reasons that Slurm has for nodes, if a node ended the target's job."""
        has_failed = self.job is not None and self.job.state in ("NODE_FAIL", "BOOT_FAIL")
        reasons = {node.name: node.reason for node in nodes if node.reason} if has_failed else {}
        if reasons != self.node_reasons:
            self.node_reasons, self.is_changed = reasons, True

    def look(self, now_s: float | None) -> TargetSnapshot:
        """The target as a value. `now_s` is the moment for which its data are valid."""
        return TargetSnapshot(
            target=self.name,
            now_s=now_s,
            job=self.job,
            run=self.run,
            summary=self.told.summary if self.told is not None else None,
            exit=self.exit,
            log_hits=self._hits(),
            log_tails=tuple(tail for _, tail in sorted(self.tails.items())),
            log_files=self.files,
            flight=self.flight.records,
            num_dumps_left_out=self.flight.num_left_out,
            stacks=self.flight.stacks,
            events=tuple(self.events),
            checkpoints=self.facts.checkpoints if self.facts is not None else (),
            sensor_gaps=tuple(self.gaps.values()),
            left_aside=self.left_aside,
            node_reasons=self.node_reasons,
            bursts=tuple(burst for _, kept in sorted(self.bursts.items()) for burst in kept),
        )

    def moment(self, now_s: float, *, is_queue_known: bool) -> float | None:
        """The moment for which the data are valid, when the clock shows `now_s`.

        The present for a live target; the end of one that has ended; the last record of a run whose job Slurm
        has forgotten. None for a log without times.
        """
        run = self.run
        if self.job is not None:
            return self._end(now_s) if is_final(self.job.state) else now_s
        if run is None:
            return self._last_hit_time()
        if is_final(run.state) or (self.exit is not None and is_final(self.exit.state)):
            return self._end(now_s)
        is_forgotten = is_queue_known and run.job_id is not None
        return self.last_record_s or now_s if is_forgotten else now_s

    def _end(self, now_s: float) -> float:
        """The end of an ended target.

        The clocks of the queue and the nodes differ: the end is never before the last record.
        """
        times = [self.last_record_s or None]
        ends = [self.job.end_time_s if self.job is not None else None]
        ends += [
            part.ended_time_s for part in (self.exit, self.run) if part is not None and is_final(part.state)
        ]
        times += [end for end in ends if end is not None and end <= now_s + _MAX_CLOCK_SKEW_S]
        return max((time_s for time_s in times if time_s is not None), default=now_s)

    def _last_hit_time(self) -> float | None:
        times = (hit.time_s for hits in self.hits.values() for hit in hits)
        return max((time_s for time_s in times if time_s is not None), default=None)

    def _apply_payload(self, payload: Payload | None, read_s: float) -> bool:
        match payload:
            case RunFacts():
                return self._apply_facts(payload)
            case MetricsChunk():
                return self._apply_metrics(payload, read_s)
            case TelemetryChunk():
                return self._apply_telemetry(payload, read_s)
            case LogChunk():
                return self._apply_log(payload)
            case LogFiles():
                return self._apply_log_files(payload)
            case StackChunk():
                return self._apply_bursts(payload)
            case FlightRecords():
                return self._apply_flight(payload)
            case _:
                return False

    def _apply_facts(self, facts: RunFacts) -> bool:
        is_news, self.facts = facts != self.facts, facts
        return is_news

    def _apply_metrics(self, chunk: MetricsChunk, read_s: float) -> bool:
        if chunk.is_restart:
            self.history.forget_steps()
            self.events.clear()
        starts = _starts(chunk.events, read_s)
        for rank, start_s in starts.items():
            self.history.begin_attempt(rank, start_s)
        self.history.add_steps(step for step in chunk.steps if _is_current(step, starts))
        self.events = [event for event in (*self.events, *chunk.events) if _is_current(event, starts)]
        if len(self.events) > MAX_EVENTS:
            # The first events describe the start, the last ones recent changes.
            self.events[MAX_EVENTS // 2 : -MAX_EVENTS // 2] = []
        self._note_times((step.time_s for step in chunk.steps), read_s)
        self._note_times((event.time_s for event in chunk.events), read_s)
        is_news = chunk.left_aside != self.left_aside
        self.left_aside = chunk.left_aside
        return is_news or bool(chunk.steps or chunk.events)

    def _apply_telemetry(self, chunk: TelemetryChunk, read_s: float) -> bool:
        self.history.add_samples(chunk.samples, chunk.rung)
        for sample in chunk.samples:
            if isinstance(sample, SensorGap):
                self.gaps[(sample.node, sample.what)] = sample
            else:
                self._note_times((sample.time_s,), read_s)
        return bool(chunk.samples)

    def _apply_log(self, chunk: LogChunk) -> bool:
        file = chunk.tail.file
        if chunk.is_restart:
            self._forget_hits(file)
        for hit in chunk.hits:
            self.hits.setdefault((hit.file, hit.rule, hit.signature), KeptHits()).add(hit)
        if any(hit.rule == MARK for hit in chunk.hits):
            self._drop_earlier_runs(file)
        is_tail_news = self._keep_tail(chunk.tail)
        return bool(chunk.hits) or chunk.is_restart or is_tail_news

    def _forget_hits(self, file: str) -> None:
        self.hits = {key: hits for key, hits in self.hits.items() if key[0] != file}

    def _drop_earlier_runs(self, file: str) -> None:
        """Drop the hits of earlier runs in a log: rules judge the last run, and the number of hits is
        bounded."""
        marks = [hit for key, kept in self.hits.items() if key[:2] == (file, MARK) for hit in kept]
        line = first_line_to_keep(marks)
        for key, kept in self.hits.items():
            if key[0] == file and key[1] != MARK:
                self.hits[key] = kept.from_line(line)

    def _keep_tail(self, tail: LogTail) -> bool:
        if not tail.size_bytes:
            # An empty log counts as no log.
            return self.tails.pop(tail.file, None) is not None
        is_news, self.tails[tail.file] = self.tails.get(tail.file) != tail, tail
        return is_news

    def _apply_log_files(self, payload: LogFiles) -> bool:
        is_news, self.files = payload.files != self.files, payload.files
        return is_news

    def _apply_flight(self, payload: FlightRecords) -> bool:
        is_news, self.flight = payload != self.flight, payload
        return is_news

    def _apply_bursts(self, chunk: StackChunk) -> bool:
        for burst in chunk.bursts:
            key = (burst.node, burst.rank if burst.rank is not None else burst.pid)
            self.bursts[key] = [*self.bursts.get(key, ()), burst][-2:]
        return bool(chunk.bursts)

    def _note_times(self, times: Iterable[float | None], read_s: float) -> None:
        for time_s in times:
            if time_s is not None and time_s <= read_s + _MAX_CLOCK_SKEW_S:
                self.last_record_s = max(self.last_record_s or time_s, time_s)

    def _hits(self) -> tuple[LogHit, ...]:
        """All hits, sorted by file and line."""
        hits = (hit for kept in self.hits.values() for hit in kept)
        return tuple(sorted(hits, key=lambda hit: (hit.file, hit.line)))


def _starts(events: Iterable[MetricEvent], read_s: float) -> dict[int, float]:
    """Rank → start of its newest attempt, for ranks that started in these events: because the job was
    launched, requeued or started again."""
    starts: dict[int, float] = {}
    for event in events:
        start_s = event.time_s
        if event.event == "start" and start_s is not None and start_s <= read_s + _MAX_CLOCK_SKEW_S:
            starts[event.rank] = max(start_s, starts.get(event.rank, start_s))
    return starts


def _is_current(record: Step | MetricEvent, starts: Mapping[int, float]) -> bool:
    """False for a record of a rank from before its newest start."""
    start_s = starts.get(record.rank)
    return start_s is None or record.time_s is None or record.time_s >= start_s
