"""The place of a process in the code: its outermost collective, torch's work, or the program's own function.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from coach.model.training.stacks import Frame, RankStack, WorkerStack

IN_LOADER = "in DataLoader.__next__"
"""The words for a rank that waits for its data."""
_COLLECTIVE = re.compile(
    r"(all_?(gather|reduce|to_?all)|reduce|broadcast|gather|scatter|(monitored_)?barrier|send|recv|new_group"
    r"|(init|destroy)_process_group)(_\w+)?"
)
_COMMUNICATION = ("/torch/distributed/", "/deepspeed/comm/", "/horovod/")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen", "<string>")
_BUSY_PCT = 20.0
_SLEEPS = ("nanosleep",)


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's place in the code. `is_waiting` for other ranks; None: cannot be determined."""

    words: str
    """The words after `waits in` or `is in`."""
    is_waiting: bool | None
    line: str | None = None
    """The line of the training's own code: `train.py:41 load`."""

    @property
    def where(self) -> str:
        """`, at train.py:41 load`; empty for an unknown line."""
        return f", at {self.line}" if self.line else ""

    def sentence(self, is_one: bool) -> str:
        verb = ("waits" if is_one else "wait") if self.is_waiting else ("is" if is_one else "are")
        return f"{verb} {self.words}"


def place_of(rank: RankStack) -> Place:
    """The place, by the outermost collective, by torch's current work for the training, or by the training's
    own function."""
    frames = rank.frames
    if not frames:
        return _place_by_collective(rank) or place_by_kernel(rank)
    own = own_frame(frames)
    file = PurePath(own.file).name
    words, is_waiting = (
        _in_collective(frames)
        or _in_torch(frames, _is_idle(rank))
        or (f"in {own.name if own.name != '<module>' else file}", False)
    )
    return Place(words, is_waiting, f"{file}:{own.line} {own.name}")


def own_frame(frames: Sequence[Frame]) -> Frame:
    """The innermost frame of the training's own code; without one, the innermost of all. `frames` has one at
    least."""
    return next((frame for frame in frames if not is_of_library(frame)), frames[0])


def is_of_library(frame: Frame) -> bool:
    """True if the frame is not of the training's own code."""
    return _is_of(frame, _LIBRARIES)


def _in_collective(frames: Sequence[Frame]) -> tuple[str, bool] | None:
    """The words and `is_waiting` of the outermost collective."""
    for frame in reversed(frames):
        if _COLLECTIVE.fullmatch(frame.name) and _is_of(frame, _COMMUNICATION):
            return f"in {frame.name}", True
    return None


def _in_torch(frames: Sequence[Frame], is_idle: bool) -> tuple[str, bool | None] | None:
    """The words and `is_waiting` of the innermost torch call that has a plain name."""
    for frame in frames:
        if frame.name == "__next__" and frame.file.endswith("torch/utils/data/dataloader.py"):
            return IN_LOADER, False
        if frame.name == "synchronize" and "/torch/cuda/" in frame.file:
            return "for the GPU in torch.cuda.synchronize", True
        if frame.name == "backward" and "/torch/" in frame.file:
            # DDP exchanges gradients in here: the stack does not show if the rank computes or waits.
            return "in backward", True if is_idle else None
    return None


def _is_idle(rank: RankStack) -> bool:
    return rank.cpu_pct is not None and rank.cpu_pct < _BUSY_PCT


def _place_by_collective(rank: RankStack) -> Place | None:
    last = rank.collective
    if last is None:
        return None
    if last.is_done:
        return Place(f"after collective {last.number} ({last.operation}), and not yet in the next", False)
    return Place(f"in collective {last.number} ({last.operation})", True)


def place_by_kernel(rank: RankStack | WorkerStack) -> Place:
    """The place of a process without a stack, by its state and the kernel function in which it sleeps."""
    channel = rank.wait_channel
    at = f" ({channel})" if channel else ""
    if rank.state is None:
        return Place("not visible: the process has ended, or belongs to another user", None)
    if rank.state == "D":
        return Place(f"held up by a disk or a file server{at}", False)
    if rank.state in ("T", "t"):
        return Place("stopped by a signal or a debugger", False)
    if rank.state == "R" or (rank.cpu_pct or 0.0) > _BUSY_PCT:
        return Place("computing", False)
    if channel is not None and any(word in channel for word in _SLEEPS):
        return Place(f"in a sleep call of its own{at}", False)
    return Place(f"for something{at}", True)


def _is_of(frame: Frame, places: Iterable[str]) -> bool:
    return any(place in frame.file for place in places)
