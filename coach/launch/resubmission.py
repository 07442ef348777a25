"""Builds the sbatch command that submits a job again, from Slurm's facts about the job. Pure.

The controller keeps a job's script, but not its command-line options. They are derived from the job's
properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.analysis.spelling.slurm import whole_minutes
from coach.launch.spelling import format_time, parse_mem_mib, parse_time
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, Step, Verb

_FACT = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)")
_LINE_FACT = re.compile(r"^ +(Command|WorkDir|StdOut|StdErr|Comment)=(.*)$", re.MULTILINE)
_UNSET = frozenset({"", "(null)", "N/A", "None", "UNLIMITED", "Unknown", "0", "*"})

_OPTIONS: tuple[tuple[str, str], ...] = (
    ("Partition", "partition"),
    ("Account", "account"),
    ("QOS", "qos"),
    ("Reservation", "reservation"),
    ("TimeLimit", "time"),
    ("NumNodes", "nodes"),
    ("NumTasks", "ntasks"),
    ("CPUs/Task", "cpus-per-task"),
    ("MinMemoryNode", "mem"),
    ("MinMemoryCPU", "mem-per-cpu"),
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
    return {name: value for name, value in facts.items() if value not in _UNSET}


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
    """For an array: the tasks to run again, `3,7`."""

    def value(self, option: str) -> str:
        """The value that the job has for one of CHANGEABLE; empty if it has none."""
        fact = next((fact for fact, name in _OPTIONS if name == option), "")
        return self.tasks if option == "array" else self.facts.get(fact, "")


CHANGEABLE = ("time", "mem", "exclude", "array")
"""Options of sbatch that a person may change when a job is submitted again."""
_NODES = re.compile(r"[\w.,\[\]-]{1,2000}", re.ASCII)
_TASKS = re.compile(r"[\d,:%-]{1,2000}", re.ASCII)


def submit_again(found: Resubmission, changes: Mapping[str, str] | None = None) -> JobAction:
    """The exact action. `changes`: option of CHANGEABLE → text; an empty text keeps the script's value.
    Raises UserError for a text that sbatch would refuse."""
    said = {option: _checked(option, text.strip()) for option, text in (changes or {}).items()}
    return JobAction(
        Verb.RESUBMIT,
        (Step(resubmit_command(found.facts, found.name, found.file, said), (found.job_id,)),),
        notes=found.notes,
        timeout_s=found.timeout_s,
        script=found.script,
        script_file=None if found.is_file_there else str(found.file),
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
    facts: Mapping[str, str], name: str, script: Path, changes: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The exact command; its options win over the script's. Raises UserError for a job without a script, or
    with resources that no option can ask for.

    sbatch takes memory per node or per CPU, not both: a changed memory per node replaces memory per CPU.
    """
    said = changes or {}
    if facts.get("BatchFlag") is None:
        raise UserError(f"job {name}: it has no script: it was not submitted by sbatch")
    options = [f"--job-name={name}"]
    if "WorkDir" in facts:
        options.append(f"--chdir={facts['WorkDir']}")
    for fact, option in _OPTIONS:
        value = said.get(option, facts.get(fact))
        if not value or (option == "mem-per-cpu" and said.get("mem")):
            continue
        if fact.startswith("Tres"):
            options += _gpu_option(name, fact, option, value)
        else:
            options.append(f"--{option}={value}")
    if facts.get("OverSubscribe") == "NO":
        options.append("--exclusive")
    if said.get("array"):
        options.append(f"--array={said['array']}")
    return ("sbatch", "--parsable", *options, str(script), *_arguments(facts))


def script_file(facts: Mapping[str, str]) -> Path | None:
    """The submitted file, as Slurm reports it. None for a script that came through a pipe, or from --wrap."""
    command = facts.get("Command", "")
    return Path(command.split()[0]) if command.startswith("/") else None


def _arguments(facts: Mapping[str, str]) -> list[str]:
    return facts.get("Command", "").split()[1:] if script_file(facts) else []


def _gpu_option(name: str, fact: str, option: str, value: str) -> list[str]:
    """`gres:gpu:a100:2` as the option for GPUs. Other resources use --gres, which counts per node. Raises
    UserError rather than drop a resource."""
    parts = [part for part in value.split(",") if _CPUS.fullmatch(part) is None]
    gpus = [match for part in parts if (match := _GPUS.fullmatch(part)) is not None]
    if len(gpus) == len(parts):
        counts = [f"{f'{match[1]}:' if match[1] else ''}{match[2] or 1}" for match in gpus]
        return [f"--{option}={','.join(counts)}"] if counts else []
    if option == "gpus-per-node":
        return [f"--gres={value.replace('gres:', '').replace('gres/', '')}"]
    raise UserError(
        f"job {name}: {fact}={value}: coach can request only GPUs again", "submit it by its own sbatch"
    )
