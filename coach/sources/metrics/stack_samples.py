"""Read the stacks of each rank that were sampled beside the training: stacks/samples-<node>.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.reading import Reading, StackChunk
from coach.model.training.stacks import StackBurst
from coach.sources.follow import RecordFollower, describe
from coach.sources.io import Io
from coach.sources.values import finite, text, whole

INTERVAL_S = 10.0
_MAX_NODES = 256
_MAX_NAMES = 16


def parse_burst(record: Mapping[str, Any]) -> StackBurst | None:
    """One record; None if it is malformed or has no samples."""
    node, pid, time_s = text(record.get("node")), whole(record.get("pid")), finite(record.get("time_s"))
    num_samples = whole(record.get("num_samples"))
    if node is None or pid is None or time_s is None or not num_samples or num_samples < 0:
        return None
    return StackBurst(
        node=node,
        pid=pid,
        rank=whole(record.get("rank")),
        time_s=time_s,
        is_stall=record.get("why") == "stalled",
        has_steps=record.get("has_steps") is True,
        silent_s=finite(record.get("silent_s")),
        num_samples=num_samples,
        categories=_counts(record.get("categories")),
        places=_places(record.get("places")),
        cpu_pct=finite(record.get("cpu_pct")),
    )


def _counts(value: Any) -> dict[str, int]:
    items = list(value.items())[:_MAX_NAMES] if isinstance(value, dict) else []
    return {str(name): number for name, count in items if (number := whole(count)) is not None and number > 0}


def _places(value: Any) -> tuple[tuple[str, int], ...]:
    pairs = (
        [each for each in value if isinstance(each, list) and len(each) == 2]
        if isinstance(value, list)
        else []
    )
    known = [(text(place), whole(count)) for place, count in pairs[:_MAX_NAMES]]
    return tuple((place, count) for place, count in known if place is not None and count is not None)


class StackSamplesSource:
    """Follows the files of all nodes of one run."""

    name = "stacks"

    def __init__(self, io: Io, target: str, run_dir: Path) -> None:
        self.interval_s = INTERVAL_S
        self._io = io
        self._target = target
        self._folder = runs.RunPaths(run_dir).stacks_dir
        self._followers: dict[str, RecordFollower] = {}

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        bursts: list[StackBurst] = []
        num_bad, is_caught_up, error = 0, True, None
        try:
            for follower in self._all():
                bite = follower.read()
                found = [parse_burst(record) for record in bite.records]
                bursts += [burst for burst in found if burst is not None]
                num_bad += bite.num_bad + found.count(None)
                is_caught_up = is_caught_up and bite.is_caught_up
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        chunk = StackChunk(self._target, tuple(bursts)) if error is None or bursts else None
        yield Reading(
            *(self.name, now_s, now_s - start_s, chunk, error, self._target, num_bad),
            is_caught_up=is_caught_up or error is not None,
        )

    def _all(self) -> list[RecordFollower]:
        try:
            names = self._io.list_dir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []  # no burst was taken yet
        ours = sorted(name for name in names if name.startswith("samples-") and name.endswith(".jsonl"))
        for name in ours[:_MAX_NODES]:
            self._followers.setdefault(name, RecordFollower(self._io, self._folder / name))
        return [*self._followers.values()]
