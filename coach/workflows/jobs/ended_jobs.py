"""List ended jobs from every source that remembers them: accounting, if it answers, the run directories, and
the queues seen by coach.

A site without accounting forgets a job minutes after its end. For each job the best source wins; what a
source could not report is noted beside the others' answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach import runs
from coach.analysis.jobs.belonging import fits, run_as_job
from coach.analysis.queueing.arrays import group_id
from coach.config import DEFAULT_CLUSTER, Settings, Switch
from coach.late import late
from coach.model.reading import JobList, RunList
from coach.model.slurm.accounting import Efficiency, PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.model.training.telemetry import GpuSample, HostSample
from coach.sources.io import Io
from coach.sources.metrics.telemetry_files import parse_records
from coach.sources.runs.run_list import RunListSource
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.sources.slurm.client import own_queue
from coach.sources.slurm.ended_jobs import FIELDS_OF_ONE, history_query, job_history_query, parse_history
from coach.sources.slurm.text import failure_of

if TYPE_CHECKING:
    from coach.model.judging.finding import Diagnosis
    from coach.workflows.judging import earlier_runs  # it loads the rules
else:
    earlier_runs = late("coach.workflows.judging", "earlier_runs")

_TIMEOUT_S = 5.0
"""If the database is stopped, sacct hangs for 45 s."""
_SAME_SUBMISSION_S = 2.0
_TAIL_BYTES = 128 << 10
_MAX_NODES_MEASURED = 8


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Newest first. `notes` has a line for each source that failed."""

    jobs: tuple[PastJob, ...]
    notes: tuple[str, ...]
    num_bad_rows: int
    verdicts: Mapping[str, Diagnosis] = field(default_factory=dict)
    """By job id, the verdicts that coach has kept, without evidence and fixes."""


def read_past_jobs(
    settings: Settings, io: Io, user: str, backend: str, *, past_s: float, limit: int
) -> PastJobs:
    """Own jobs that ended within the last `past_s` seconds, at most `limit` of them. One question to
    the database and one to the queue."""
    now_s = io.now()
    notes: list[str] = []
    told: tuple[PastJob, ...] = ()
    seen: tuple[PastJob, ...] = ()
    num_bad = 0
    if backend == "slurm":
        off = settings.why_off(Switch.HISTORY)
        told, num_bad, note = _ask_accounting(io, user, past_s) if off is None else ((), 0, _untold(off))
        notes += [note] if note else []
        memory = SeenJobs(settings.cache_dir)
        is_alive, note = _ask_queue(io, user, memory)
        notes += [note] if note else []
        remembered, num_torn = memory.read()
        num_bad += num_torn
        seen = _gone(remembered, is_alive)
    listed = _list_runs(io, settings, notes)
    cluster = settings.cluster if settings.cluster != DEFAULT_CLUSTER else None
    merged = _merge(told, listed, seen, cluster)
    earlier_runs.note_accounting(settings, merged)
    recent = [each for each in merged if _when(each) is None or (_when(each) or 0.0) >= now_s - past_s]
    recent.sort(key=lambda each: -(_when(each) or 0.0))
    if len(recent) > limit:
        notes.append(f"the newest {limit} of {len(recent)} jobs: coach history --limit {len(recent)} has all")
    measured = tuple(_with_measurement(io, each, listed) for each in recent[:limit])
    return PastJobs(measured, tuple(notes), num_bad)


def known_rows(number: str, settings: Settings, io: Io, user: str) -> list[Job]:
    """The user's job with this number, or the tasks of its array, as accounting has them, then as coach last
    saw them in the queue, the newest first."""
    cluster = settings.cluster if settings.cluster != DEFAULT_CLUSTER else None
    seen = [
        each.job
        for each in SeenJobs(settings.cache_dir).read()[0]
        if group_id(each.job.job_id) == number
        and each.job.user == user
        and (None in (cluster, each.job.cluster) or each.job.cluster == cluster)
    ]
    rows = [job for job in seen if job.name == seen[0].name]
    if settings.why_off(Switch.HISTORY) is not None:
        return rows
    result = io.run(job_history_query(user, number), _TIMEOUT_S)
    if result.returncode != 0:
        return rows
    past, _ = parse_history(result.text, result.query.separator, FIELDS_OF_ONE)
    return [*(each.job for each in past), *rows]


def _ask_accounting(io: Io, user: str, past_s: float) -> tuple[tuple[PastJob, ...], int, str | None]:
    result = io.run(history_query(user, past_s))
    if (why := failure_of(result)) is not None:
        return (), 0, _untold(why)
    jobs, num_bad = parse_history(result.text, result.query.separator)
    return jobs, num_bad, None


def _untold(why: str) -> str:
    return f"accounting gives no answer: {why}; this list comes from run directories and the queue"


_Identity = tuple[str, float | None]


def _identity(job: Job) -> _Identity:
    return job.job_id, job.submit_time_s


def _ask_queue(io: Io, user: str, memory: SeenJobs) -> tuple[frozenset[_Identity], str | None]:
    """The own jobs that have not ended. All jobs of the answer are remembered."""
    reading = own_queue(io, user)
    if not isinstance(reading.payload, JobList):
        return frozenset(), f"the queue does not answer: {reading.error}"
    own = [job for job in reading.payload.jobs if job.user == user]
    note = remember_jobs(memory, own, user, reading.time_s)
    return frozenset(_identity(job) for job in own if not is_final(job.state)), note


def _gone(remembered: Sequence[PastJob], is_alive: frozenset[_Identity]) -> tuple[PastJob, ...]:
    """Remembered jobs that have left the queue. `17_[3-8]` has not, if its tasks were seen since: squeue
    lists each task by itself once it starts. Nor has a job that was requeued since."""
    requeued: dict[tuple[str | None, str, str], int] = {}
    for each in remembered:
        name = _name(each.job)
        requeued[name] = max(requeued.get(name, 0), each.job.num_requeues or 0)
    seen_s: dict[str, float] = {group_id(job_id): math.inf for job_id, _ in is_alive}
    for each in remembered:
        array = group_id(each.job.job_id)
        seen_s[array] = max(seen_s.get(array, 0.0), each.last_seen_s or 0.0)
    return tuple(
        each
        for each in remembered
        if _identity(each.job) not in is_alive
        and (is_final(each.job.state) or (each.job.num_requeues or 0) >= requeued[_name(each.job)])
        and ("[" not in each.job.job_id or (each.last_seen_s or 0.0) >= seen_s[group_id(each.job.job_id)])
    )


def _name(job: Job) -> tuple[str | None, str, str]:
    """A requeue gives a job a new submission time; this stays."""
    return job.cluster, job.job_id, job.name


def _list_runs(io: Io, settings: Settings, notes: list[str]) -> tuple[Run, ...]:
    for reading in RunListSource.indexed(io, settings.runs_root, settings.cache_dir).poll():
        if isinstance(reading.payload, RunList):
            return reading.payload.runs
        if reading.error is not None:
            notes.append(f"the run directories cannot be read: {reading.error}")
    return ()


def _merge(
    told: Sequence[PastJob], listed: Sequence[Run], seen: Sequence[PastJob], cluster: str | None
) -> list[PastJob]:
    """Each job once: accounting's record before the run directory's, and that before the queue's."""
    run_of: dict[str, list[Run]] = {}
    for run in listed:
        if run.job_id is not None and run.backend == "slurm":
            run_of.setdefault(run.job_id, []).append(run)
    merged: list[PastJob] = []
    known: dict[str, list[float | None]] = {}
    used: set[str] = set()
    for past in (*told, *seen):
        job = past.job
        if any(_is_same(job.submit_time_s, time_s) for time_s in known.get(job.job_id, ())):
            continue
        candidates = (run for run in run_of.get(job.job_id, ()) if run.run_id not in used)
        own = next((run for run in candidates if fits(run, job.user, job.submit_time_s, cluster)), None)
        if own is not None:
            used.add(own.run_id)
            past = _joined(past, own)
        known.setdefault(job.job_id, []).append(job.submit_time_s)
        merged.append(past)
    merged += [_of_run(run) for run in listed if run.run_id not in used and is_final(run.state)]
    return merged


def _is_same(one_s: float | None, other_s: float | None) -> bool:
    return one_s is None or other_s is None or abs(one_s - other_s) <= _SAME_SUBMISSION_S


def _joined(past: PastJob, run: Run) -> PastJob:
    """A job with its run. If the queue was last seen before the job's end, the run supplies the end."""
    job = past.job
    if past.source == "seen" and is_final(run.state) and not is_final(job.state):
        ended = _of_run(run)
        job = replace(
            job,
            state=ended.job.state,
            end_time_s=ended.job.end_time_s,
            time_used_s=ended.job.time_used_s,
        )
        return replace(past, job=job, run_id=run.run_id, source="run", efficiency=ended.efficiency)
    return replace(past, run_id=run.run_id)


def _of_run(run: Run) -> PastJob:
    return PastJob(run_as_job(run), source="run", run_id=run.run_id)


def _when(past: PastJob) -> float | None:
    return past.job.end_time_s if past.job.end_time_s is not None else past.last_seen_s


def _with_measurement(io: Io, past: PastJob, listed: Sequence[Run]) -> PastJob:
    """Fill in values that accounting does not have from the sampler of the job's run."""
    job, known = past.job, past.efficiency
    if known.time_pct is None and job.time_used_s is not None and job.time_limit_s:
        known = replace(known, time_pct=100.0 * job.time_used_s / job.time_limit_s)
    run = next((run for run in listed if run.run_id == past.run_id), None)
    if run is None:
        return replace(past, efficiency=known)
    seen = measure_run(io, Path(run.run_dir), job.num_nodes)
    filled: dict[str, Any] = {
        name: value
        for name in ("cpu_pct", "memory_pct", "memory_used_mib", "memory_asked_mib", "gpu_pct")
        if getattr(known, name) is None and (value := getattr(seen, name)) is not None
    }
    return replace(past, efficiency=replace(known, **filled))


def measure_run(io: Io, run_dir: Path, num_nodes: int | None = None) -> Efficiency:
    """Efficiency from the last samples of each node; reads only the end of each file. The memory is a sum
    over all nodes: it is None if fewer than `num_nodes` were measured."""
    samples, are_all_read = _newest_samples(io, runs.RunPaths(run_dir).telemetry_dir)
    hosts = [each for each in samples if isinstance(each, HostSample)]
    nodes = _with_memory(hosts)
    used, asked = _memory_mib(nodes.values())
    is_whole = are_all_read and (num_nodes is None or len(nodes) >= num_nodes)
    return Efficiency(
        cpu_pct=_mean(each.cpu_pct for each in hosts),
        memory_pct=100.0 * used / asked if used is not None and asked else None,
        memory_used_mib=used if is_whole else None,
        memory_asked_mib=asked if is_whole else None,
        gpu_pct=_mean(each.utilization_pct for each in samples if isinstance(each, GpuSample)),
    )


def _newest_samples(io: Io, folder: Path) -> tuple[list[object], bool]:
    """The last samples of the telemetry files, and False if there are more files than coach reads."""
    try:
        names = [name for name in io.list_dir(folder) if name.endswith(".jsonl")]
    except OSError:
        return [], True
    read = names[:_MAX_NODES_MEASURED]
    return [each for name in read for each in _last_samples(io, folder / name)], read == names


def _with_memory(hosts: Iterable[HostSample]) -> dict[str, list[HostSample]]:
    """The samples that have a memory, by node."""
    nodes: dict[str, list[HostSample]] = {}
    for host in hosts:
        if host.memory_used_mib is not None:
            nodes.setdefault(host.node, []).append(host)
    return nodes


def _memory_mib(nodes: Iterable[Sequence[HostSample]]) -> tuple[float | None, float | None]:
    """Sum of the peaks of these nodes, and sum of their limits, in MiB. The limits are None unless every node
    has one."""
    peaks = [max(_known(host.memory_used_mib for host in node)) for node in nodes]
    limits = [_known(host.memory_limit_mib for host in node) for node in nodes]
    if not peaks:
        return None, None
    return sum(peaks), sum(values[-1] for values in limits) if all(limits) else None


def _last_samples(io: Io, path: Path) -> Sequence[object]:
    """The samples at the end of a file; empty if it cannot be read."""
    try:
        size = io.size(path)
        data = io.read(path, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
    except OSError:
        return ()
    whole = data if size <= _TAIL_BYTES else data.partition(b"\n")[2]
    return parse_records(runs.decode_records(whole)[0])[0]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None
