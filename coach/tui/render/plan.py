"""The plan of a launch: its fields, and what changing one of them asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launch import LaunchRequest, Plan
from coach.tui.render.text import Line, Span, Tone, clock, line, muted, printable, wrap

PARAMETER = "set."


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the plan. `name` is a field of the request, or `set.NAME` for a parameter of the recipe."""

    name: str
    label: str
    value: str


_WHOLE_NUMBERS: Mapping[str, int] = MappingProxyType(
    {"num_nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1, "cpus_per_task": 1}
)
"""Fields that are whole numbers, with the least each may be."""


def plan_fields(plan: Plan) -> tuple[Field, ...]:
    """What can be changed, as it stands: resources first, then the recipe's parameters."""
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
    fields.extend(
        Field(f"{PARAMETER}{name}", name, _editable(value)) for name, value in plan.parameters.items()
    )
    return tuple(fields)


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
    changed: dict[str, Any] = {name: value}
    return replace(request, **changed)


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
    """Warnings before notes, each wrapped."""
    rows: list[Line] = []
    for text in plan.warnings:
        rows.extend(_marked("▲", "warning", text, width))
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
    for part in error.message.splitlines() or [""]:
        for index, text in enumerate(wrap(printable(part), width - 5) or [""]):
            rows.append(
                line(Span(" ✖ " if index == 0 and not rows else "   ", "critical"), Span(text, "critical"))
            )
    if error.hint:
        rows.extend(line(f"   {text}") for text in wrap(printable(error.hint), width - 5))
    return rows


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
