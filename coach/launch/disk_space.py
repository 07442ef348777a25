"""Checks that the places to which a run writes have enough room. The plan shows the result. Pure.

A warning before the launch can save a run that would end after hours with "No space left on device". The
need is an estimate, so too little room for it gives only a warning. A launch is refused only if a place has
no room for its logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coach.analysis.spelling.sizes import format_bytes
from coach.model.errors import UserError
from coach.sources.machine.disk import Space
from coach.sources.machine.quota import Quota

MIN_LEFT_BYTES, MIN_LEFT_FILES = 50 * 10**6, 100
"""Below this not even logs, metrics and one small checkpoint fit."""
LOW_BYTES = 10**9
LOW_SHARE, AMPLE_BYTES = 0.05, 50 * 10**9
"""A smaller free share is low, unless at least AMPLE_BYTES are free: 4 % of a petabyte is plenty."""

GENERATED_DATA_BYTES = 38 * 10**6
"""12,000 images of 32x32 pixels in the files of CIFAR-10."""
_CHECKPOINTS_AT_ONCE = 3
"""A run keeps two checkpoints while it writes the next one."""


@dataclass(frozen=True, slots=True)
class Room:
    """A place to which a launch writes, its free space and the expected use."""

    path: str
    key: str
    """The config key that sets it."""
    space: Space | None
    quota: Quota | None
    needs: Mapping[str, int | None]
    """Kind of content → its estimated bytes; None if there is no estimate."""


def checkpoint_bytes(parameters: Mapping[str, Any]) -> int | None:
    """Bytes of all checkpoints that a run has at once. Known for recipes that train the model with a `width`
    or a whole language model; else None."""
    num_of_gpt = _parameters_of_gpt(parameters)
    if num_of_gpt is not None:
        return _CHECKPOINTS_AT_ONCE * 3 * 4 * num_of_gpt
    width = parameters.get("width")
    if not isinstance(width, int) or width <= 0:
        return None
    channels = (3, width, 2 * width, 4 * width)
    convolutions = sum(9 * before * after + 3 * after for before, after in pairwise(channels))
    hidden = 8 * width
    num_parameters = convolutions + (16 * channels[-1] + 1) * hidden + (hidden + 1) * 10
    # Each average that the optimizer keeps is as large as the model.
    copies = 3 if parameters.get("optimizer") == "adamw" else 2
    return _CHECKPOINTS_AT_ONCE * copies * 4 * num_parameters


def reads_images(parameters: Mapping[str, Any]) -> bool:
    """True unless the parameters are those of a model that reads text."""
    return parameters.get("model") != "gpt" and "heads" not in parameters


def _parameters_of_gpt(parameters: Mapping[str, Any]) -> int | None:
    """Number of weights and biases; None for another model, and if only adapters are saved (`rank`)."""
    sizes = [parameters.get(name) for name in ("layers", "embedding", "vocabulary", "sequence_length")]
    if "rank" in parameters or not all(isinstance(size, int) for size in sizes):
        return None
    layers, embedding, vocabulary, length = (int(size or 0) for size in sizes)
    block = 12 * embedding**2 + 13 * embedding
    return layers * block + (-(-vocabulary // 64) * 64 + length + 2) * embedding


def judge_rooms(rooms: Iterable[Room]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and warnings, one line per place. Raises UserError for a place where not even logs fit."""
    notes: list[str] = []
    warnings: list[str] = []
    for room in rooms:
        left = [_of_space(room.space), _of_quota(room.quota)]
        known = [(found, whose) for found, whose in left if found is not None]
        _check_minimum(room, known)
        if not known:
            continue
        (left_bytes, total_bytes), whose = min(known)
        text = f"{room.path}: {format_bytes(left_bytes)} {whose}"
        needed = [
            f"{what} about {format_bytes(size)}" for what, size in room.needs.items() if size is not None
        ]
        text += f"; needed: {', '.join(needed)}" if needed else ""
        needed_bytes = sum(size for size in room.needs.values() if size is not None)
        is_low = left_bytes < LOW_BYTES or left_bytes < min(LOW_SHARE * total_bytes, AMPLE_BYTES)
        if needed_bytes > left_bytes:
            warnings.append(f"{text}: too little, the run may end with a full disk")
        elif is_low:
            warnings.append(f"{text}: little room")
        else:
            notes.append(text)
    return tuple(notes), tuple(warnings)


def other_place(key: str) -> str:
    """How to name another directory. A full or read-only home may hold config.toml itself, so the environment
    variable comes first."""
    variable = f"COACH_{key.upper()}"
    return f"`export {variable}=/scratch/$USER/coach` names another directory ({key} in config.toml for good)"


def _check_minimum(room: Room, known: list[tuple[tuple[int, int], str]]) -> None:
    hint = f"`coach runs clean` and `coach data` list what could go; {other_place(room.key)}"
    for (left_bytes, _), whose in known:
        if left_bytes < MIN_LEFT_BYTES:
            raise UserError(
                f"{room.path}: only {format_bytes(left_bytes)} {whose}: nothing can be launched", hint
            )
    files = [
        (room.space.free_inodes if room.space else None, "the file system is full"),
        (room.quota.left_files if room.quota else None, "your quota is used up"),
    ]
    for num_left, why in files:
        if num_left is not None and num_left < MIN_LEFT_FILES:
            raise UserError(f"{room.path}: only {num_left} more files can be made there: {why}", hint)


def _of_space(space: Space | None) -> tuple[tuple[int, int] | None, str]:
    if space is None:
        return None, ""
    return (space.free_bytes, space.total_bytes), f"free of {format_bytes(space.total_bytes)}"


def _of_quota(quota: Quota | None) -> tuple[tuple[int, int] | None, str]:
    if quota is None or quota.left_bytes is None or quota.limit_bytes is None:
        return None, ""
    return (quota.left_bytes, quota.limit_bytes), f"left of your quota of {format_bytes(quota.limit_bytes)}"
