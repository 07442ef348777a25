"""Read ended jobs from the accounting database: the query for sacct, and its answer as past jobs with their
efficiency.

One request returns all jobs of a user with their steps, because memory and CPU time are stored only per step.
Each line ends with a separator, so a record is a fixed number of fields whatever a job's name contains. All
functions are pure except for the random separator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from coach.model.slurm.accounting import Efficiency, PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.sources.io import Query, new_separator
from coach.sources.slurm.gres import count_gpus, has_parts_of_gpus
from coach.sources.slurm.jobstats import parse_jobstats
from coach.sources.slurm.text import (
    BadRow,
    is_job_id,
    optional,
    parse_count,
    parse_duration,
    parse_exit_code,
    parse_time,
    parse_whole,
)

_FIELDS = (
    *("JobID", "JobIDRaw", "User", "State", "Partition", "NodeList", "NNodes", "NCPUS", "NTasks"),
    *("AllocTRES", "ReqTRES", "ReqMem", "ElapsedRaw", "TimelimitRaw", "Submit", "Start", "End"),
    *(
        "Account",
        "QOS",
        "ExitCode",
        "TotalCPU",
        "MaxRSS",
        "TRESUsageInTot",
        "Reservation",
        "WorkDir",
        "AdminComment",
        "JobName",
    ),
)
FIELDS_OF_ONE = (*_FIELDS, "SubmitLine")
"""Versions before 21.08 have no SubmitLine, and refuse the whole question."""
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,15})?)([KMGTP]?)[nc]?$")
_MIB_PER_UNIT = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_CPU_TIME = re.compile(r"^(?:(\d{1,15})-)?(?:(\d{1,15}):)?(\d{1,15}):(\d{1,15}(?:\.\d{1,15})?)$")


def history_query(user: str, past_s: float) -> Query:
    """All jobs of a user that were active within the last `past_s` seconds."""
    separator = new_separator()
    since = f"now-{max(1, round(past_s / 60))}minutes"
    argv = ("sacct", "-n", "-p", "--delimiter", separator, "-u", user, "-S", since, "-E", "now")
    return Query("history", (*argv, "-o", ",".join(_FIELDS)), separator)


def job_history_query(user: str, job_id: str) -> Query:
    """A user's job or array with this number, of any age, and the line that submitted it."""
    separator = new_separator()
    argv = ("sacct", "-n", "-p", "--delimiter", separator, "-u", user, "-j", job_id)
    return Query("job-history", (*argv, "-o", ",".join(FIELDS_OF_ONE)), separator)


def parse_history(
    text: str, separator: str, names: Sequence[str] = _FIELDS
) -> tuple[tuple[PastJob, ...], int]:
    """(ended jobs, newest first; number of malformed records)."""
    fields = text.split(separator)
    jobs: dict[str, dict[str, str]] = {}
    steps: dict[str, list[dict[str, str]]] = {}
    num_bad = 0
    for start in range(0, len(fields) - 1, len(names)):
        record = fields[start : start + len(names)]
        if len(record) < len(names):
            num_bad += 1
            break
        row = dict(zip(names, record, strict=True))
        row["JobID"] = row["JobID"].lstrip("\n")
        job_id, dot, _ = row["JobID"].partition(".")
        if not is_job_id(job_id):
            num_bad += 1
        elif dot:
            steps.setdefault(job_id, []).append(row)
        else:
            jobs[job_id] = row  # a requeued job has one row per attempt: the last one counts
    past = []
    for job_id, row in jobs.items():
        try:
            job = _parse_job(row)
        except BadRow:
            num_bad += 1
            continue
        if is_final(job.state):
            used = _efficiency(row, steps.get(job_id, ()), job)
            past.append(PastJob(job, _with_jobstats(used, parse_jobstats(row["AdminComment"]))))
    return tuple(sorted(past, key=lambda each: -(each.job.end_time_s or 0.0))), num_bad


def _parse_job(row: Mapping[str, str]) -> Job:
    state = row["State"].partition(" ")[0].rstrip("+")  # `CANCELLED by 1000`
    if not re.fullmatch(r"[A-Z][A-Z_]*", state):
        raise BadRow(f"not a state: {state!r}")
    limit_min = parse_count(row["TimelimitRaw"]) if row["TimelimitRaw"].isdecimal() else None
    tres = optional(row["AllocTRES"]) or optional(row["ReqTRES"]) or ""
    gpus = count_gpus(tres)
    code = parse_exit_code(row["ExitCode"])
    nodes = optional(row["NodeList"])
    return Job(
        job_id=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        state=state,
        reason=None,
        partition=row["Partition"],
        nodes=None if nodes == "None assigned" else nodes,
        num_nodes=parse_count(row["NNodes"]),
        num_cpus=parse_count(row["NCPUS"]),
        num_gpus=gpus if gpus is not None or not tres or has_parts_of_gpus(tres) else 0,
        time_used_s=parse_count(row["ElapsedRaw"]),
        time_left_s=None,
        time_limit_s=None if limit_min is None else limit_min * 60,
        submit_time_s=parse_time(row["Submit"]),
        start_time_s=parse_time(row["Start"]),
        end_time_s=parse_time(row["End"]),
        account=optional(row["Account"]),
        qos=optional(row["QOS"]),
        work_dir=optional(row["WorkDir"]),
        exit_code=None if code == 0 and state != "COMPLETED" else code,
        raw_job_id=optional(row["JobIDRaw"]),
        reservation=optional(row["Reservation"]),
        command=optional(row.get("SubmitLine", "")),
    )


def _efficiency(row: Mapping[str, str], steps: Sequence[Mapping[str, str]], job: Job) -> Efficiency:
    used_s = job.time_used_s
    if not used_s or job.start_time_s is None:
        return Efficiency()
    # A CPU time of 0, or one without steps, means that it was not measured.
    cpu_s = parse_cpu_time(row["TotalCPU"]) or None if steps else None
    memory_mib = max((size for step in steps if (size := _memory_of(step)) is not None), default=None)
    asked_mib = _asked_memory(row, job)
    return Efficiency(
        cpu_pct=_percent(cpu_s, used_s * (job.num_cpus or 0)),
        memory_pct=_percent(memory_mib, asked_mib),
        memory_used_mib=memory_mib,
        memory_asked_mib=asked_mib,
        gpu_pct=_gpu_percent(steps, job.num_gpus) if job.num_gpus else None,
        time_pct=_percent(used_s, job.time_limit_s),
    )


def _with_jobstats(used: Efficiency, measured: Efficiency | None) -> Efficiency:
    """Prefer jobstats' measurements of the whole job to Slurm's samples of steps."""
    if measured is None:
        return used
    known = {each.name: getattr(measured, each.name) for each in fields(measured)}
    return replace(used, **{name: value for name, value in known.items() if value is not None})


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100.0 * part / whole if part is not None and whole else None


def _gpu_percent(steps: Sequence[Mapping[str, str]], num_gpus: int) -> float | None:
    """Mean over the GPUs of the step that used them most, in percent."""
    sums = [used for step in steps if (used := _usage(step["TRESUsageInTot"], "gres/gpuutil")) is not None]
    mean = max((float(used) / num_gpus for used in sums if used.isdecimal()), default=None)
    # Some versions sum over processes that share a GPU: a value above 100 % is no measurement.
    return mean if mean is not None and mean <= 100.0 else None


def _memory_of(step: Mapping[str, str]) -> float | None:
    """Memory of all tasks of a step in MiB: Slurm's sum if there is one, else the largest task times the
    number of tasks."""
    total = parse_size_mib(_usage(step["TRESUsageInTot"], "mem") or "")
    if total is not None:
        return total
    largest = parse_size_mib(step["MaxRSS"])
    num_tasks = parse_whole(step["NTasks"]) or 1
    return None if largest is None else largest * num_tasks


def _asked_memory(row: Mapping[str, str], job: Job) -> float | None:
    allocated = parse_size_mib(_usage(row["AllocTRES"], "mem") or "")
    if allocated is not None:
        return allocated
    asked = parse_size_mib(row["ReqMem"])
    if asked is None:
        return None
    # Before 21.08 the last letter tells the unit: n is per node, c is per CPU.
    factor = {"n": job.num_nodes, "c": job.num_cpus}.get(row["ReqMem"].strip()[-1:], 1)
    return None if factor is None else asked * factor


def _usage(tres: str, name: str) -> str | None:
    for item in tres.split(","):
        key, equals, value = item.partition("=")
        if equals and key == name:
            return value
    return None


def parse_size_mib(text: str) -> float | None:
    """`3120K`, `1.5G`, `4Gn` in MiB; None if it is not set, or 0 (Slurm's value for a step without
    samples)."""
    match = _SIZE.match(text.strip())
    if match is None or float(match[1]) == 0:
        return None
    return float(match[1]) * _MIB_PER_UNIT[match[2]]


def parse_cpu_time(text: str) -> float | None:
    """`1-02:03:04` or `02:03.456` in seconds."""
    match = _CPU_TIME.match(text.strip())
    if match is None:
        whole = parse_duration(text)
        return None if whole is None else float(whole)
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])
