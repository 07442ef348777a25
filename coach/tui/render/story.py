"""The captions of the demo: one line with a description and the key that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coach.render.text import KeyLabel, Line, Span, clip, line, line_width, muted, pad, printable


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption. `{it}` stands for its job; in a hint, `{id}` stands for the key with this id."""

    seen: str
    on_first: str
    """The hint on the first screen."""
    on_job: str = ""
    """The hint on the screen of its job."""


CAPTIONS: dict[str, Caption] = {
    "cluster": Caption("a cluster at work", "{explain} explains the row under the cursor"),
    "healthy": Caption("{it} trains well", "{open} on its row: its curve", "{gpus} shows its busy GPU"),
    "input": Caption("{it} waits for its data", "{open} on its row says why", "{gpus} shows its idle GPUs"),
    "nan": Caption("{it}: loss is NaN", "{open} on its row: proof, fix", "{open} lists the findings"),
    "fix": Caption(
        "{it} has the fix",
        "{open} on its row opens it",
        "its loss falls",
    ),
    "proof": Caption(
        "{it} ended well",
        "{compare} on its row: what the fix did",
        "{compare} shows what the fix did",
    ),
}
_WAYS = (("story_next", "next"), ("story_previous", "before"), ("back", "ends the story"))


def caption_line(
    name: str, number: int, count: int, it: str, place: str, label: KeyLabel, width: int
) -> Line:
    """`place` is `first`, `job` (the screen of its job) or another. If there is no room, the last of the
    demo's keys are left out."""
    caption = CAPTIONS.get(name)
    seen = caption.seen.format(it=printable(it)) if caption is not None else printable(name)
    hint = _hint(caption, place, label) if caption is not None else ""
    left = line(Span(f" {number}/{count} ", "accent"), muted(f"{seen} · {hint}" if hint else seen))
    ways = _WAYS if place == "first" else _WAYS[:2]
    for num_shown in range(len(ways), 0, -1):
        right = _ways_line(ways[:num_shown], label)
        if line_width(left) + line_width(right) <= width:
            return (*pad(left, width - line_width(right)), *right)
    return clip(left, width)


def _hint(caption: Caption, place: str, label: KeyLabel) -> str:
    template = {"first": caption.on_first, "job": caption.on_job}.get(place, "")
    return template.format(**{key_id: label(key_id) for key_id in ("open", "explain", "gpus", "compare")})


def _ways_line(ways: Sequence[tuple[str, str]], label: KeyLabel) -> Line:
    spans: list[Span] = []
    for key_id, word in ways:
        spans += [muted("  "), Span(label(key_id), "key"), muted(f" {word}")]
    return (*spans, muted(" "))
