"""Explains a refused sbatch: Slurm's full message, the field of the launch to set, and the choices for it.
Pure.

A site adds its own text (job_submit.lua prints its author's words) above one of Slurm's standard sentences.
coach cannot know all of them, so the message is always shown in full. This module only finds the option that
it names, to lead the user to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan

MAX_CHOICES = 9
"""One digit key per choice."""

_MAX_LINES = 40
_PREFIX = re.compile(
    r"(?:(?<!\s)\s++)?(?:sbatch|srun|salloc):\s*+(?:(?:error|fatal|warning|info):\s*+)?", re.IGNORECASE
)
_LOST_ANSWER = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|Message receive failure|Insane message length",
    re.IGNORECASE,
)
_STANDARD_PREFIX = "Batch job submission failed: "
_GPUS = "gpu_type"
"""Stands for all parts of the request for GPUs until the missing part is known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer: texts to put into fields of the request. An empty text clears the field."""

    text: str
    changes: Mapping[str, str]


class Refused(UserError):
    """Slurm did not take a job, or coach does not submit one that cannot work. `lines` are the words of
    either. `field` is the field of the request to set, None if unknown."""

    def __init__(
        self,
        lines: Sequence[str],
        field: str | None = None,
        choices: Sequence[Choice] = (),
        hint: str | None = None,
        message: str | None = None,
    ) -> None:
        super().__init__(message or f"sbatch: {' '.join(map(sentence, lines))}".rstrip(";"), hint)
        self.lines = tuple(lines)
        self.field = field
        self.choices = tuple(choices)


def is_unanswered(lines: Sequence[str]) -> bool:
    """True if the controller may have taken the job although sbatch failed: its answer was lost on the
    way."""
    return any(_LOST_ANSWER.search(text) for text in lines)


def sentence(text: str) -> str:
    """The line, ended by punctuation, so that another sentence can follow."""
    return text if text.endswith((".", "!", "?", ":", ";")) else f"{text};"


def slurms_words(stderr: str) -> tuple[str, ...]:
    """The lines that sbatch printed, without the program's name before each."""
    lines = (" ".join(_PREFIX.sub("", line, count=1).split()) for line in stderr.splitlines())
    return tuple(line for line in lines if line)[:_MAX_LINES]


_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "account": r"--account\b|(?<!\S)-A\b",
        "reservation": r"--reservation\b",
        _GPUS: r"--gres\b|--gpus(?:-per-\w+)?\b|(?<!\S)-G\b|\bgpu:\w",
        "qos": r"--qos\b|(?<!\S)-q\b",
        "time_limit_s": r"--time\b|(?<!\S)-t\b",
        "mem": r"--mem(?:-per-\w+)?\b",
        "constraint": r"--constraint\b|(?<!\S)-C\b",
        "exclude": r"--exclude\b",
        "cpus_per_gpu": r"--cpus-per-gpu\b",
        "cpus_per_task": r"--cpus-per-task\b|(?<!\S)-c\b",
        "num_nodes": r"--nodes\b|(?<!\S)-N\b",
        "partition": r"--partition\b|(?<!\S)-p\b",
        "sbatch": (
            r"--(?!account|reservation|gres|gpus|qos|time\b|mem|constraint|exclude|cpus-per|nodes"
            r"|partition)[a-z][a-z-]+"
        ),
    }
)
"""Field → patterns that name its option in a site's words. A named option is the one to set."""

_NOUNS: Mapping[str, str] = MappingProxyType(
    {
        "account": r"\b(?:accounts?|projects?|allocation code)\b",
        "reservation": r"\breservations?\b",
        _GPUS: r"\bgres\b|\b(?:type|model|kind)s? of gpus?\b|\bgpu (?:type|model|kind)s?\b|\btyped\b",
        "qos": r"\bqos\b|\bquality of service\b",
        "time_limit_s": r"\b(?:time ?limit|wall ?time|wall ?clock|run ?time)\b",
        "mem": r"\bmemory\b",
        "constraint": r"\b(?:constraints?|features?)\b",
        "gpus_per_node": r"\bgpus?\b",
        "partition": r"\b(?:partitions?|queues?)\b",
    }
)
"""Field → nouns in a site's words, the most telling first: `partition` is often only the place of the
refusal."""

_SENTENCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"Job's account not permitted|Invalid account", ("account", "partition")),
    (r"Job's QOS not permitted|invalid qos", ("qos", "partition")),
    (r"reservation", ("reservation",)),
    (r"generic resource|\(gres\)|GRES option", (_GPUS,)),
    # This sentence itself speaks of time limits.
    (r"violates accounting/QOS policy", ("time_limit_s", "gpus_per_node", "num_nodes", "qos")),
    (r"Requested time limit is invalid|time limit", ("time_limit_s", "partition", "qos")),
    (r"(?:QOS|Assoc)\w*Wall", ("time_limit_s", "qos")),
    (r"(?:QOS|Assoc)\w*GRES", ("gpus_per_node", "num_nodes", "qos")),
    (r"(?:QOS|Assoc)\w*Cpu", ("cpus_per_task", "num_nodes", "qos")),
    (r"(?:QOS|Assoc)\w*Mem", ("mem", "num_nodes", "qos")),
    (r"(?:QOS|Assoc)\w*Node", ("num_nodes", "qos")),
    (r"(?:QOS|Assoc)\w*(?:Submit|Jobs)", ("qos",)),
    (r"Invalid feature|feature specification", ("constraint",)),
    (r"Memory (?:required|specification)", ("mem",)),
    (r"Invalid node name", ("exclude",)),
    (r"CPU count|More processors requested", ("cpus_per_task", "num_nodes")),
    (r"Node count specification", ("num_nodes",)),
    (r"partition not available|partition configuration not available", ("partition",)),
    (
        r"partition|group not permitted|Access/permission denied",
        ("partition", "account"),
    ),
    (r"license|wckey|burst buffer|unrecognized option|invalid option", ("sbatch",)),
)
"""Slurm's standard sentences → fields, the most likely first. The first matching sentence decides."""

_NO_CONFIGURATION = re.compile(r"node configuration is not available", re.IGNORECASE)
_ASKED = (
    *("constraint", "exclude", "reservation", "mem", _GPUS, "cpus_per_gpu", "cpus_per_task"),
    *("gpus_per_node", "num_nodes", "partition"),
)
"""Fields that may exclude all nodes, the rarest first."""


def fields_in_question(lines: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Fields of the request that a refusal may concern, the most likely first; empty if it names none."""
    own, standard = _apart(lines)
    found = _fields_in_words(own)
    for text in standard:
        if _NO_CONFIGURATION.search(text):
            found += [field for field in _ASKED if _was_asked(plan, field)]
        found += next((names for pattern, names in _SENTENCES if re.search(pattern, text, re.I)), ())
    if plan.backend != "slurm":
        return ()
    return tuple(dict.fromkeys(_part_of_gpus(plan) if field == _GPUS else field for field in found))


def _fields_in_words(own: Sequence[str]) -> list[str]:
    """The fields that a site's own words name, the most likely first."""
    found = [field for text in own for field in _named(_OPTIONS, text)]
    # In `use one of these partitions: cpu, gpu`, gpu is a name.
    found += [field for text in own for field in _NOUNS if any(_real(_in_lists(field, text)))]
    return found + [field for text in own for field in _named(_NOUNS, text)]


def explain(
    lines: Sequence[str], plan: Plan, names: Sequence[str], known: Mapping[str, Sequence[str]]
) -> Refused:
    """The refusal with the most likely field to set, and the ways to answer. `known`: field → the values that
    Slurm listed, if asked."""
    field = next((name for name in names if name not in plan.locked), None)
    if field is None:
        locked = [f"{option_of(name)} is locked by the site: {plan.locked[name]}" for name in names]
        return Refused(lines, hint=locked[0] if locked else None)
    choices = _choices(field, lines, plan, known.get(field) or plan.choices.get(field, ()))
    return Refused(lines, field, choices, hint_of(field, choices))


def option_of(field: str) -> str:
    """The option of `coach launch` that sets a field."""
    names = {
        "num_nodes": "--nodes",
        "gpus_per_node": "--gpus",
        "time_limit_s": "--time",
        "environment": "--env",
    }
    return names.get(field, f"--{field.replace('_', '-')}")


def field_named(error: UserError) -> str | None:
    """The field with the option that coach's own refusal names, in its message or else in its hint."""
    named = {option_of(item.name): item.name for item in fields(LaunchRequest) if item.name != "env"}
    options = re.findall(r"--[a-z][a-z-]+", f"{error.message} {error.hint or ''}")
    return next((named[option] for option in options if option in named), None)


def _apart(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines in two parts: the site's own words, and Slurm's standard sentences."""
    own: list[str] = []
    standard: list[str] = []
    for text in lines:
        is_slurms = text.startswith(_STANDARD_PREFIX) or re.match(
            r"unrecognized option|invalid option|Memory specification|CPU count|Job's (?:account|QOS) not|"
            r"invalid partition specified|(?:QOS|Assoc)[A-Z]\w+\b",
            text,
        )
        (standard if is_slurms else own).append(text.removeprefix(_STANDARD_PREFIX))
    return own, standard


def _named(patterns: Mapping[str, str], text: str) -> list[str]:
    return [field for field, pattern in patterns.items() if re.search(pattern, text, re.IGNORECASE)]


def _was_asked(plan: Plan, field: str) -> bool:
    if field in ("cpus_per_task", "gpus_per_node", "num_nodes", "partition"):
        return True
    if field == _GPUS:
        return plan.resources.gpu_type is not None
    return getattr(plan.resources, field) is not None


def _part_of_gpus(plan: Plan) -> str:
    """The missing part of the request for GPUs: their number, their type, or their spelling."""
    if plan.resources.gpus_per_node == 0:
        return "gpus_per_node"
    if plan.resources.gpu_type is None or plan.resources.gpu_request == "gres":
        return "gpu_type"
    return "gpu_request"


def _choices(field: str, lines: Sequence[str], plan: Plan, known: Sequence[str]) -> tuple[Choice, ...]:
    text = " ".join(_apart(lines)[0])
    now = getattr(plan.resources, field, None)
    if field == "gpu_request":
        return (Choice("gres", MappingProxyType({field: "gres"})),)
    if known:
        mentioned = [name for name in known if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
        names = list(dict.fromkeys((*mentioned, *known)))
    else:
        names = _said(field, lines)
    more = {"gpu_request": "gres"} if field == "gpu_type" and "--gres" in text else {}
    choices = [
        Choice(name, MappingProxyType({field: name, **more}))
        for name in names
        if name != now or (more and plan.resources.gpu_request != "gres")
    ]
    if now and field in ("reservation", "qos", "constraint", "exclude"):
        choices = [*choices[: MAX_CHOICES - 1], Choice("none", MappingProxyType({field: ""}))]
    return tuple(choices[:MAX_CHOICES])


_NAME = r"[A-Za-z0-9][\w.@+-]{0,63}"
_SPELT: Mapping[str, str] = MappingProxyType(
    {
        "account": rf"(?:--account[= ]|(?<!\S)-A ?)({_NAME})",
        "reservation": rf"--reservation[= ]({_NAME})",
        "qos": rf"(?:--qos[= ]|(?<!\S)-q ?)({_NAME})",
        "partition": rf"(?:--partition[= ]|(?<!\S)-p ?)({_NAME})",
        "constraint": rf"(?:--constraint[= ]|(?<!\S)-C ?)({_NAME})",
        "gpu_type": rf"gpu:({_NAME}):\d",
        "time_limit_s": r"(?:--time[= ]|(?<!\S)-t ?)([\d:-]+)",
        "mem": r"--mem[= ](\d+[KMGT]?)\b",
    }
)
_LISTED = re.compile(rf"\s*['\"\[(]*({_NAME})['\"\])]*\s*(,|/|\bor\b|\band\b|[.;)\]]|$)", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"(?:your|my|some|the)(?:[_-]\w+)?|"
    r"(?:your|my|the)?[_-]?(?:account|project|reservation|partition|qos)s?(?:[_-]?(?:name|id|code))?|"
    r"name|type|model|code|none|null|invalid|missing|required|unknown|n|x+",
    re.IGNORECASE,
)
"""Words that stand in a name's place but are no name: `--account=YOUR_ACCOUNT`, `account: missing`."""


def _said(field: str, lines: Sequence[str]) -> list[str]:
    """Values that the message offers: in spelt-out options, or in lists such as `your accounts: lab,
    teaching`."""
    own, standard = _apart(lines)
    found: list[str] = []
    for text in standard:
        if match := re.search(r"allows (\S+) not", text):
            found += match.group(1).split(",")
    for text in own:
        if field in _SPELT:
            found += re.findall(_SPELT[field], text)
        if field in _NOUNS:
            found += _in_lists(field, text)
    return list(_real(dict.fromkeys(found)))


def _real(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if not _PLACEHOLDER.fullmatch(name))


def _in_lists(field: str, text: str) -> Iterator[str]:
    """The names in lists that follow the field's noun."""
    for match in re.finditer(rf"(?:{_NOUNS[field]})[^:=.]{{0,30}}?(?::|\bare\b|\bone of\b)", text, re.I):
        yield from _listed(text[match.end() :])


def _listed(text: str) -> Iterable[str]:
    """The names in `a, b or c`, up to the first part that is not a single name."""
    at = 0
    while match := _LISTED.match(text, at):
        yield match.group(1).rstrip(".")
        if match.group(2).lower() not in (",", "/", "or", "and"):
            return
        at = match.end()


def hint_of(field: str, choices: Sequence[Choice]) -> str:
    """The options with which `coach launch` takes the choices."""
    if not choices:
        return f"set it with {option_of(field)}" if field != "sbatch" else "look at --sbatch"
    first, *others = choices
    spelt = " ".join(f"{option_of(name)}={value}" for name, value in first.changes.items() if value)
    first_way = f"try {spelt}" if spelt else f"leave out {option_of(field)}"
    return first_way + (f", or {', '.join(choice.text for choice in others)}" if others else "")
