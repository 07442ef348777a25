"""Poll Slurm for the queue, nodes and partitions; report failures in Slurm's own words; never send two
requests at once.

A full picture takes three commands, each at its own pace: `squeue` (2 RPCs), `scontrol show nodes` (2) and,
every other minute, `scontrol show partitions` (1). No request is made per job or per node. Requests whose
cost grows with the cluster are made once a minute, and less often while nothing changes; in between, only the
user's own jobs are requested (3 RPCs). After a failure, a probe with a limit of two seconds precedes the next
request, which could hang for nine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from coach.model.errors import UserError
from coach.model.reading import JobList, NodeList, PartitionList, Reading
from coach.model.slurm.cluster import Job, Node, Partition, has_failed, is_final
from coach.sources.io import CommandResult, Io, OutputReader, Query
from coach.sources.slurm.configuration import CONFIG_QUERY, PING_QUERY, is_denied, parse_config, private_kinds
from coach.sources.slurm.nodes import NODES_QUERY, PARTITIONS_QUERY, parse_nodes, parse_partitions
from coach.sources.slurm.queue import JobsReader, jobs_query, parse_jobs
from coach.sources.slurm.text import failure_of, is_torn

PARTITIONS_INTERVAL_S = 120.0
"""The definition of a partition rarely changes; its free nodes and GPUs are computed from the nodes each
time."""

CLUSTER_INTERVAL_S = 60.0
"""Shortest interval in seconds between two requests whose answer grows with the cluster."""
MAX_STRETCH = 4.0
"""Largest factor on these intervals while nothing changes."""

FRESH_INTERVAL_S = 3.0
"""Pause after a job has just entered the queue: most jobs start within seconds, so it is looked at again this
soon."""

PING_TIMEOUT_S = 2.0

_SEES_ALL = "root"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a client. With an error, `text` is the output before it."""

    query: Query
    text: str
    error: str | None
    time_s: float
    duration_s: float
    reader: OutputReader | None = None
    """The reader that has parsed the answer already; None if `text` must still be parsed."""

    @property
    def is_denied(self) -> bool:
        """True if the site hides the requested data from this user."""
        return is_denied(self.error)


def tells_down(probe: CommandResult) -> bool:
    """True if no controller answers. False if the probe could not be started, because only the request itself
    can tell then."""
    if probe.returncode is None:
        return probe.duration_s >= PING_TIMEOUT_S
    return b" is UP" not in probe.stdout


class Client:
    """Sends one request at a time. After a failure it probes the controller before the next request."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._last_error: str | None = None

    def now(self) -> float:
        return self._io.now()

    def private_kinds(self, user: str) -> frozenset[str] | None:
        """See `ask_private_kinds`."""
        return ask_private_kinds(self._io, user)

    def ask(self, query: Query) -> Answer:
        if self._last_error is not None:
            probe = self._io.run(PING_QUERY, PING_TIMEOUT_S)
            if tells_down(probe):
                return Answer(query, "", self._last_error, probe.time_s, probe.duration_s)
        result = self._io.run(query)
        error = self._explained(result)
        text = result.text
        reader = result.query.reader if result.is_read else None
        if error is None and _is_cut(query, result.query, text, reader):
            error = f"{query.argv[0]}: its answer is incomplete"
        self._last_error = None if is_denied(error) else error  # a controller that refuses has answered
        return Answer(result.query, text, error, result.time_s, result.duration_s, reader)

    def _explained(self, result: CommandResult) -> str | None:
        """Why a client gave no answer; None if it gave one."""
        if result.returncode is None and result.duration_s >= PING_TIMEOUT_S:
            # `squeue -u` tries a dead controller twice, 9 s each: a probe gives the reason sooner.
            probe = self._io.run(PING_QUERY, PING_TIMEOUT_S)
            if b" is DOWN" in probe.stdout:
                return f"{result.error}: {' '.join(probe.text.split())}"
        return failure_of(result)


def _is_cut(asked: Query, ran: Query, text: str, reader: OutputReader | None) -> bool:
    """True if an answer ends within a record."""
    return is_torn(text, asked.record_end and ran.record_end) if reader is None else reader.is_torn


class _Stretch:
    """The factor on the interval of a request whose answer does not change."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._seen: object = None

    def see(self, answer: object) -> None:
        self.factor = min(MAX_STRETCH, self.factor * 1.5) if answer == self._seen else 1.0
        self._seen = answer


class JobsSource:
    """The queue: everybody's jobs that are active or have failed, and all of the user's own; with
    `is_all=False` only the user's own jobs, which is cheap on any cluster.

    Own jobs are requested at every poll, everybody's every `cluster_interval_s` (0: at every poll too). A job
    that has just entered the queue shortens the pause, but not below `least_interval_s`.
    """

    name = "jobs"

    def __init__(
        self,
        io: Io,
        user: str,
        interval_s: float,
        *,
        is_all: bool = True,
        cluster_interval_s: float = 0.0,
        least_interval_s: float = 0.0,
    ) -> None:
        self.interval_s = interval_s
        self._usual_interval_s = interval_s
        self._fresh_interval_s = max(FRESH_INTERVAL_S, least_interval_s)
        self._user = user
        self._is_all = is_all
        self._client = Client(io)
        self._cluster_interval_s = cluster_interval_s
        self._stretch = _Stretch()
        self._others: tuple[tuple[Job, ...], int] = ((), 0)
        """Other users' jobs in the last answer, and the number of its malformed rows."""
        self._all_time_s: float | None = None
        self._private: frozenset[str] | None = None
        """The kinds of data that the site hides from the user; None before they were requested."""
        self._known: dict[str, Job] | None = None
        """The jobs of the last poll; None before the first one."""
        self._came_s: dict[str, float] = {}
        """Own jobs that became pending a moment ago → when they were first seen."""

    def poll(self) -> Iterator[Reading]:
        is_whole = self._is_all and self._is_all_due()
        query = jobs_query(None if is_whole else self._user)
        reader = JobsReader(query.separator, query.record_end, self._known)
        answer = self._client.ask(replace(query, reader=reader))
        if answer.error is not None:
            yield _failed(self.name, answer)
            return
        jobs, num_bad = _jobs_of(answer)
        own = tuple(job for job in jobs if job.user == self._user)
        others = tuple(job for job in jobs if job.user != self._user and _is_worth_a_row(job))
        if is_whole or others:  # an old recording answers every request with the whole queue
            self._others, self._all_time_s = (others, num_bad), answer.time_s
            self._stretch.see(sum(hash((job.job_id, job.state, job.reason)) for job in others))
        elif self._is_all:
            num_bad += self._others[1]
        is_fresh = self._has_fresh(own, answer.time_s)
        self.interval_s = self._fresh_interval_s if is_fresh else self._usual_interval_s
        is_hidden = self._are_others_hidden(is_whole, has_others=len(own) < len(jobs))
        told = (*own, *self._others[0])
        self._known = {job.job_id: job for job in told}
        payload = JobList(
            told,
            self._is_all,
            has_outputs=not is_whole,
            are_others_hidden=is_hidden,
        )
        yield Reading(self.name, answer.time_s, answer.duration_s, payload, num_bad_rows=num_bad)

    def _are_others_hidden(self, is_whole: bool, *, has_others: bool) -> bool:
        """True if the site hides other users' jobs. The configuration is read once, when the whole queue
        contains none of theirs."""
        if has_others or self._others[0]:
            return False
        if is_whole and self._private is None:
            self._private = self._client.private_kinds(self._user)
        return self._is_all and "jobs" in (self._private or ())

    def _has_fresh(self, own: Iterable[Job], now_s: float) -> bool:
        """True if one of these jobs has just become pending. Jobs of the first poll do not count, because it
        is unknown how long they have been pending."""
        known, fresh_s = self._known, self._fresh_interval_s
        if known is None or self._usual_interval_s <= fresh_s:
            return False
        came_s = {
            job.job_id: self._came_s.get(job.job_id, now_s)
            for job in own
            if job.state == "PENDING" and (job.job_id in self._came_s or not _waited(known.get(job.job_id)))
        }
        self._came_s = {job_id: seen_s for job_id, seen_s in came_s.items() if 0 <= now_s - seen_s < fresh_s}
        return bool(self._came_s)

    def _is_all_due(self) -> bool:
        if self._all_time_s is None or not self._cluster_interval_s:
            return True
        pause_s = self._cluster_interval_s * self._stretch.factor
        return not 0 <= self._client.now() - self._all_time_s < pause_s - self._usual_interval_s / 2


def _waited(row: Job | None) -> bool:
    return row is not None and row.state == "PENDING"


def _jobs_of(answer: Answer) -> tuple[Sequence[Job], int]:
    """(jobs, number of malformed rows)."""
    if isinstance(answer.reader, JobsReader):
        return answer.reader.jobs, answer.reader.num_bad
    return parse_jobs(answer.text, answer.query.separator, answer.query.record_end)


def _is_worth_a_row(job: Job) -> bool:
    """True for another user's job that is active or has failed. Jobs that ended well would fill a list of
    thousands."""
    return not is_final(job.state) or has_failed(job.state)


class NodesSource:
    """Nodes, and the partitions that contain them."""

    name = "nodes"

    def __init__(self, io: Io, interval_s: float) -> None:
        self.interval_s = interval_s
        self._least_interval_s = interval_s
        self._stretch = _Stretch()
        self._client = Client(io)
        self._partitions: Answer | None = None

    def poll(self) -> Iterator[Reading]:
        answer = self._client.ask(NODES_QUERY)
        is_hidden = answer.is_denied
        if answer.error is not None and not is_hidden:
            self._partitions = None
            yield _failed("nodes", answer)
            yield _failed("partitions", answer)
            return
        nodes, num_bad = ((), 0) if is_hidden else parse_nodes(answer.text)
        self._stretch.see(nodes)
        self.interval_s = self._least_interval_s * self._stretch.factor
        listed = NodeList(nodes, is_hidden)
        yield Reading("nodes", answer.time_s, answer.duration_s, listed, num_bad_rows=num_bad)
        is_due = self._partitions is None or answer.time_s - self._partitions.time_s >= PARTITIONS_INTERVAL_S
        if is_due:
            self._partitions = self._client.ask(PARTITIONS_QUERY)
        kept = self._partitions
        assert kept is not None
        are_partitions_hidden = kept.is_denied
        if kept.error is not None and not are_partitions_hidden:
            self._partitions = None
            yield _failed("partitions", kept)
            return
        text = "" if are_partitions_hidden else kept.text
        partitions, num_bad = parse_partitions(text, None if is_hidden else nodes)
        time_s = kept.time_s if is_due else answer.time_s
        payload = PartitionList(partitions, are_partitions_hidden)
        yield Reading("partitions", time_s, kept.duration_s, payload, num_bad_rows=num_bad)


def own_queue(io: Io, user: str) -> Reading:
    """A user's jobs, requested once."""
    return next(JobsSource(io, user, 0.0, is_all=False).poll())


def ask_private_kinds(io: Io, user: str) -> frozenset[str] | None:
    """The kinds of data that the site hides from this user; None if the configuration could not be read.

    Nothing is hidden from root. Slurm's operators see everything too, but only the accounting knows them.
    """
    if user == _SEES_ALL:
        return frozenset()
    result = io.run(CONFIG_QUERY)
    if result.returncode != 0:
        return None
    return private_kinds(parse_config(result.text))


def read_partitions_and_nodes(
    io: Io,
) -> tuple[tuple[Partition, ...], tuple[Node, ...], frozenset[str]]:
    """Request both once. The third value names the lists that the site hides: `nodes`, `partitions`. Raises
    UserError with Slurm's own words if it does not answer."""
    hidden: set[str] = set()
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    for reading in NodesSource(io, 0.0).poll():
        if reading.error is not None:
            raise UserError(f"Slurm does not answer: {reading.error}")
        if isinstance(reading.payload, NodeList):
            nodes = reading.payload.nodes
        elif isinstance(reading.payload, PartitionList):
            partitions = reading.payload.partitions
        if isinstance(reading.payload, NodeList | PartitionList) and reading.payload.is_hidden:
            hidden.add(reading.source)
    return partitions, nodes, frozenset(hidden)


def _failed(name: str, answer: Answer) -> Reading:
    return Reading(name, answer.time_s, answer.duration_s, None, error=answer.error)
