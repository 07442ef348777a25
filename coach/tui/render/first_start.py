"""The text of the first start: the resources here, and the next key. It asks Slurm nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coach.model.slurm.cluster import Node, Partition
from coach.tui.render.text import KeyLabel, Line, Span, line, muted, plural, printable, wrap

if TYPE_CHECKING:
    from coach.workflows.watching.first_start import Here


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
