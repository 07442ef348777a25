"""The plan of a launch: its fields, and what changing one of them asks for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from coach.launch.recipe_file import WORLD_SIZE
from coach.launch.refusal import Choice, Refused
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launch import LaunchRequest, Plan
from coach.tui.render.text import Line, Span, Tone, clip, clock, line, line_width, muted, printable, wrap

PARAMETER = "set."
LOCKED, REFUSED = "▪", "✖"
"""Signs before a field's label."""


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the plan. `name` is a field of the request, or `set.NAME` for a parameter of the recipe."""

    name: str
    label: str
    value: str
    lock: str | None = None
    """Why only the site may set it."""


_RANKS = ("num_nodes", "nproc_per_node")
"""What a sweep over the number of ranks decides for each of its runs."""

_WHOLE_NUMBERS: Mapping[str, int] = MappingProxyType(
    {"num_nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1, "cpus_per_task": 1, "cpus_per_gpu": 1}
)
"""Fields that are whole numbers, with the least each may be."""


def plan_fields(plan: Plan) -> tuple[Field, ...]:
    """What can be changed, as it stands: resources, the recipe's parameters, then what a site may demand of every launch."""
    resources = plan.resources
    fields = [
        Field("num_nodes", "nodes", str(resources.num_nodes)),
        Field("gpus_per_node", "GPUs per node", str(resources.gpus_per_node)),
        Field("nproc_per_node", "ranks per node", str(resources.nproc_per_node)),
        Field("cpus_per_task", "CPUs per task", str(resources.cpus_per_task)),
        Field(
            "time_limit_s",
            "time limit",
            "" if resources.time_limit_s is None else clock(resources.time_limit_s),
        ),
        Field("mem", "memory per node", resources.mem or ""),
    ]
    if plan.backend == "slurm":
        fields.append(Field("partition", "partition", resources.partition or ""))
    swept = _swept(plan)
    if swept is not None and swept[0] == WORLD_SIZE:
        fields = [field for field in fields if field.name not in _RANKS]
    if swept is not None:
        fields.append(Field(f"{PARAMETER}{swept[0]}", f"{swept[0]} (sweep)", swept[1]))
    fields.extend(
        Field(f"{PARAMETER}{name}", name, _editable(value))
        for name, value in plan.parameters.items()
        if swept is None or name != swept[0]
    )
    fields.append(Field("environment", "environment", plan.request.environment or ""))
    if plan.backend == "slurm":
        fields.extend(_site_fields(plan))
    return tuple(replace(field, lock=plan.locked.get(field.name)) for field in fields)


def _swept(plan: Plan) -> tuple[str, str] | None:
    """What a group goes over, and its values; None for a single run."""
    points = [each.request.sweep_point for each in (plan, *plan.others)]
    if points[0] is None:
        return None
    return points[0].parameter, ",".join(_editable(point.value) for point in points if point is not None)


def _site_fields(plan: Plan) -> list[Field]:
    resources = plan.resources
    sbatch = (f"{key}={value}" if value else key for key, value in plan.request.sbatch.items())
    return [
        Field("account", "account", resources.account or ""),
        Field("qos", "QOS", resources.qos or ""),
        Field("reservation", "reservation", resources.reservation or ""),
        Field("constraint", "constraint", resources.constraint or ""),
        Field("exclude", "exclude nodes", resources.exclude or ""),
        Field("gpu_type", "GPU type", resources.gpu_type or ""),
        Field("gpu_request", "GPU request", resources.gpu_request),
        Field("cpus_per_gpu", "CPUs per GPU", _editable(resources.cpus_per_gpu or "")),
        Field("sbatch", "more for sbatch", " ".join(map(shlex.quote, sbatch))),
    ]


def _editable(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def edited(request: LaunchRequest, name: str, text: str) -> LaunchRequest:
    """The request with one field changed; an empty text goes back to the default. Raises UserError for what is no number or time."""
    text = text.strip()
    if name.startswith(PARAMETER):
        parameters = dict(request.set)
        parameters.pop(name.removeprefix(PARAMETER), None)
        if text:
            parameters[name.removeprefix(PARAMETER)] = text
        return replace(request, set=MappingProxyType(parameters))
    value: int | str | None = text or None
    if text and name in _WHOLE_NUMBERS:
        least = _WHOLE_NUMBERS[name]
        if not text.isascii() or not text.isdigit() or int(text) < least:
            label = name.replace("_", " ")
            raise UserError(f"{label} = {printable(text)}: expected a whole number from {least}")
        value = int(text)
    elif text and name == "time_limit_s":
        value = parse_time(text, "time limit")
    elif name == "sbatch":
        return replace(request, sbatch=MappingProxyType(_sbatch_options(text)))
    changed: dict[str, Any] = {name: value}
    return replace(request, **changed)


def _sbatch_options(text: str) -> dict[str, str]:
    """`key=value key2='two words' flag`."""
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        raise UserError(
            f"more for sbatch: {printable(text)}: a quote is not closed",
            "expected for example comment=text mail-type=END",
        ) from None
    return {key.removeprefix("--"): value for key, _, value in pairs}


def answered(request: LaunchRequest, choice: Choice) -> LaunchRequest:
    """The request with one of a refusal's choices taken. What it takes out stays out, whatever the config says."""
    for name, text in choice.changes.items():
        request = edited(request, name, text) if text else replace(request, **{name: ""})  # type: ignore[arg-type]  # a name of a text field
    return request


def plan_heading(plan: Plan) -> Line:
    resources = plan.resources
    size = f"{resources.num_nodes} × {resources.nproc_per_node} = {resources.world_size}"
    word = "rank" if resources.world_size == 1 else "ranks"
    gpus = resources.num_nodes * resources.gpus_per_node
    device = f"{gpus} {'GPU' if gpus == 1 else 'GPUs'}" if gpus else "no GPU: CPU ranks"
    return line(
        Span(f" {printable(plan.title)}", "strong"),
        muted(f"   {plan.backend} · {size} {word} · {device}"),
    )


def plan_notes(plan: Plan, width: int) -> list[Line]:
    """Warnings, then what is locked, then notes, each wrapped."""
    rows: list[Line] = []
    for text in plan.warnings:
        rows.extend(_marked("▲", "warning", text, width))
    for field in plan_fields(plan):
        if field.lock is not None:
            rows.extend(_marked(LOCKED, "accent", f"{field.label} is the site's: {field.lock}", width))
    for text in plan.notes:
        rows.extend(_marked("·", "muted", text, width))
    return rows


def _marked(sign: str, tone: Tone, text: str, width: int) -> list[Line]:
    rows = wrap(printable(text), width - 5)
    return [
        line(Span(f" {sign if index == 0 else ' '} ", tone), Span(row, "" if tone == "muted" else tone))
        for index, row in enumerate(rows)
    ]


def error_lines(error: UserError, width: int) -> list[Line]:
    """A refusal whole: every line of Slurm's own words, then the hint."""
    rows: list[Line] = []
    for part in error.lines if isinstance(error, Refused) else error.message.splitlines() or [""]:
        for index, text in enumerate(wrap(printable(part), width - 5) or [""]):
            rows.append(
                line(Span(" ✖ " if index == 0 and not rows else "   ", "critical"), Span(text, "critical"))
            )
    if error.hint:
        rows.extend(line(f"   {text}") for text in wrap(printable(error.hint), width - 5))
    return rows


def refusal_lines(refused: Refused, label: str | None, width: int, max_lines: int) -> list[Line]:
    """Slurm's words, then the marked field and the ways to answer. `label` names the field, None when there is none to set."""
    asked = _answers(refused, label, width) if label is not None else [line(muted(" Esc leaves"))]
    words = error_lines(
        refused if label is None else Refused(refused.lines), width
    )  # the hint is for a command line
    room = max(1, max_lines - len(asked))
    if len(words) > room:
        words = [*words[: room - 1], line(muted(f"   … {len(words) - room + 1} more lines"))]
    return [*words, *asked]


def _answers(refused: Refused, label: str, width: int) -> list[Line]:
    named = Span(f" {label}: ", "strong")
    if not refused.choices:
        return [clip(line(named, "type it into the marked field", muted(" · Esc leaves")), width)]
    rows: list[list[Span]] = [[named]]
    for number, choice in enumerate(refused.choices, 1):
        offer = [Span(str(number), "key"), Span(f" {printable(choice.text)}  ")]
        if len(rows[-1]) > 1 and line_width((*rows[-1], *offer)) > width:
            rows.append([Span(" " * min(line_width((named,)), width // 4))])
        rows[-1] += offer
    said = muted("a digit picks, or type it · Esc leaves")
    if line_width((*rows[-1], said)) > width:
        rows.append([Span("   ")])
    rows[-1].append(said)
    return [clip(tuple(row), width) for row in rows]


def script_lines(script: str) -> list[Line]:
    """The exact script with line numbers; comments and options stand apart."""
    rows: list[Line] = []
    texts = script.splitlines()
    digits = len(str(len(texts)))
    for number, text in enumerate(texts, 1):
        shown = printable(text.replace("\t", "    "))
        tone: Tone = "accent" if text.startswith("#SBATCH") else "muted" if text.startswith("#") else ""
        rows.append(line(muted(f" {number:>{digits}}  "), Span(shown, tone)))
    return rows
