"""What a job loses when it is ended now: all since its newest complete checkpoint. Pure.

A checkpoint that is torn is said to be torn: who counts on it loses more.
"""

from __future__ import annotations

from coach.analysis.spelling.slurm import format_time
from coach.model.training.checkpoint_files import Saved, SavedFound

_HOUR_S = 3600.0


def lost_lines(
    found: SavedFound, start_s: float | None, num_gpus: int | None, now_s: float
) -> tuple[str, ...]:
    """What is lost of a job that began at `start_s` with so many GPUs, and which checkpoints cannot be counted on."""
    if found.problem is not None:
        return (f"whether a checkpoint is there is not known: {found.directory}: {found.problem}",)
    torn = tuple(f"torn: {_named(each, found)}: {each.torn}" for each in found.torn)
    newest = found.newest
    since_s = start_s if newest is None else max(newest.time_s, start_s or 0.0)
    cost = _cost(since_s, num_gpus, now_s)
    if newest is not None:
        old = format_time(max(0, round(now_s - newest.time_s)))
        if newest.time_s != since_s:  # it was put back into the queue since
            return (
                f"lost: {cost} since it began again from {_named(newest, found)}, the newest complete checkpoint, {old} old",
                *torn,
            )
        return (
            f"lost: {cost} since the newest complete checkpoint, {_named(newest, found)}, {old} old",
            *torn,
        )
    where = found.directory if found.is_whole else f"what was looked at of {found.directory}"
    return (f"lost: {cost}: no complete checkpoint of its time was found in {where}", *torn)


def _named(saved: Saved, found: SavedFound) -> str:
    """By its place in the directory: the whole path would push all else off a narrow screen."""
    step = "" if saved.step is None else f", step {saved.step}"
    return f"{saved.path.removeprefix(f'{found.directory}/')} ({saved.made_by}{step})"


def _cost(since_s: float | None, num_gpus: int | None, now_s: float) -> str:
    if since_s is None:
        return "all its work"
    seconds = max(0.0, now_s - since_s)
    if num_gpus:
        return f"{num_gpus * seconds / _HOUR_S:.1f} GPU-hours"
    return f"{format_time(round(seconds))} of work"
