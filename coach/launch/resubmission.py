"""The sbatch that submits a job again, made of what Slurm tells about it. Pure.

A job's script is kept by the controller as it was submitted, but not the options beside it: they are made
again of what became of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from coach.model.errors import UserError

_FACT = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)")
_LINE_FACT = re.compile(r"^ +(Command|WorkDir|StdOut|StdErr|Comment)=(.*)$", re.MULTILINE)
_UNSET = frozenset({"", "(null)", "N/A", "None", "UNLIMITED", "Unknown", "0"})

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
    ("Features", "constraint"),
    ("ReqNodeList", "nodelist"),
    ("ExcNodeList", "exclude"),
    ("Licenses", "licenses"),
)
"""What `scontrol show job` calls it → the option that asks for it."""

_GPUS = re.compile(r"gres[:/]gpu(?::((?!\d+$)[\w.-]++))?[:=]?(\d++)?$")
_CPUS = re.compile(r"cpu[:=]\d+")
"""Newer versions tell the CPUs of a task there as well."""


def read_job(text: str) -> Mapping[str, str]:
    """The facts of `scontrol show job` about one job. The last of each counts: a name, which comes first, may
    look like any of them.

    So may the arguments of a script: lines that hold but one fact are taken whole.
    """
    facts = dict(_FACT.findall(_LINE_FACT.sub("", text)))
    facts.update(_LINE_FACT.findall(text))
    return {name: value for name, value in facts.items() if value not in _UNSET}


def resubmit_command(facts: Mapping[str, str], name: str, script: Path) -> tuple[str, ...]:
    """The exact command: options win over those of the script. Raises UserError for a job without a script,
    or whose resources it cannot ask for."""
    if facts.get("BatchFlag") is None:
        raise UserError(f"job {name}: it has no script: it was not submitted by sbatch")
    options = [f"--job-name={name}"]
    if "WorkDir" in facts:
        options.append(f"--chdir={facts['WorkDir']}")
    for fact, option in _OPTIONS:
        value = facts.get(fact)
        if value is None:
            continue
        if fact.startswith("Tres"):
            options += _gpu_option(name, fact, option, value)
        else:
            options.append(f"--{option}={value}")
    if facts.get("OverSubscribe") == "NO":
        options.append("--exclusive")
    return ("sbatch", "--parsable", *options, str(script), *_arguments(facts))


def script_file(facts: Mapping[str, str]) -> Path | None:
    """The file that was submitted, as Slurm tells it; None for a script that came through a pipe, or by
    --wrap."""
    command = facts.get("Command", "")
    return Path(command.split()[0]) if command.startswith("/") else None


def _arguments(facts: Mapping[str, str]) -> list[str]:
    return facts.get("Command", "").split()[1:] if script_file(facts) else []


def _gpu_option(name: str, fact: str, option: str, value: str) -> list[str]:
    """`gres:gpu:a100:2` as the option for GPUs; other resources by --gres, which is per node. Never a job
    without what it asked for."""
    parts = [part for part in value.split(",") if _CPUS.fullmatch(part) is None]
    gpus = [match for part in parts if (match := _GPUS.fullmatch(part)) is not None]
    if len(gpus) == len(parts):
        counts = [f"{f'{match[1]}:' if match[1] else ''}{match[2] or 1}" for match in gpus]
        return [f"--{option}={','.join(counts)}"] if counts else []
    if option == "gpus-per-node":
        return [f"--gres={value.replace('gres:', '').replace('gres/', '')}"]
    raise UserError(
        f"job {name}: {fact}={value}: only GPUs are asked for again so", "submit it by its own sbatch"
    )
