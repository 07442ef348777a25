"""Where the ranks of a training stood at one moment, and by which means that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    """As far as the means tells it: `__next__`, or `_BaseDataLoaderIter.__next__`."""
    file: str
    line: int | None

    @property
    def name(self) -> str:
        """The function without its class, which not every means tells."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Collective:
    """The last collective that a rank has begun, by torch's flight recorder."""

    operation: str
    """`gloo:all_reduce`."""
    number: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """A higher rung of the ladder, and why it was not reached."""

    rung: str
    because: str


@dataclass(frozen=True, slots=True)
class RankStack:
    """One rank. What its rung does not show is empty, or None."""

    node: str
    pid: int
    rank: int | None
    """None: no launcher gave it a number."""
    world_size: int | None
    rung: str
    missed: tuple[Missed, ...]
    frames: tuple[Frame, ...]
    """Of the main thread, the innermost first."""
    num_threads: int
    """Python threads that were seen."""
    collective: Collective | None
    state: str | None
    """The kernel's letter."""
    wait_channel: str | None
    """The kernel function in which the main thread sleeps."""
    cpu_pct: float | None
    num_sockets: int | None

    @property
    def label(self) -> str:
        return f"pid {self.pid} on {self.node}" if self.rank is None else f"rank {self.rank}"


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
    """Some twenty stacks of one rank within ten seconds, reduced to counts."""

    node: str
    pid: int
    rank: int | None
    """None: no launcher gave it a number."""
    time_s: float
    is_stall: bool
    """True if it was taken because logs and metrics were silent; else once after warm-up."""
    has_steps: bool
    """True if the training was seen to make steps before."""
    silent_s: float | None
    """How long they were silent then."""
    num_samples: int
    categories: Mapping[str, int]
    """`collective data save optimizer backward forward other` → samples."""
    places: tuple[tuple[str, int], ...]
    """The most frequent lines of the program's own code, `train.py:41 load`, and their samples."""
    cpu_pct: float | None
    """Of one CPU, over the burst."""

    @property
    def label(self) -> str:
        return "the program" if self.rank is None else f"rank {self.rank}"

    @property
    def place(self) -> str:
        """`train.py:31 fetch()`, the line of its own code where the rank stands most often."""
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
        """The part of the samples that stand in these, 0 to 1."""
        return sum(self.categories.get(name, 0) for name in categories) / self.num_samples


@dataclass(frozen=True, slots=True)
class StacksPlan:
    """What will be run, before it is run. It is run exactly so."""

    subject: str
    argv: tuple[str, ...]
    folder: Path
    """Where every node writes its answer."""
    num_nodes: int
    must_ask: bool
    """Whether it enters a job that coach did not launch."""

    @property
    def command(self) -> str:
        return join(self.argv)

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know before one says yes."""
        cost = "this adds one job step to it, and one row to its accounting, for a few seconds"
        return (
            f"coach did not launch {self.subject}: {cost}",
            "nothing in the job is stopped; its own steps go on beside it",
        )


@dataclass(frozen=True, slots=True)
class Stacks:
    """All ranks of all nodes that answered."""

    ranks: tuple[RankStack, ...]
    folder: str
    """Where it is kept."""
    num_nodes: int
    num_silent_nodes: int = 0
    because: str | None = None
    """Why the others were silent."""
