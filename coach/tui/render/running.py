"""Content for the space below a short queue: small curves of the loss and throughput of trainings, else the
newest runs, else recipes to launch; and the text of the first start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coach.lookback.history import throughput
from coach.model.slurm.cluster import Node, Partition
from coach.model.training.run import Run
from coach.render.severity import state_span
from coach.render.text import (
    BLANK,
    KeyLabel,
    Line,
    Span,
    age,
    clip,
    fit,
    line,
    line_width,
    muted,
    pad,
    plural,
    printable,
    short_id,
    strong,
    wrap,
)
from coach.tui.render.curve import curve_lines
from coach.tui.render.run import parameters_text
from coach.tui.render.table import Cell
from coach.tui.training import Training

if TYPE_CHECKING:
    from coach.workflows.watching.first_start import Here

_LEAST_WIDTH = 44
_BLOCK = 7
_NAME = 22
"""The width of a run's name in the list of the newest runs."""


def curve_blocks(shown: Sequence[tuple[Line, Training]], width: int, height: int) -> list[Line]:
    """As many curves as fit, each below its heading; a curve is at least 44 columns wide. Empty without a
    training, or if no curve fits."""
    curved = [(head, training) for head, training in shown if len(training.glance.curve) > 1]
    num_columns = max(1, min(2 * len(curved), width // _LEAST_WIDTH))
    num_curves = 2 if num_columns >= 2 else 1
    across = max(1, min(len(curved), num_columns // num_curves))
    if num_curves == 2 and len(curved) > across * (height // _BLOCK):
        # The loss of all trainings is more useful than the throughput of some.
        across, num_curves = num_columns, 1
    if not curved or height < _BLOCK:
        return []
    num_rows = min(-(-len(curved) // across), height // _BLOCK)
    block_height = height // num_rows
    block_width = width // min(across, len(curved))
    rows: list[Line] = []
    for start in range(0, num_rows * across, across):
        blocks = [
            _block(*each, block_width, block_height, num_curves) for each in curved[start : start + across]
        ]
        rows += [tuple(span for row in beside for span in row) for beside in zip(*blocks, strict=True)]
    left = len(curved) - num_rows * across
    if left > 0:
        rows[0] = (*clip(rows[0], width - 24), muted(f"  …and {plural(left, 'more training')}"))
    return rows


def heading(name: str, title: str, state: str | None, verdict: Cell | None) -> Line:
    """The heading of one training's curves: job id, name, state if it has ended, and its cause."""
    ended = (Span("  "), state_span(state)) if state is not None else ()
    found = (Span("  "), Span(verdict.text, verdict.tone)) if verdict is not None else ()
    return (*line(" ", strong(short_id(name)), f" {printable(title)}"), *ended, *found)


def run_lines(
    runs: Sequence[tuple[Run, str | None, Cell | None]], now_s: float, width: int, most: int
) -> list[Line]:
    """The newest runs, a line each: name, state, time, and the cause or else the parameters."""
    rows = []
    for run, state, verdict in runs[:most]:
        began_s = run.ended_time_s or run.started_time_s or run.created_time_s
        when = f"{age(now_s - began_s)} ago" if began_s is not None else ""
        told = (
            Span(verdict.text, verdict.tone)
            if verdict is not None
            else muted(parameters_text(run.parameters))
        )
        state_part = state_span(state)
        padding = Span(" " * max(1, 14 - line_width((state_part,))))
        row = line(
            " ",
            strong(fit(short_id(run.run_id), _NAME)),
            " ",
            state_part,
            padding,
            muted(f"{when:<12}"),
            told,
        )
        rows.append(clip(row, width))
    return rows


def launch_lines(keys: Sequence[tuple[str, str, str]], width: int) -> list[Line]:
    """The recipes that the digits launch: key, name and title of each."""
    return [
        clip(line(" ", Span(f"{key:>2}  ", "key"), strong(f"{name:<16}"), muted(printable(title))), width)
        for key, name, title in keys
    ]


def _block(head: Line, training: Training, width: int, height: int, num_curves: int) -> list[Line]:
    """One training in exactly `width` × `height` cells."""
    curve = training.glance.curve
    each = (width - 1) // num_curves
    by = curve[-1].counter.word if curve else "step"
    losses = [(point.step, point.loss) for point in curve]
    loss = curve_lines("loss", losses, each, height - 1, counted_by=by)
    both = loss
    if num_curves == 2:
        unit, speeds = throughput(curve)
        rates = [(point.step, speed) for point, speed in zip(curve, speeds, strict=True)]
        rate = curve_lines("throughput", rates, each, height - 1, unit, starts_at_zero=True, counted_by=by)
        both = [(*pad(one, each), *other) for one, other in zip(loss, rate, strict=True)]
    rows = [head, *both]
    rows += [BLANK] * (height - len(rows))
    return [pad(row, width) for row in rows[:height]]


def first_start_lines(
    here: Here,
    place: str,
    nodes: Sequence[Node],
    partitions: Sequence[Partition],
    label: KeyLabel,
    width: int,
    *,
    can_launch: bool = True,
) -> list[Line]:
    """The lines of the text: two on a terminal of 80 columns, seldom three."""
    facts = [place.replace(" · ", " ") if place.startswith("slurm") else _local(place)]
    facts += [_gpus(nodes), f"{plural(len(partitions), 'partition')}" if len(partitions) > 1 else ""]
    if here.environment is not None:
        facts.append(f"trains in {printable(here.environment)}")
    else:
        facts.append("PyTorch is here" if here.has_torch else "no PyTorch here: --env names an environment")
    if here.project is not None:
        facts.append(f"{printable(here.project)} names {plural(here.num_trainings, 'training')}")
    told = " · ".join(filter(None, facts))
    keys = [
        *([("1", "trains a small model")] if can_launch else []),
        (label("recipes"), "recipes"),
        *([(label("new_launch"), "launches yours")] if can_launch else []),
        (label("doctor"), "doctor"),
        (label("help"), "all keys"),
    ]
    spans: list[Span] = []
    for key, word in keys:
        spans += [muted(" · ") if spans else Span(" "), Span(key, "key"), Span(f" {word}")]
    rows = wrap(f"Here: {told}", max(20, width - 2))
    return [
        *(line(Span(f" {row}", "strong" if not index else "")) for index, row in enumerate(rows)),
        tuple(spans),
    ]


def _local(place: str) -> str:
    return f"no Slurm: this machine ({printable(place.rpartition(' · ')[2])})"


def _gpus(nodes: Sequence[Node]) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        for gpu in node.gpus:
            kind = printable(gpu.type) if gpu.type else "GPU"
            counts[kind] = counts.get(kind, 0) + gpu.total
    if not nodes:
        return ""
    most = sorted(counts.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{count:,} {kind}" for kind, count in most) or "no GPUs"
