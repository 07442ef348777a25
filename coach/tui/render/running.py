"""Trainings that run, side by side: the loss and the speed of each in a small curve."""

from __future__ import annotations

from collections.abc import Sequence

from coach.model.slurm.cluster import Job
from coach.tui.render.curve import curve_lines
from coach.tui.render.run import loss_points, throughput_points
from coach.tui.render.text import BLANK, Line, clip, line, muted, pad, plural, printable, short_id, strong
from coach.tui.training import Training

_LEAST_WIDTH = 44
_BLOCK = 7
"""A line with the name, and the curve."""


def running_lines(shown: Sequence[tuple[Job, Training]], width: int, height: int) -> list[Line]:
    """As many as fit; a curve is at least 44 columns wide. Empty where there is no room or no training."""
    curved = [(job, training) for job, training in shown if len(training.glance.curve) > 1]
    num_columns = max(1, min(2 * len(curved), width // _LEAST_WIDTH))
    num_curves = 2 if num_columns >= 2 else 1
    across = max(1, min(len(curved), num_columns // num_curves))
    if num_curves == 2 and len(curved) > across * (height // _BLOCK):
        across, num_curves = num_columns, 1  # the loss of all says more than the speed of some
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


def _block(job: Job, training: Training, width: int, height: int, num_curves: int) -> list[Line]:
    """One training in exactly `width` × `height` cells."""
    told = line(" ", strong(short_id(job.job_id)), f" {printable(job.name)}")
    curve = training.glance.curve
    each = (width - 1) // num_curves
    loss = curve_lines("loss", loss_points(curve), each, height - 1)
    both = loss
    if num_curves == 2:
        rate = curve_lines(
            "throughput", throughput_points(curve), each, height - 1, "samples/s", starts_at_zero=True
        )
        both = [(*pad(one, each), *other) for one, other in zip(loss, rate, strict=True)]
    rows = [told, *both]
    rows += [BLANK] * (height - len(rows))
    return [pad(row, width) for row in rows[:height]]
