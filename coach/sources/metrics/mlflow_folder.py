"""Read a run of MLflow's file store, `mlruns/EXPERIMENT/RUN`: one file per metric, in `metrics`.

A metric whose name has a slash is a file in a folder. Each line is `TIMESTAMP VALUE STEP`, the time in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coach.sources.follow import FileFollower
from coach.sources.io import Io
from coach.sources.metrics.quantities import is_known
from coach.sources.metrics.tensorboard_events import Scalar

MAX_NAMES = 256
MAX_FOLLOWED = 32
"""Largest number of followed metrics. A run may have thousands; metrics of unknown quantities are not
read."""
_MAX_DEPTH = 3
_MAX_LINE_BYTES = 1 << 10


class MlflowFolder:
    """Follows the metrics of one run; `is_caught_up` and `num_bad` describe the last look."""

    def __init__(self, io: Io, run_dir: Path) -> None:
        self.is_caught_up = True
        self.num_bad = 0
        self.names: tuple[str, ...] = ()
        """Names of all its metrics, including those that are not read."""
        self._io = io
        self._folder = run_dir / "metrics"
        self._followed: dict[str, _MetricFile] = {}

    def read(self) -> list[Scalar]:
        """New scalars, ordered by step. Raises OSError."""
        self.names = tuple(self._list("", 0))[:MAX_NAMES]
        for name in self.names:
            if is_known(name) and len(self._followed) < MAX_FOLLOWED:
                self._followed.setdefault(name, _MetricFile(self._io, self._folder, name))
        self.is_caught_up, self.num_bad = True, 0
        scalars: list[Scalar] = []
        for file in self._followed.values():
            scalars += file.read()
            self.is_caught_up = self.is_caught_up and file.is_caught_up
            self.num_bad += file.num_bad
        return sorted(scalars, key=lambda scalar: (scalar.step, scalar.time_s))

    def _list(self, folder: str, depth: int) -> Iterator[str]:
        try:
            entries = self._io.list_dir(self._folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return  # no metric has been written yet; or it is a file
        for entry in entries[:MAX_NAMES]:
            name = f"{folder}/{entry}" if folder else entry
            if name in self._followed:
                yield name
                continue
            inner = list(self._list(name, depth + 1)) if depth < _MAX_DEPTH else []
            yield from inner or [name]


class _MetricFile:
    def __init__(self, io: Io, folder: Path, name: str) -> None:
        self.is_caught_up = True
        self.num_bad = 0
        self._name = name
        self._follower, self._rest = FileFollower(io, folder / name), b""

    def read(self) -> list[Scalar]:
        bite = self._follower.read()
        self.is_caught_up, self.num_bad = bite.is_caught_up, 0
        whole, _, rest = ((b"" if bite.is_restart else self._rest) + bite.data).rpartition(b"\n")
        self._rest = rest[:_MAX_LINE_BYTES]
        scalars = [scalar_of(self._name, line) for line in whole.splitlines()]
        self.num_bad = scalars.count(None)
        return [scalar for scalar in scalars if scalar is not None]


def scalar_of(name: str, line: bytes) -> Scalar | None:
    """One line of a metric's file; None if it is malformed. Very old versions wrote no step."""
    words = line.split()
    try:
        time_s, value, step = int(words[0]) / 1000, float(words[1]), int(words[2]) if words[2:] else 0
    except (ValueError, IndexError, OverflowError):
        return None
    return Scalar(name, value, step, time_s)
