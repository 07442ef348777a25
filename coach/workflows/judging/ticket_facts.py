"""The subject of a ticket, and its facts: the job, its times, nodes, script and environment, each from the
best source that has it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from coach import runs
from coach.analysis.jobs.belonging import is_job_of
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job, Node
from coach.model.snapshot import TargetSnapshot
from coach.sources.io import Io, for_folder
from coach.sources.slurm.job_record import job_nodes, job_record
from coach.sources.slurm.kept_script import find_script
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.check import Checked
from coach.workflows.judging.targets import known_cluster, output_paths_of

_MAX_SCRIPT_BYTES = 64 << 10
_NOT_KNOWN = "not known"
_RECORD = ("<<'COACH_RUN_JSON'\n", "\nCOACH_RUN_JSON\n")
"""Delimiters of a run's record inside its own script."""
_OF_MODULES = re.compile(r"\s*(?:module|ml)\s")
_OF_SOFTWARE = re.compile(
    r"^\s*(?:module|ml|source|\.|conda|mamba|micromamba|spack|export|pyenv|uv|poetry|apptainer|singularity|"
    r"enroot|podman)\s|--container-image|^\s*eval\s.*(?:conda|mamba|pyenv)"
)
"""The lines of a batch script that set up the environment of its programs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """`job_id` is None without Slurm; `record` is run.json, empty if coach did not launch the job."""

    snapshot: TargetSnapshot
    backend: str
    cluster: str | None = None
    job: Job | None = None
    job_id: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict)


def subject_of(snapshot: TargetSnapshot, settings: Settings, io: Io, backend: str | None) -> Subject:
    """The subject. If the queue has forgotten the job, coach's memory and accounting are asked."""
    where = resolve_backend(backend or settings.launch.backend, os.environ)
    run, job, record = snapshot.run, snapshot.job, _record(snapshot)
    if where != "slurm" or (job is None and (run is None or run.backend != "slurm")):
        return Subject(snapshot, where, None, job, None, record)
    cluster = known_cluster(settings)
    job_id = job.job_id if job is not None else run.job_id if run is not None else None
    if job is None and run is not None and job_id is not None:
        row = output_paths_of(io, settings).row(job_id)
        job = row if row is not None and is_job_of(row, run, cluster) else None
    return Subject(snapshot, where, cluster, job, job_id, record)


def _record(snapshot: TargetSnapshot) -> Mapping[str, Any]:
    if snapshot.run is None:
        return {}
    try:
        return runs.read_json(runs.RunPaths(snapshot.run.run_dir).run_json)
    except runs.RunFileError as error:
        return {"unreadable": str(error)}


def job_facts(subject: Subject) -> dict[str, Any]:
    """The job and its requested resources; unknown facts are left out."""
    facts = {
        "job id": subject.job_id,
        **_of_run(subject),
        "state": subject.snapshot.state,
        "exit code": subject.snapshot.exit.exit_code if subject.snapshot.exit is not None else None,
        "cluster": subject.cluster,
        **(_of_row(subject.job) if subject.job is not None else {}),
        **{f"{name} requested": value for name, value in _table(subject.record, "resources").items()},
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _of_run(subject: Subject) -> dict[str, Any]:
    run = subject.snapshot.run
    if run is None:
        return {}
    return {"run id": run.run_id, "run directory": run.run_dir, "name": run.recipe, "user": run.user}


def _of_row(job: Job) -> dict[str, Any]:
    known = {"name": job.name, "user": job.user, "reason": job.reason, "exit code": job.exit_code}
    return {
        # The run's own values are kept where Slurm has none.
        **{name: value for name, value in known.items() if value not in (None, "")},
        "account": job.account,
        "QOS": job.qos,
        "partition": job.partition,
        "reservation": job.reservation,
        "dependency": job.dependency,
        "number of nodes": job.num_nodes,
        "CPUs": job.num_cpus,
        "GPUs": job.num_gpus,
        "time limit": None if job.time_limit_s is None else str(timedelta(seconds=job.time_limit_s)),
        "times requeued": job.num_requeues or None,
        "working directory": job.work_dir,
        "command": job.command,
    }


def times(subject: Subject, now_s: float) -> dict[str, str]:
    """When the job was submitted, started and ended. An unknown time is reported as unknown: it may be the
    first question."""
    has_ended = subject.snapshot.has_ended
    is_waiting = subject.job is not None and subject.job.state == "PENDING"
    submitted, started, ended = replace(subject.snapshot, job=subject.job).moments
    if is_waiting:
        started = None  # Slurm's forecast, not a start
    told = {"submitted": moment(submitted), "started": moment(started), "ended": moment(ended)}
    if is_waiting:
        told["started"] = "it has not started"
    if not has_ended:
        ended = None
        told["ended"] = f"it had not ended at {moment(now_s)}" if subject.snapshot.state else None
    found = {name: value or _NOT_KNOWN for name, value in told.items()}
    if submitted is not None and started is not None:
        found["waited for"] = _span(started - submitted)
    if started is not None and ended is not None:
        found["ran for"] = _span(ended - started)
    return found


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(max(0.0, seconds))))


def moment(time_s: float | None) -> str | None:
    """The time on this machine's clock, with its offset from UTC."""
    if time_s is None:
        return None
    try:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return None


def logs(checked: Checked) -> list[str]:
    """The paths of the logs, or the places that were searched in vain."""
    files = checked.files
    if files is None:
        found = checked.snapshot.log_files
        return [each.path + ("" if each.is_found else ": no such file, or not yet") for each in found]
    read = [each.path if each.problem is None else f"{each.path}: {each.problem}" for each in files.files]
    return read or list(files.not_found)


def script(subject: Subject, io: Io) -> dict[str, Any]:
    """The batch script: the one coach submitted, or the one from Slurm, accounting or the file itself."""
    run, job = subject.snapshot.run, subject.job
    told: dict[str, Any] = {
        **dict.fromkeys(("origin", "problem", "text")),
        "command": _command(subject.record),
    }
    if run is not None:
        path = runs.RunPaths(run.run_dir).job_script
        try:
            data = for_folder(io, Path(run.run_dir)).read(path, 0, _MAX_SCRIPT_BYTES)
        except OSError as error:
            told["problem"] = f"{path}: {error.strerror or error}"
        else:
            text = _without_record(data.decode("utf-8", "surrogateescape"))
            return {**told, "origin": f"written by coach, {path}", "text": text}
    if subject.job_id is None:
        return {**told, "problem": told["problem"] or "Slurm does not know it as a job"}
    try:
        where = (None, None, "") if job is None else (job.command, job.work_dir, job.user)
        found = find_script(io, subject.job_id, *where)
    except UserError as error:
        return {**told, "problem": f"{error.message} ({error.hint})"}
    kept = found.why_not_kept
    problem = f"it may have changed since: the submitted copy is not available ({kept})" if kept else None
    return {**told, "origin": found.origin, "problem": problem, "text": found.text[:_MAX_SCRIPT_BYTES]}


def _without_record(text: str) -> str:
    """A script of coach's without run.json, whose parts stand elsewhere in the ticket."""
    before, begins, rest = text.partition(_RECORD[0])
    _, ends, behind = rest.partition(_RECORD[1])
    return f"{before}{begins}(left out: see above){ends}{behind}" if ends else text


def _command(record: Mapping[str, Any]) -> list[str] | None:
    """The words of the program that a launch, or `coach run`, was given."""
    own = _table(_table(record, "launch"), "own")
    words = own.get("words") or record.get("command")
    return list(map(str, words)) if words and isinstance(words, list) else None


def modules(subject: Subject, text: str) -> dict[str, Any]:
    """The modules of a launch, those that the script (`text`) loads, and those of this shell."""
    here = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    by_script = [line.strip() for line in text.splitlines() if _OF_MODULES.match(line)]
    return {
        "of the launch": list(_table(subject.record, "environment").get("modules") or []),
        "loaded by the script": by_script,
        "loaded in the shell that wrote this": here,
    }


def environment(subject: Subject, text: str) -> dict[str, Any]:
    """The software environment, as far as the launch or the script (`text`) names it."""
    run, record = subject.snapshot.run, subject.record
    lines = [line.strip() for line in text.splitlines() if _OF_SOFTWARE.search(line)]
    git = _table(record, "git")
    commit = git.get("commit")
    told: dict[str, Any] = {
        **{name: value for name, value in _table(record, "environment").items() if name != "modules"},
        **{f"version of {name}": value for name, value in _table(record, "versions").items()},
        "variables of the launch": dict(_table(_table(record, "launch"), "env")),
        "device": _table(record, "device").get("name"),
        "data set": _table(record, "dataset").get("path"),
        "commit of the program": commit and f"{commit}{', and changed since' if git.get('is_dirty') else ''}",
        # The lines that coach wrote into its own script are reported as the launch's.
        "lines of the script": lines if run is None else [],
        "parameters": dict(run.parameters) if run is not None else {},
        "run.json": record.get("unreadable"),
    }
    return {name: value for name, value in told.items() if value not in (None, "", [], {})}


def nodes(subject: Subject, checked: Checked, io: Io) -> dict[str, Any]:
    """The nodes of the job, and their state now."""
    names = ",".join(dict.fromkeys(_node_names(subject, checked))) or None
    if subject.job_id is None:
        return {"names": names, "nodes": [], "problem": None if names else _NOT_KNOWN}
    found = job_nodes(io, names)
    lines = [line for node in found.nodes for line in _node_lines(node)]
    return {"names": names, "nodes": lines, "problem": found.problem}


def _node_names(subject: Subject, checked: Checked) -> list[str]:
    """The node names, from the first source that has them: Slurm, array tasks, the job's end record, its
    measurements."""
    rows = [subject.job, *(part.snapshot.job for part in checked.parts)]
    told = [row.nodes for row in rows if row is not None and row.nodes]
    return told or list(_table(_exit_record(subject), "nodes")) or list(checked.history.nodes)


def slurm_record(subject: Subject, worst: Job | None, io: Io) -> dict[str, Any] | None:
    """Slurm's own record of the job, or of the array task that failed worst; None without Slurm."""
    job_id = worst.job_id if worst is not None else subject.job_id
    return None if subject.job_id is None or job_id is None else asdict(job_record(io, job_id))


def _exit_record(subject: Subject) -> Mapping[str, Any]:
    """exit.json of a run: it has the nodes when Slurm has forgotten the job."""
    run = subject.snapshot.run
    return runs.read_json_if_any(runs.RunPaths(run.run_dir).exit_json) if run is not None else {}


def _node_lines(node: Node) -> Iterator[str]:
    gpus = ", ".join(f"{gpu.total} × {gpu.type or 'GPU'}" for gpu in node.gpus)
    size = f"{node.num_cpus} CPUs, {node.memory_mib} MiB" + (f", {gpus}" if gpus else "")
    features = f"; features {', '.join(node.features)}" if node.features else ""
    yield f"{node.name}: {node.state}; {size}{features}"
    if node.reason is not None:
        by = f" ({node.reason_user}, {moment(node.reason_time_s)})" if node.reason_user else ""
        yield f"  reason: {node.reason}{by}"


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
