"""Explain why a job is pending, in plain words: the meaning of Slurm's reason, its class, and what to do.

Slurm has some two hundred reasons (job_reason_codes), most of them one limit spelt out for one resource.
Those are parsed, not listed, so that limits on new resources are understood too. An unknown reason is shown
as it is. Slurm reports only the first obstacle of its last attempt: every sentence is about the present.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from coach.model.slurm.cluster import Job


class PendingClass(StrEnum):
    """The class of a reason."""

    WAIT = "wait"
    """Nothing is wrong: the job starts when its turn comes."""
    LIMIT = "limit"
    """A limit of the user, of an account or of the QOS."""
    NEVER = "never"
    """It will never start with the present request."""
    HELD = "held"
    """A person, or Slurm, holds it until it is released."""
    ENDED = "ended"
    """No reason to wait, but the result of an earlier attempt."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """One reason explained. `reason` is Slurm's own word for it, verbatim."""

    reason: str
    kind: PendingClass
    meaning: str
    advice: str
    starts_by_itself: bool
    """True if it starts without anybody's action."""
    nodes: str | None = None
    """The nodes that it waits for, as a node set expression."""
    limit_on: str | None = None
    """The quantity that a limit counts: `CPUs`, `running jobs`."""


_W, _L, _N, _H, _E = (
    PendingClass.WAIT,
    PendingClass.LIMIT,
    PendingClass.NEVER,
    PendingClass.HELD,
    PendingClass.ENDED,
)

NOTHING = "nothing: it starts by itself"
"""The advice where waiting is all that helps."""
_ASK = "ask the administrators"
_RESUBMIT = "cancel it and submit it again"
_RELEASE = "scontrol release JOBID, or cancel it"

_REASONS: dict[str, tuple[PendingClass, str, str]] = {
    "None": (_W, "Slurm has not considered it yet", "it does so within about a minute"),
    "Resources": (
        _W,
        "it is first in line, and the nodes, CPUs, memory or GPUs that it requests are in use",
        "fewer nodes or GPUs, or a shorter --time, may fit into a gap",
    ),
    "Priority": (
        _W,
        "other jobs of this partition or reservation are before it",
        "a shorter --time or a smaller shape may fit into a gap before them",
    ),
    "Reservation": (
        _W,
        "its reservation has not started, or is full",
        "see when it starts, or submit without --reservation",
    ),
    "BeginTime": (
        _W,
        "it may not start before a time: its --begin, or a pause after it was requeued",
        "scontrol update JobId=JOBID StartTime=now, if it was your --begin",
    ),
    "Dependency": (_W, "it waits for other jobs", NOTHING),
    "JobArrayTaskLimit": (
        _W,
        "as many tasks of this array run as its own limit (the number after %) lets",
        "scontrol update JobId=JOBID ArrayTaskThrottle=N lets more run",
    ),
    "Licenses": (_W, "a license that it requests is in use", NOTHING),
    "Cleaning": (_W, "it was requeued, and its last attempt is still being cleaned up", NOTHING),
    "Constraints": (
        _W,
        "no node meets its --extra constraints, or its --prefer, now",
        "without --extra another node may do",
    ),
    "NvidiaImexChannels": (_W, "other jobs use all IMEX channels of its nodes", NOTHING),
    "SchedDefer": (
        _W,
        "it was to start at once, but this site does not schedule at submission",
        "submit it without --immediate",
    ),
    "FedJobLock": (_W, "the clusters of the federation agree on who runs it", NOTHING),
    "FrontEndDown": (_W, "no front end node can start it now", _ASK),
    "NodeDown": (_W, "a node that it needs is down", f"ask for another node, or {_ASK}"),
    "ReqNodeNotAvail": (
        _W,
        "nodes that it needs are down, drained, or reserved within its time limit",
        "a shorter --time may end before the reservation; without --nodelist another node may do",
    ),
    "PartitionDown": (_W, "its partition starts no jobs now", "another partition, or wait"),
    "PartitionInactive": (
        _W,
        "its partition neither takes nor starts jobs now",
        "another partition, or wait",
    ),
    "BurstBufferResources": (_W, "the burst buffer has no room for it now", NOTHING),
    "BurstBufferStageIn": (_W, "its data is being copied into the burst buffer", NOTHING),
    "MaxPoweredUpNodes": (_W, "the site has powered up as many nodes as it allows", NOTHING),
    "MpiPortsBusy": (_W, "the ports that it would use for MPI are taken", NOTHING),
    "PowerNotAvail": (_W, "the cluster has no electrical power left for it", NOTHING),
    "PowerReserved": (_W, "electrical power is kept for a reservation", NOTHING),
    "SystemFailure": (_W, "Slurm, a file system or the network failed under it", f"if it stays, {_ASK}"),
    "QOSUsageThreshold": (
        _L,
        "your group's share of the machine has fallen below the minimum of this QOS",
        "another --qos, or wait until old usage is forgotten (sshare)",
    ),
    "QOSJobLimit": (_L, "the QOS has as many jobs as it may have", "another --qos, or wait"),
    "QOSResourceLimit": (_L, "the QOS uses as much of something as it may", "another --qos, or wait"),
    "QOSTimeLimit": (_L, "it requests more time than the QOS allows", "a shorter --time, or another --qos"),
    "AssociationJobLimit": (
        _L,
        "you or your account have as many jobs as you may",
        "another --account, or wait",
    ),
    "AssociationResourceLimit": (
        _L,
        "you or your account use as much of something as you may",
        "another --account, or wait",
    ),
    "AssociationTimeLimit": (
        _L,
        "it requests more time than you or your account may use, or your time is used up",
        "a shorter --time, or another --account",
    ),
    "PartitionNodeLimit": (
        _N,
        "it requests more or fewer nodes than its partition allows, or nodes outside it",
        "fewer nodes, or another partition",
    ),
    "PartitionTimeLimit": (
        _N,
        "its time limit is longer than its partition allows",
        "scontrol update JobId=JOBID TimeLimit=… makes it shorter; or another partition",
    ),
    "PartitionConfig": (
        _N,
        "its partition, as it is configured now, does not have the requested resources",
        "fewer nodes, or another partition",
    ),
    "BadConstraints": (
        _N,
        "no node fits its request (features, GPUs, memory, CPUs, --nodelist and --exclude)",
        f"{_RESUBMIT}, with another request",
    ),
    "DependencyNeverSatisfied": (
        _N,
        "a job that it waits for ended in a way that it does not accept",
        "scontrol update JobId=JOBID Dependency= takes the dependency away; or cancel it",
    ),
    "InvalidAccount": (_N, "its account is not valid, or no longer yours", "another --account"),
    "InvalidQOS": (_N, "its QOS is not valid, or no longer yours", "another --qos"),
    "AccountNotAllowed": (_N, "its account may not use this partition", "another --account or partition"),
    "QOSNotAllowed": (_N, "its QOS may not be used with this account or partition", "another --qos"),
    "AccountingPolicy": (_N, "a rule of the accounting refuses it", _ASK),
    "ReservationDeleted": (_N, "its reservation is gone", f"{_RESUBMIT}, without --reservation"),
    "ReservationInvalid": (_N, "its reservation is not valid for it", f"{_RESUBMIT}, without --reservation"),
    "DeadLine": (_N, "it cannot end before its --deadline any more", f"{_RESUBMIT}, with another --deadline"),
    "MaxMemPerLimit": (
        _N,
        "it requests more memory per node or CPU than its partition allows",
        "less --mem, or more CPUs per task",
    ),
    "BurstBufferOperation": (_N, "an operation of its burst buffer failed", _RESUBMIT),
    "JobHeldUser": (_H, "it is held, by you or by --hold", "scontrol release JOBID"),
    "JobHeldAdmin": (_H, "it is held by an administrator or by Slurm", f"{_ASK}: only they can release it"),
    "JobHoldMaxRequeue": (
        _H,
        "it could not be started several times, and Slurm gave up",
        "find out why the node refused it (its log), then scontrol release JOBID",
    ),
    "TimeLimit": (_E, "it ran into its time limit", "a longer --time, or checkpoints"),
    "InactiveLimit": (_E, "it was idle for longer than the site allows", _RESUBMIT),
    "NonZeroExitCode": (_E, "its script ended with an error", "look into its log"),
    "RaisedSignal": (_E, "a signal ended it", "look into its log"),
    "OutOfMemory": (_E, "it used more memory than it had requested", "more --mem"),
    "JobLaunchFailure": (
        _E,
        "it could not be started on its node",
        "look into its log; if it goes on, " + _ASK,
    ),
}

_STUCK = frozenset({"QOSTimeLimit", "AssociationTimeLimit"})
"""Limits that the job itself exceeds: waiting does not help."""

_SENTENCES: tuple[tuple[str, PendingClass, str, str], ...] = (
    ("launch failed requeued held", _H, "it could not be started on its node, and is held", _RELEASE),
    ("requeued held", _H, "it was requeued and is held", _RELEASE),
    ("requeued in held state", _H, "it was requeued and is held", _RELEASE),
    (
        "reserved for jobs in higher priority partitions",
        _W,
        "the nodes that it needs are down, drained, or kept for a partition of higher priority",
        "sinfo -R says which nodes are down or drained, and why; with fewer nodes it may not need them",
    ),
)
"""Sentences that Slurm writes in place of a code, by words in them."""

_LIMIT = re.compile(
    r"""
    ^(?P<owner>QOS|Assoc)?(?P<bound>Grp|Max|Min)
    (?P<what>SubmitJobs?|WallDuration|Wall|Jobs|Cpu|CPU|Memory|Mem|Node|[A-Z][A-Za-z]*?)
    (?P<time>RunMinutes|RunMins|Minutes)?
    (?P<scope>PerJob|PerNode|PerUser|PerAccount)?
    (?:NotSatisfied)?(?:Limit)?$
    """,
    re.VERBOSE,
)
_RESOURCES = {
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "GRES": "GPUs or other GRES",
    "License": "licenses",
    "BB": "burst buffer",
    "Billing": "billing units",
    "Energy": "energy",
    "Unknown": "a resource that Slurm does not name",
    "Jobs": "running jobs",
    "SubmitJobs": "jobs in the queue",
    "SubmitJob": "jobs in the queue",
    "Wall": "time on the clock",
    "WallDuration": "time on the clock",
}
_NODES = re.compile(r"(?:UnavailableNodes|Unavailable):([^\s()]+)")
_DEPENDENCY = re.compile(r"^(?P<type>[a-z]+)(?::(?P<jobs>[^()]*))?(?:\((?P<state>\w+)\))?$")


def explain_pending(reason: str | None) -> PendingReason:
    """The meaning of one of Slurm's reasons. None stands for squeue's `None`: the scheduler has not looked at
    the job yet."""
    said = (reason or "None").strip() or "None"
    code = re.split(r"[,(\s]", said, maxsplit=1)[0]
    known = _REASONS.get(code)
    if known is None:
        words = said.replace("_", " ").lower()
        for part, kind, meaning, advice in _SENTENCES:
            if part in words:
                return PendingReason(said, kind, meaning, advice, kind is _W)
        return _explain_limit(said, code) or PendingReason(
            said, PendingClass.UNKNOWN, "a reason that coach does not know", _ASK, False
        )
    explained = PendingReason(said, *known, starts_by_itself=known[0] in (_W, _L) and code not in _STUCK)
    return _explain_nodes(explained) if code in ("ReqNodeNotAvail", "NodeDown") else explained


class KnownReasons(dict[str | None, PendingReason]):
    """A cache of explained reasons for one pass over a queue: its rows repeat a few reasons."""

    def __missing__(self, reason: str | None) -> PendingReason:
        explained = self[reason] = explain_pending(reason)
        return explained


def explain_job(job: Job, known: KnownReasons | None = None) -> PendingReason | None:
    """Why this job is pending, with details from its own row; None if the job is not pending."""
    if job.state != "PENDING":
        return None
    explained = explain_pending(job.reason) if known is None else known[job.reason]
    if "JOBID" in explained.advice:
        explained = replace(explained, advice=explained.advice.replace("JOBID", order_id(job.job_id)))
    if explained.reason.startswith("Dependency") and job.dependency:
        others = ", ".join(
            f"{job_ids} ({state})" if state == "failed" else job_ids
            for _, job_ids, state in parse_dependency(job.dependency)
            if job_ids
        )
        if others:
            return replace(explained, meaning=f"it waits for job {others}")
    if explained.reason == "Reservation" and job.reservation:
        return replace(explained, meaning=f"its reservation {job.reservation} has not started, or is full")
    return explained


def order_id(job_id: str) -> str:
    """The id that scontrol accepts for a whole folded row: `17` for `17_[3-8%2]`."""
    return job_id if job_id.isdecimal() else re.split(r"[_+]\[", job_id, maxsplit=1)[0]


def parse_dependency(text: str) -> tuple[tuple[str, str, str | None], ...]:
    """`afterok:17(unfulfilled),singleton` as (type, jobs, state) each. Parts that cannot be parsed are left
    out."""
    found = []
    for item in re.split(r"[,?]", text):
        match = _DEPENDENCY.match(item.strip())
        if match is not None:
            found.append((match["type"], (match["jobs"] or "").replace(":", ", "), match["state"]))
    return tuple(found)


def _explain_nodes(explained: PendingReason) -> PendingReason:
    words = explained.reason.lower()
    nodes = _NODES.search(explained.reason)
    if "maintenance" in words:
        meaning = "nodes that it needs are reserved for maintenance before its time limit would end"
        advice = "a shorter --time ends before the maintenance begins; else it starts after it"
        return replace(explained, meaning=meaning, advice=advice)
    if "reserved" in words:
        return replace(explained, meaning="nodes that it needs are, or may be, reserved for others")
    if nodes is not None:
        meaning = f"nodes that it needs are not available: {nodes[1]}"
        advice = "sinfo -R says why; without --nodelist, or with fewer nodes, others may do"
        return replace(explained, meaning=meaning, advice=advice, nodes=nodes[1])
    return explained


def _explain_limit(said: str, code: str) -> PendingReason | None:
    match = _LIMIT.match(code)
    if match is None or (match["owner"] is None and match["scope"] is None):
        return None
    what = _RESOURCES.get(match["what"], match["what"])
    if match["time"] is not None:
        span = "minutes of running jobs" if match["time"].startswith("Run") else "minutes"
        what = f"{what} × {span}"
    owner = (
        "your account" if match["owner"] == "Assoc" else "the QOS"
    )  # the limits without an owner are a QOS's
    explained = PendingReason(said, _L, "", "", False, limit_on=what)
    if match["bound"] == "Min":
        meaning = f"it requests less than the minimum of {owner} for a job: {what}"
        return replace(explained, meaning=meaning, advice="request more, or use another --qos")
    if match["scope"] in ("PerJob", "PerNode"):
        each = "one job" if match["scope"] == "PerJob" else "one node of a job"
        meaning = f"it requests more than {owner} allows {each}: {what}"
        return replace(explained, meaning=meaning, advice="request less, or use another --qos or --account")
    explained = replace(explained, meaning=f"{_holder(match)} as much as {owner} allows: {what}")
    # GrpWall counts the past too: the time of all jobs so far, which fades or is reset as usage does.
    if match["time"] == "Minutes" or match["what"] == "Wall":
        other = "--qos" if match["owner"] == "QOS" else "--account"
        advice = (
            f"it is used up until Slurm forgets old usage (sshare) or the site resets it; another {other}"
        )
        return replace(explained, advice=advice)
    advice = "it starts when running ones end; or another --qos or --account"
    return replace(explained, advice=advice, starts_by_itself=True)


def _holder(match: re.Match[str]) -> str:
    """Whose use a limit counts, with its verb."""
    if match["scope"] == "PerAccount":
        return "your account has"
    if match["scope"] == "PerUser" or match["bound"] == "Max":
        return "you have"
    return "all jobs of the QOS together have" if match["owner"] == "QOS" else "your group has"
