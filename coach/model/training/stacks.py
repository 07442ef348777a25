"""Stacks of the ranks of a training at one moment, and the means by which each was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    """As the means reports it: `__next__`, or `_BaseDataLoaderIter.__next__`."""
    file: str
    line: int | None

    @property
    def name(self) -> str:
        """The function without its class, because not every means reports the class."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Collective:
    """The last collective that a rank has started, from torch's flight recorder."""

    operation: str
    """Such as `gloo:all_reduce`."""
    number: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """A better means that could not be used, and why."""

    rung: str
    because: str


@dataclass(frozen=True, slots=True)
class WorkerStack:
    """The stack of a Python process below a rank, such as a DataLoader worker."""

    pid: int
    rung: str
    frames: tuple[Frame, ...]
    """Frames of its main thread, innermost first."""
    state: str | None
    """The kernel's one-letter process state; Z: it has ended, and the rank has not collected it."""
    wait_channel: str | None
    cpu_pct: float | None


@dataclass(frozen=True, slots=True)
class RankStack:
    """The stack of one rank. Values that its means (`rung`) does not provide are None or empty."""

    node: str
    pid: int
    rank: int | None
    """None: no launcher gave the process a rank."""
    world_size: int | None
    rung: str
    missed: tuple[Missed, ...]
    frames: tuple[Frame, ...]
    """Frames of the main thread, innermost first."""
    num_threads: int
    """Number of Python threads that were found."""
    collective: Collective | None = None
    state: str | None = None
    """The kernel's one-letter process state."""
    wait_channel: str | None = None
    """The kernel function in which the main thread sleeps."""
    cpu_pct: float | None = None
    num_sockets: int | None = None
    num_workers: int = 0
    """Python processes below it; `workers` has the first sixteen."""
    workers: tuple[WorkerStack, ...] = ()
    taken_s: float | None = None
    """When it was taken, in epoch seconds; None if its file was read at once."""

    @property
    def label(self) -> str:
        return f"pid {self.pid} on {self.node}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of one rank in the code, by a stack that was taken of it."""

    rank: int
    words: str
    """`waits in barrier, at train.py:41 main`."""
    is_odd: bool
    """True if the others wait for it."""


_CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "collective": "in a collective",
        "data": "waiting for the data loader",
        "save": "saving a checkpoint",
        "optimizer": "in the optimizer",
        "backward": "in the backward pass",
        "forward": "in the forward pass",
    }
)


@dataclass(frozen=True, slots=True)
class StackBurst:
    """About twenty stacks of one rank within ten seconds, reduced to counts."""

    node: str
    pid: int
    rank: int | None
    """None: no launcher gave the process a rank."""
    time_s: float
    is_stall: bool
    """True if it was taken because logs and metrics were silent; False if once after warm-up."""
    has_steps: bool
    """True if the training had made steps before."""
    silent_s: float | None
    """Seconds for which logs and metrics had been silent."""
    num_samples: int
    categories: Mapping[str, int]
    """`collective data save optimizer backward forward other` → number of samples."""
    places: tuple[tuple[str, int], ...]
    """The most frequent lines of the program's own code, as `train.py:41 load`, with their sample counts."""
    cpu_pct: float | None
    """Percent of one CPU, over the burst."""

    @property
    def label(self) -> str:
        return "the program" if self.rank is None else f"rank {self.rank}"

    @property
    def place(self) -> str:
        """`train.py:31 fetch()`: the most frequent line of the program's own code."""
        if not self.places:
            return "an unknown place"
        place = self.places[0][0]
        return place if place.endswith(">") else f"{place}()"

    @property
    def words(self) -> str:
        """`19 of 20 stacks in a collective, train.py:31 main(), 1 % of a CPU`."""
        category, count = max(self.categories.items(), key=lambda item: item[1], default=("other", 0))
        cpu = "" if self.cpu_pct is None else f", {self.cpu_pct:.0f} % of a CPU"
        what = _CATEGORIES.get(category, "in its own code")
        return f"{count} of {self.num_samples} stacks {what}, {self.place}{cpu}"

    def share(self, *categories: str) -> float:
        """The fraction of the samples in these categories, 0 to 1."""
        return sum(self.categories.get(name, 0) for name in categories) / self.num_samples


@dataclass(frozen=True, slots=True)
class StacksPlan:
    """A planned read of stacks. It is run exactly as planned."""

    subject: str
    argv: tuple[str, ...]
    folder: Path
    """Directory to which every node writes its answer."""
    num_nodes: int
    must_ask: bool
    """True if it enters a job that coach did not launch."""

    @property
    def command(self) -> str:
        return join(self.argv)

    @property
    def notes(self) -> tuple[str, ...]:
        """Consequences that the user should know before confirming."""
        cost = "this adds one job step to it, and one row to its accounting, for a few seconds"
        return (
            f"coach did not launch {self.subject}: {cost}",
            "nothing in the job is stopped; its own steps continue beside it",
        )


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of all ranks on all nodes that answered."""

    ranks: tuple[RankStack, ...]
    folder: str
    """Directory in which they are kept."""
    num_nodes: int
    num_silent_nodes: int = 0
    because: str | None = None
    """Why the silent nodes did not answer."""
