"""Builds the sbatch command that submits a job again, from Slurm's facts about the job. Pure.

The controller keeps a job's script, but not its command-line options. They are derived from the job's
properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coach.analysis.queueing.arrays import format_tasks, group_id, parse_task_ids
from coach.analysis.spelling.slurm import whole_minutes
from coach.launch import batch_file
from coach.launch.spelling import format_time, parse_mem_mib, parse_time
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job
from coach.model.slurm.job_action import JobAction, QueuedJob, Step, Verb
from coach.runs import write_atomic
from coach.trusted import private_folder

_FACT = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)")
_LINE_FACT = re.compile(r"^ +(Command|WorkDir|StdOut|StdErr|Comment)=(.*)$", re.MULTILINE)
_UNSET = frozenset({"", "(null)", "N/A", "None", "UNLIMITED", "Unknown", "0", "*"})
"""Values that no option repeats; but a memory per node of 0 is all of the node's memory."""

_OPTIONS: tuple[tuple[str, str], ...] = (
    ("Partition", "partition"),
    ("Account", "account"),
    ("QOS", "qos"),
    ("Reservation", "reservation"),
    ("TimeLimit", "time"),
    ("NumNodes", "nodes"),
    ("NumTasks", "ntasks"),
    ("NtasksPerN:B:S:C", "ntasks-per-node"),
    ("CPUs/Task", "cpus-per-task"),
    ("CpusPerTres", "cpus-per-gpu"),
    ("MinMemoryNode", "mem"),
    ("MinMemoryCPU", "mem-per-cpu"),
    ("MemPerTres", "mem-per-gpu"),
    ("TresPerJob", "gpus"),
    ("TresPerNode", "gpus-per-node"),
    ("TresPerTask", "gpus-per-task"),
    ("TresPerSocket", "gpus-per-socket"),
    ("Socks/Node", "sockets-per-node"),
    ("Features", "constraint"),
    ("ReqNodeList", "nodelist"),
    ("ExcNodeList", "exclude"),
    ("Licenses", "licenses"),
)
"""Key of `scontrol show job` → the option that sets it."""

_GPUS = re.compile(r"gres[:/]gpu(?::((?!\d+$)[\w.-]++))?[:=]?(\d++)?$")
_CPUS = re.compile(r"cpu[:=]\d+")
"""Newer versions of Slurm list the CPUs per task here as well."""


def read_job(text: str) -> Mapping[str, str]:
    """The facts that `scontrol show job` prints about one job. Of repeated keys the last counts: a job's
    name, printed first, may look like any key.

    A script's arguments may do so too, so a line with a single fact is taken whole.
    """
    facts = dict(_FACT.findall(_LINE_FACT.sub("", text)))
    facts.update(_LINE_FACT.findall(text))
    return {
        name: value
        for name, value in facts.items()
        if value not in _UNSET or (name, value) == ("MinMemoryNode", "0")
    }


@dataclass(frozen=True, slots=True)
class Resubmission:
    """All facts needed to submit a job again. The job itself stays as it is."""

    job_id: str
    name: str
    facts: Mapping[str, str]
    """The result of `read_job`."""
    script: str
    file: Path
    """The script's file that sbatch gets."""
    is_file_there: bool
    """False: the file is written before sbatch is called."""
    notes: tuple[str, ...]
    """Notes to read before confirming."""
    timeout_s: float
    tasks: str = ""
    """For an array: the tasks that were named, else all that are known, as `0-9%2`."""
    kept: Path | None = None
    """The file for a script without the options that a change replaces; None: there can be none."""
    arguments: tuple[str, ...] = ()
    """What follows the file: the script's own arguments."""
    failed_tasks: str = ""
    """For an array: those of `tasks` that have failed."""
    jobs: tuple[QueuedJob, ...] = ()
    """The job, or each of the array's tasks that are known."""

    def value(self, option: str) -> str:
        """The value that the job has for one of CHANGEABLE; empty if it has none. An array offers its failed
        tasks first."""
        fact = next((fact for fact, name in _OPTIONS if name == option), "")
        return self.failed_tasks or self.tasks if option == "array" else self.facts.get(fact, "")


def tasks_of(rows: Iterable[QueuedJob]) -> dict[int, QueuedJob]:
    """The row of each task of an array, by its number and in that order; of several rows of one task the
    first. Empty for another job."""
    tasks: dict[int, QueuedJob] = {}
    for row in rows:
        ids = parse_task_ids(row.job_id)
        for task in ids.tasks if ids is not None else ():
            tasks.setdefault(task, replace(row, job_id=f"{group_id(row.job_id)}_{task}"))
    return dict(sorted(tasks.items()))


def task_list(tasks: Sequence[int], facts: Mapping[str, str], job_ids: Iterable[str]) -> str:
    """The tasks as --array takes them, with the limit of tasks at a time that an id or the facts have. A
    limit that no longer limits is left out."""
    limits = (ids.limit for job_id in job_ids if (ids := parse_task_ids(job_id)) is not None)
    throttle = facts.get("ArrayTaskThrottle", "")
    limit = next(filter(None, limits), None) or (int(throttle) if throttle.isdecimal() else len(tasks))
    return format_tasks(tasks) + (f"%{limit}" if limit < len(tasks) else "")


def last_facts(job: Job) -> dict[str, str]:
    """The facts of a job that Slurm has forgotten, as it was last seen."""
    gpus, nodes = job.num_gpus or 0, job.num_nodes or 1
    last = {
        "BatchFlag": "1",
        "WorkDir": job.work_dir,
        "Command": job.command,
        "Partition": job.partition,
        "Account": job.account,
        "QOS": job.qos,
        "Reservation": job.reservation,
        "TimeLimit": format_time(job.time_limit_s) if job.time_limit_s is not None else None,
        "NumNodes": str(job.num_nodes) if job.num_nodes is not None else None,
        "TresPerNode": f"gres:gpu:{gpus // nodes}" if gpus and gpus % nodes == 0 else None,
    }
    return {name: value for name, value in last.items() if value}


def without_gpus_of_script(facts: Mapping[str, str], script: str) -> dict[str, str]:
    """The facts without a number of GPUs for which the script asks in its own way."""
    is_asked = not _GPU_OPTIONS.isdisjoint(batch_file.asked(script))
    return {name: value for name, value in facts.items() if not is_asked or name != "TresPerNode"}


_GPU_OPTIONS = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"})
CHANGEABLE = ("time", "mem", "exclude", "array")
"""Options of sbatch that a person may change when a job is submitted again."""
_NODES = re.compile(r"[\w.,\[\]-]{1,2000}", re.ASCII)
_TASKS = re.compile(r"[\d,:%-]{1,50000}", re.ASCII)


def submit_again(found: Resubmission, changes: Mapping[str, str] | None = None) -> JobAction:
    """The exact action. `changes`: option of CHANGEABLE → text; an empty text keeps the script's value.
    Raises UserError for a text that sbatch would refuse."""
    given = {"array": found.tasks, **(changes or {})}
    said = {option: _checked(option, text.strip()) for option, text in given.items()}
    script, file, notes = found.script, None if found.is_file_there else found.file, found.notes
    if said.get("mem"):  # sbatch refuses it beside a --mem-per-cpu of the script
        script = batch_file.without_options(found.script, ("mem",))
    if script != found.script:
        file = found.kept
        notes = (*notes, "a copy of the script is submitted, without its memory per CPU or GPU")
    argv = resubmit_command(found.facts, found.name, file or found.file, said, script, found.arguments)
    job_id, jobs = found.job_id, found.jobs
    if array := said["array"]:
        job_id += f"_{array}" if array.isdecimal() else f"_[{array}]"
        tasks = parse_task_ids(job_id)
        chosen = {f"{found.job_id}_{task}" for task in tasks.tasks} if tasks is not None else set()
        jobs = tuple(job for job in jobs if job.job_id in chosen)
    return JobAction(
        Verb.RESUBMIT,
        (Step(argv, (job_id,)),),
        jobs=jobs,
        notes=notes,
        timeout_s=found.timeout_s,
        script=script,
        script_file=None if file is None else str(file),
    )


def _checked(option: str, text: str) -> str:
    if text and option == "time":
        return format_time(whole_minutes(parse_time(text, "time limit")))
    if text and option == "mem":
        parse_mem_mib(text, "memory per node")
    if text and option == "exclude" and _NODES.fullmatch(text) is None:
        raise UserError(f"nodes to leave out {text!r}: expected names, for example node1,node[3-5]")
    if text and option == "array" and _TASKS.fullmatch(text) is None:
        raise UserError(f"array tasks {text!r}: expected numbers, for example 3,7 or 0-9")
    return text


def resubmit_command(
    facts: Mapping[str, str],
    name: str,
    file: Path,
    changes: Mapping[str, str] | None = None,
    script: str = "",
    arguments: Sequence[str] = (),
) -> tuple[str, ...]:
    """The exact command; its options win over those of `script`, the text of the file. `arguments` follow
    the file. Raises UserError for a
    job without a script, or with resources that no option can ask for."""
    said = changes or {}
    if facts.get("BatchFlag") is None:
        raise UserError(f"job {name}: it has no script: it was not submitted by sbatch")
    options = [f"--job-name={name}"]
    if "WorkDir" in facts:
        options.append(f"--chdir={facts['WorkDir']}")
    has_gres = "gpu" in batch_file.asked(script).get("gres", "")
    for fact, option in _OPTIONS:
        value = said.get(option, facts.get(fact))
        if not value or option in _replaced(facts, said):
            continue
        if fact.startswith("Tres"):
            options += _gpu_option(name, fact, option, value, has_gres=has_gres)
        elif fact.endswith("PerTres"):
            options.append(f"--{option}={_per_gpu(name, fact, value)}")
        elif option == "ntasks-per-node":
            number = value.partition(":")[0]
            options += [f"--{option}={number}"] if number not in _UNSET else []
        else:
            options.append(f"--{option}={value}")
    if facts.get("OverSubscribe") == "NO":
        options.append("--exclusive")
    if said.get("array"):
        options.append(f"--array={said['array']}")
    return ("sbatch", "--parsable", *options, str(file), *arguments)


def _replaced(facts: Mapping[str, str], said: Mapping[str, str]) -> set[str]:
    """The options that another one replaces: sbatch takes memory per node, per CPU or per GPU, and CPUs per
    task or per GPU. Slurm also reports a default of those that the job did not ask for."""
    replaced = {"cpus-per-task"} if "CpusPerTres" in facts else set()
    if said.get("mem"):
        return replaced | {"mem-per-cpu", "mem-per-gpu"}
    return replaced | ({"mem", "mem-per-cpu"} if "MemPerTres" in facts else set())


def _gpu_option(name: str, fact: str, option: str, value: str, *, has_gres: bool) -> list[str]:
    """`gres:gpu:a100:2` as the option for GPUs. Other resources use --gres, which counts per node; so do GPUs
    if the script asks for them by --gres: Slurm would obey that before --gpus-per-node. Raises UserError
    rather than drop a resource."""
    parts = [part for part in value.split(",") if _CPUS.fullmatch(part) is None]
    gpus = [match for part in parts if (match := _GPUS.fullmatch(part)) is not None]
    if len(gpus) < len(parts):
        if option != "gpus-per-node":
            raise _unspelt(name, fact, value)
        return [f"--gres={value.replace('gres:', '').replace('gres/', '')}"]
    counts = _counts(gpus)
    if option == "gpus-per-node" and has_gres:
        option, counts = "gres", [f"gpu:{count}" for count in counts]
    return [f"--{option}={','.join(counts)}"] if counts else []


def _counts(gpus: Sequence[re.Match[str]]) -> list[str]:
    """`a100:2` for each type of GPU. Of two numbers for one type the last counts."""
    counts = {gpu[1]: gpu[2] or "1" for gpu in gpus}
    return [count if kind is None else f"{kind}:{count}" for kind, count in counts.items()]


def _per_gpu(name: str, fact: str, value: str) -> str:
    """The number for each GPU in `gres:gpu:4`; memory is in MiB."""
    match = _GPUS.fullmatch(value)
    if match is None or match[2] is None:
        raise _unspelt(name, fact, value)
    return f"{match[2]}M" if fact == "MemPerTres" else match[2]


def _unspelt(name: str, fact: str, value: str) -> UserError:
    return UserError(
        f"job {name}: {fact}={value}: coach can request only GPUs again", "submit it by its own sbatch"
    )


def keep_script(file: Path, script: str) -> None:
    """Write a script that will be submitted, where only this user can change it. Raises OSError."""
    private_folder(file.parent)
    write_atomic(file, script)
