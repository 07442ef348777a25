"""The fields by which users filter and sort jobs: one table for the queue, one for the history.

The tables are apart from the language because they grow. A new field of a job is one line here; the parser,
`--help`, `--columns` and the screens read it from the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from coach.analysis.query.kinds import (
    COUNT,
    DURATION,
    ID,
    NAME,
    PERCENT,
    TEXT,
    TIME,
    Expand,
    choice,
    node_set,
    or_me,
    states,
)
from coach.analysis.query.language import Field, Vocabulary
from coach.analysis.queueing.pending_reasons import PendingClass, explain_pending
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import ACTIVE_STATES, FINAL_STATES, Job

_CODES = dict(
    pair.split("=")
    for line in (
        "pd=pending r=running s=suspended cg=completing cd=completed f=failed ca=cancelled cf=configuring",
        (
            "to=timeout nf=node_fail pr=preempted oom=out_of_memory bf=boot_fail dl=deadline rv=revoked "
            "st=stopped"
        ),
        (
            "rq=requeued rh=requeue_hold rf=requeue_fed rs=resizing rd=resv_del_hold si=signaling "
            "se=special_exit"
        ),
        "so=stage_out",
    )
    for pair in line.split()
)
"""squeue's short codes."""

_CLASSES = (PendingClass.WAIT, PendingClass.LIMIT, PendingClass.NEVER, PendingClass.HELD)
_STATE = states(
    (state.lower() for state in ACTIVE_STATES | FINAL_STATES),
    _CODES,
    lambda state: (state.lower(),),
    "pending, running …, or Slurm's code: pd, r …",
)
_PAST = frozenset(
    {
        "id",
        "name",
        "state",
        "part",
        "account",
        "qos",
        "reason",
        "node",
        "gpu",
        "nodes",
        "cpus",
        "used",
        "limit",
    }
)


def job_vocabulary(user: str | None, now_s: float | None, expand: Expand) -> Vocabulary[Job]:
    """The fields of jobs in the queue. `user` is the value of `me`. Waiting times are counted up to `now_s`.
    `expand` expands node sets."""
    kinds: dict[str | None, str] = {}

    def pending_class(job: Job) -> str | None:
        if job.state != "PENDING":
            return None
        if job.reason not in kinds:
            kinds[job.reason] = explain_pending(job.reason).kind.value
        return kinds[job.reason]

    def waited_s(job: Job) -> float | None:
        if job.state != "PENDING" or job.submit_time_s is None or now_s is None:
            return None
        return max(0.0, now_s - job.submit_time_s)

    def field(name: str, attribute: str, title: str, about: str, kind: Any, *aliases: str) -> Field[Job]:
        return Field(name, attribute, title, about, kind, attrgetter(attribute), aliases)

    fields = (
        field("id", "job_id", "JOB", "job id", ID, "job", "job_id"),
        field("name", "name", "NAME", "job name", TEXT),
        field("user", "user", "USER", "the user who submitted it", or_me(NAME, user)),
        field("state", "state", "STATE", "state", _STATE),
        field("reason", "reason", "REASON", "Slurm's reason for the wait, or for the end", TEXT),
        Field(
            "class",
            "pending_class",
            "CLASS",
            "class of a pending job's reason",
            choice(kind.value for kind in _CLASSES),
            pending_class,
        ),
        field("part", "partition", "PARTITION", "partition", NAME, "partition"),
        field("account", "account", "ACCOUNT", "account", NAME),
        field("qos", "qos", "QOS", "QOS", NAME),
        field("node", "nodes", "NODES", "the job's nodes", node_set(expand)),
        field("nodes", "num_nodes", "NUM NODES", "number of nodes", COUNT),
        field("cpus", "num_cpus", "CPUS", "number of CPUs", COUNT, "cpu"),
        field("gpu", "num_gpus", "GPUS", "number of GPUs", COUNT, "gpus"),
        field("used", "time_used_s", "TIME", "time used", DURATION, "time"),
        field("left", "time_left_s", "LEFT", "time left", DURATION),
        field("limit", "time_limit_s", "LIMIT", "time limit", DURATION),
        Field("wait", "time_waited_s", "WAITED", "how long a pending job has waited", DURATION, waited_s),
        field("priority", "priority", "PRIORITY", "Slurm's priority; a larger number goes first", COUNT),
        field("submit", "submit_time_s", "SUBMITTED", "time of submission", TIME, "submitted"),
        field("start", "start_time_s", "START", "time of the start, known or expected", TIME),
    )
    return Vocabulary(fields, _text)


def past_job_vocabulary(user: str | None, expand: Expand) -> Vocabulary[PastJob]:
    """The fields of ended jobs: those of the queue that still have a value, the end, and the use of the
    requested resources."""
    of_job = job_vocabulary(user, None, expand)
    fields: list[Field[PastJob]] = [
        replace(each, value=partial(_of_job, each.value))  # type: ignore[misc]
        for each in of_job.fields
        if each.name in _PAST
    ]
    more = (
        ("ended", "end_time_s", "ENDED", "time of the end", TIME, "job.end_time_s"),
        ("exit", "exit_code", "EXIT", "exit status of the script", COUNT, "job.exit_code"),
        ("use_time", "time_pct", "OF LIMIT", "time used, % of the limit", PERCENT, "efficiency.time_pct"),
        ("use_cpu", "cpu_pct", "CPU", "CPU time, % of the allocated", PERCENT, "efficiency.cpu_pct"),
        (
            "use_mem",
            "memory_pct",
            "MEMORY",
            "peak memory, % of the request",
            PERCENT,
            "efficiency.memory_pct",
        ),
        ("use_gpu", "gpu_pct", "GPU", "mean GPU utilization, %", PERCENT, "efficiency.gpu_pct"),
        ("source", "source", "SOURCE", "source of the row", choice(("sacct", "run", "seen")), "source"),
    )
    fields += [
        Field(name, key, title, about, kind, attrgetter(path)) for name, key, title, about, kind, path in more
    ]
    return Vocabulary(tuple(fields), lambda past: _text(past.job))


def _of_job(value: Callable[[Job], Any], past: PastJob) -> Any:
    return value(past.job)


def _text(job: Job) -> str:
    named = f"{job.job_id} {job.name} {job.user} {job.state} {job.partition}"
    return f"{named} {job.reason or ''} {job.nodes or ''} {job.account or ''}"
