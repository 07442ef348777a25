"""Describe a training of several segments in words: a line for each, with the work lost between two."""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.spelling.slurm import format_time
from coach.model.training.run import Segment


def segment_words(segments: Sequence[Segment]) -> tuple[str, ...]:
    """A line for each segment, oldest first; the first line says how many there are. Empty without any.

    The texts are run.json's: harmless only once they are made printable.
    """
    if not segments:
        return ()
    lost_s = sum(each.lost_s or 0.0 for each in segments)
    total = f"one training in {len(segments)} segment{'' if len(segments) == 1 else 's'}"
    lost = f"; {format_time(round(lost_s))} were lost after checkpoints" if lost_s >= 1 else ""
    return (total + lost, *(_words(number, each) for number, each in enumerate(segments, 1)))


def _words(number: int, segment: Segment) -> str:
    parts = [f"segment {number}"]
    if segment.start_time_s is not None and segment.end_time_s is not None:
        parts.append(format_time(max(0, round(segment.end_time_s - segment.start_time_s))))
    if segment.nodes:
        parts.append(f"on {segment.nodes}")
    if segment.resumed_from:
        parts.append(f"from {segment.resumed_from}")
    if segment.end_time_s is not None:
        parts.append(f"ended: {segment.why or 'not known why'}")
        if segment.refusal:
            parts.append(f"no further segment: {segment.refusal}")
        if segment.checkpoint:
            lost = "" if segment.lost_s is None else f", {segment.lost_s:.0f} s before its end"
            parts.append(f"left {segment.checkpoint}{lost}")
    return ", ".join(parts)
