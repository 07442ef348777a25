"""The plan of a launch: its fields, and the request after a field is edited."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from coach.launch.meanings import resource_meanings
from coach.launch.recipe_file import WORLD_SIZE
from coach.launch.refusal import Choice, Refused, option_of
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launching.ladder import RUNG
from coach.model.launching.launch import LaunchRequest, Plan, Resources, SweepPoint
from coach.render.text import (
    Line,
    Span,
    Tone,
    clip,
    clock,
    line,
    line_width,
    muted,
    plural,
    printable,
    whole_words,
    wrap,
)
from coach.tui.render.error import error_lines

PARAMETER = "set."
LOCKED, REFUSED = "▪", "✖"
"""Signs before a field's label."""
_LEAST_TITLE = 12
_OPTION = re.compile(r"--[a-z][a-z-]{0,40}")


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the plan. `name` is a field of the request, or `set.NAME` for a parameter of the recipe."""

    name: str
    label: str
    value: str
    lock: str | None = None
    """Why only the site may set the field; None if the user may."""
    meaning: str = ""
    """One sentence with unit, limits and default."""


_RANKS = ("num_nodes", "nproc_per_node")
"""The fields that a sweep over the number of ranks, and a ladder, set for each run."""

_WHOLE_NUMBERS: Mapping[str, int] = MappingProxyType(
    {"num_nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1, "cpus_per_task": 1, "cpus_per_gpu": 1}
)
"""Integer fields, each with its least value."""


_SIZES: Mapping[str, str] = MappingProxyType(
    {
        "num_nodes": "nodes",
        "gpus_per_node": "GPUs per node",
        "nproc_per_node": "ranks per node",
        "cpus_per_task": "CPUs per task",
        "time_limit_s": "time limit",
        "mem": "memory per node",
    }
)
_OF_SLURM: Mapping[str, str] = MappingProxyType(
    {
        "account": "account",
        "qos": "QOS",
        "reservation": "reservation",
        "constraint": "constraint",
        "exclude": "exclude nodes",
        "gpu_type": "GPU type",
        "gpu_request": "GPU request",
        "cpus_per_gpu": "CPUs per GPU",
    }
)
"""Fields → labels: the size of the launch, and the options that a site may require."""


def plan_fields(plan: Plan) -> tuple[Field, ...]:
    """The fields that the user can change, with their values: sizes, the recipe's parameters, then the
    options that a site may require. The parameters of an own program come first: no other form has them."""
    fields = _fields(plan.resources, plan.request, plan.parameters, plan.backend == "slurm")
    if plan.request.own is not None:
        fields.sort(key=lambda field: not field.name.startswith(PARAMETER))
    if plan.request.sweep:
        fields = [_swept(field, plan.request.sweep) for field in fields]
    else:
        fields = _with_sweep(fields, [each.request.sweep_point for each in (plan, *plan.others)])
    return tuple(
        replace(
            field,
            lock=plan.locked.get(field.name),
            meaning=printable(plan.meanings.get(field.name.removeprefix(PARAMETER), "")),
        )
        for field in fields
    )


def _swept(field: Field, sweep: Mapping[str, str]) -> Field:
    """The field of a parameter with the text that gives it several values."""
    text = sweep.get(field.name.removeprefix(PARAMETER)) if field.name.startswith(PARAMETER) else None
    return field if text is None else replace(field, label=f"{field.label} (sweep)", value=text)


def _with_sweep(fields: list[Field], points: Sequence[SweepPoint | None]) -> list[Field]:
    """Replace the field that a sweep varies by its list of values, and leave out the values that the sweep
    sets for each run."""
    first = points[0]
    if first is None:
        return fields
    values = ",".join(_editable(point.value) for point in points if point is not None)
    swept = Field(f"{PARAMETER}{first.parameter}", f"{first.parameter} (sweep)", values)
    kept = fields
    if first.parameter in (WORLD_SIZE, RUNG):
        kept = [
            replace(field, value="") if field.name == "gpus_per_node" and field.value != "0" else field
            for field in fields
            if field.name not in _RANKS
        ]
    if swept.name in (field.name for field in kept):
        return [swept if field.name == swept.name else field for field in kept]
    at = next((i for i, field in enumerate(kept) if field.name.startswith(PARAMETER)), len(kept))
    return [*kept[:at], swept, *kept[at:]]


def draft_fields(request: LaunchRequest) -> tuple[Field, ...]:
    """The fields that the user can change if no plan can be made: the given values, and empty fields for the
    rest."""
    meanings = resource_meanings(None)
    fields = _fields(request, request, {}, request.backend != "local")
    return tuple(replace(field, meaning=meanings.get(field.name, "")) for field in fields)


def _fields(
    values: Resources | LaunchRequest, request: LaunchRequest, parameters: Mapping[str, Any], is_slurm: bool
) -> list[Field]:
    labels = {**_SIZES, "partition": "partition"} if is_slurm else _SIZES
    fields = [Field(name, label, _shown(name, getattr(values, name))) for name, label in labels.items()]
    fields += [Field(f"{PARAMETER}{name}", name, _editable(value)) for name, value in parameters.items()]
    in_it = (None, "none")
    named = request.python if request.environment in in_it and request.python else request.environment
    fields.append(Field("environment", "environment", named or ""))
    if values.gpus_per_node != 0:
        fields.append(Field("has_gpm", "GPM counters", _shown("has_gpm", request.has_gpm)))
    if is_slurm:
        sbatch = (f"{key}={value}" if value else key for key, value in request.sbatch.items())
        fields += [
            Field(name, label, _shown(name, getattr(values, name))) for name, label in _OF_SLURM.items()
        ]
        fields.append(Field("sbatch", "more for sbatch", " ".join(map(shlex.quote, sbatch))))
    return fields


def _shown(name: str, value: object) -> str:
    if value is None:
        return ""
    return clock(value) if name == "time_limit_s" and isinstance(value, int) else _editable(value)


def _editable(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def edited(request: LaunchRequest, name: str, text: str) -> LaunchRequest:
    """The request with one field changed; an empty text restores the default. Raises UserError if the text is
    not a valid number or time."""
    text = text.strip()
    if name.startswith(PARAMETER):
        return _with_parameter(request, name.removeprefix(PARAMETER), text)
    value: int | str | None = text or None
    if text and name in _WHOLE_NUMBERS:
        least = _WHOLE_NUMBERS[name]
        if not text.isascii() or not text.isdigit() or int(text) < least:
            label = {**_SIZES, **_OF_SLURM}[name]
            raise UserError(f"{label} = {printable(text)}: expected a whole number from {least}")
        value = int(text)
    elif text and name == "time_limit_s":
        value = parse_time(text, "time limit")
    elif text and name == "has_gpm":
        if text not in ("true", "false"):
            raise UserError(f"GPM counters = {printable(text)}: expected true or false")
        value = text == "true"
    elif name == "environment":
        return _in_environment(request, text)
    elif name == "sbatch":
        return replace(request, sbatch=MappingProxyType(_sbatch_options(text)))
    changed: dict[str, Any] = {name: value}
    return replace(request, **changed)


def _in_environment(request: LaunchRequest, text: str) -> LaunchRequest:
    """The request with the environment that is named as `--env` takes it, or by the path of its Python."""
    is_path = "/" in text and "=" not in text
    return replace(request, environment="none" if is_path else text or None, python=text if is_path else None)


def _with_parameter(request: LaunchRequest, name: str, text: str) -> LaunchRequest:
    """The request with this text, one value or several, for a parameter; an empty one restores the
    default."""
    parameters, sweep = dict(request.set), dict(request.sweep)
    for known in (parameters, sweep):
        known.pop(name, None)
    if text:
        parameters[name] = text
    return replace(request, set=MappingProxyType(parameters), sweep=MappingProxyType(sweep))


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
    """The request after the user takes one of a refusal's choices. A removed option stays removed, even if
    the config sets it."""
    for name, text in choice.changes.items():
        removed: dict[str, Any] = {name: ""}
        request = edited(request, name, text) if text else replace(request, **removed)
    return request


def plan_heading(plan: Plan, width: int) -> Line:
    """The title and the size of the launch. On a narrow terminal the title is cut, not the size."""
    facts = f"   {plan.backend} · {_size_words([each.resources for each in (plan, *plan.others)])}"
    title = whole_words(printable(plan.title), max(_LEAST_TITLE, width - 1 - len(facts)))
    return clip(line(Span(f" {title}", "strong"), muted(facts)), width)


def _size_words(runs: Sequence[Resources]) -> str:
    """Ranks and GPUs of a launch, or of all its runs: a sweep over the number of ranks has runs of several
    sizes."""
    ranks = sorted({each.world_size for each in runs})
    gpus = sorted({each.num_nodes * each.gpus_per_node for each in runs})
    device = "no GPU: CPU ranks" if gpus[-1] == 0 else _span_words(gpus, "GPU")
    if len({(each.num_nodes, each.nproc_per_node) for each in runs}) > 1:
        return f"{len(runs)} runs of {_span_words(ranks, 'rank')} · {device}"
    several = f"{len(runs)} runs, each " if len(runs) > 1 else ""
    size = f"{runs[0].num_nodes} × {runs[0].nproc_per_node} = "
    return f"{several}{size}{_span_words(ranks, 'rank')} · {device}"


def _span_words(counts: Sequence[int], noun: str) -> str:
    """`1 rank`, or `1 to 8 ranks`. `counts` are sorted."""
    return plural(counts[0], noun) if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {noun}s"


def what_is_submitted(plan: Plan | None) -> str:
    """What the key that confirms does."""
    if plan is None or not plan.others:
        return "submits exactly this script"
    return f"submits exactly these {1 + len(plan.others)} runs"


def plan_notes(plan: Plan, width: int) -> list[Line]:
    """Warnings, then locked fields, then notes, each wrapped."""
    rows: list[Line] = []
    for text in plan.warnings:
        rows.extend(_marked("▲", "warning", _in_labels(text), width))
    for field in plan_fields(plan):
        if field.lock is not None:
            rows.extend(_marked(LOCKED, "accent", f"{field.label} is the site's: {field.lock}", width))
    for text in plan.notes:
        rows.extend(_marked("·", "muted", _in_labels(text), width))
    return rows


def _marked(sign: str, tone: Tone, text: str, width: int) -> list[Line]:
    rows = wrap(printable(text), width - 5)
    return [
        line(Span(f" {sign if index == 0 else ' '} ", tone), Span(row, "" if tone == "muted" else tone))
        for index, row in enumerate(rows)
    ]


def refusal_lines(refused: Refused, label: str | None, width: int, max_lines: int) -> list[Line]:
    """Slurm's message, then the marked field and the choices. `label` names the field; None if there is no
    field to set."""
    asked = (
        _answers(refused, label, width)
        if label is not None
        else [line(muted(" change the plan, or Esc leaves"))]
    )
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


def in_words_of_the_form(error: UserError) -> UserError:
    """coach's own error, with the labels of the fields in place of the command line's options."""
    if isinstance(error, Refused):
        return error
    hint = _in_labels(error.hint) if error.hint else error.hint
    return UserError(_in_labels(error.message), hint, diff=error.diff)


def _in_labels(text: str) -> str:
    labels = {**_SIZES, **_OF_SLURM, "partition": "partition", "environment": "environment"}
    names = {option_of(name): label for name, label in labels.items()}
    names["--sbatch"] = "more for sbatch"
    names["--random"] = "coach launch --random"
    return _OPTION.sub(
        lambda found: names.get(found[0], found[0].lstrip("-")),
        text.replace("--set ", "").replace("--sweep ", ""),
    )


def script_lines(script: str, *, is_stale: bool = False) -> list[Line]:
    """The exact script with line numbers. Comments and options have their own tones. A stale script, which is
    being made again, is dimmed."""
    rows: list[Line] = []
    texts = script.splitlines()
    digits = len(str(len(texts)))
    for number, text in enumerate(texts, 1):
        shown = printable(text.replace("\t", "    "))
        is_muted = is_stale or (text.startswith("#") and not text.startswith("#SBATCH"))
        tone: Tone = "muted" if is_muted else "accent" if text.startswith("#SBATCH") else ""
        rows.append(line(muted(f" {number:>{digits}}  "), Span(shown, tone)))
    return rows
