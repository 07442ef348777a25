"""Find the place in the code of each process below a rank: DataLoader workers, and other Python children.

If a rank waits for its data loader, the worker that is not idle shows the cause.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from coach.analysis.measured.stack_places import is_of_library, own_frame, place_by_kernel
from coach.model.training.stacks import Frame, RankStack, WorkerStack

_LOOP = "_worker_loop"
_LOADER = "torch/utils/data/_utils/"
_FETCH = _LOADER + "fetch.py"


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers with the same stack, below the ranks of one group."""

    label: str
    """`2 DataLoader workers of rank 1`."""
    words: str
    """The words after the label: `wait for the next samples to load`."""
    pids: tuple[int, ...]
    first: WorkerStack
    frames: tuple[Frame, ...]
    """The frames of their own work, innermost first; empty if they are idle, or have no stack."""
    is_cause: bool
    """True if a rank that waits for its data loader probably waits for these workers."""

    @property
    def sentence(self) -> str:
        return f"{self.label} {self.words}"


def is_loader_worker(worker: WorkerStack) -> bool:
    """True if torch's DataLoader started it. False without a stack, because only the stack shows it."""
    return any(frame.name == _LOOP for frame in worker.frames)


def own_frames(worker: WorkerStack) -> tuple[Frame, ...]:
    """The frames inside the worker's loop. Outside the loop, a forked worker has the frames of its rank."""
    names = [frame.name for frame in worker.frames]
    return worker.frames[: names.index(_LOOP)] if _LOOP in names else worker.frames


def merge_workers(ranks: Sequence[RankStack], label: str) -> list[Workers]:
    """Merge the workers of these ranks that have equal stacks. The likely causes come first. `label` names
    the ranks."""
    by_key: dict[object, list[WorkerStack]] = {}
    for rank in ranks:
        for worker in rank.workers:
            by_key.setdefault(_key(worker), []).append(worker)
    found = [_workers(group, label) for group in by_key.values()]
    return sorted(found, key=lambda workers: not workers.is_cause)


def _key(worker: WorkerStack) -> object:
    if worker.state == "Z" or not worker.frames:
        return worker.state, worker.wait_channel
    if _is_idle(worker):
        return "idle"
    return tuple((frame.name, frame.file, frame.line) for frame in own_frames(worker))


def _is_idle(worker: WorkerStack) -> bool:
    """True if a DataLoader worker waits for the next index. It is busy while it fetches samples, or runs the
    program's `worker_init_fn`."""
    if not is_loader_worker(worker):
        return False
    own = own_frames(worker)
    is_in_program = any(not is_of_library(frame) and _LOADER not in frame.file for frame in own)
    return not is_in_program and not any(_FETCH in frame.file for frame in own)


def _workers(group: Sequence[WorkerStack], ranks: str) -> Workers:
    first, is_one = group[0], len(group) == 1
    kind = "DataLoader worker" if is_loader_worker(first) else "child process"
    plural = "" if is_one else "es" if kind.endswith("s") else "s"
    frames: tuple[Frame, ...] = ()
    if first.state == "Z":
        words = "has ended, and is still a zombie" if is_one else "have ended, and are still zombies"
    elif _is_idle(first):
        words = f"{'waits' if is_one else 'wait'} for the next samples to load"
    elif first.frames:
        frames = own_frames(first)
        own = own_frame(frames)
        words = f"{'is' if is_one else 'are'} in {own.name}, at {PurePath(own.file).name}:{own.line}"
    else:
        words = place_by_kernel(first).sentence(is_one)
    return Workers(
        label=f"{len(group)} {kind}{plural} of {ranks}",
        words=words,
        pids=tuple(worker.pid for worker in group),
        first=first,
        frames=frames,
        is_cause=first.state == "Z" or (is_loader_worker(first) and not _is_idle(first)),
    )


def spell_pids(pids: Iterable[int]) -> str:
    """`pid 12`, `pids 12, 13`."""
    numbers = [str(pid) for pid in pids]
    return f"{'pid' if len(numbers) == 1 else 'pids'} {', '.join(numbers)}"
