"""The rehearsal of a workshop: its plan, the result of each recipe, and whether the day has room for all.

These are values, so that a command can show the arithmetic, JSON can hold it, and tests need no cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.judging.finding import Finding
from coach.model.launching.launch import LaunchRequest


@dataclass(frozen=True, slots=True)
class Item:
    """One recipe of the day. `request` is the complete launch of a learner."""

    name: str
    request: LaunchRequest
    minutes: float | None
    """Minutes of a learner's whole run; None: not stated."""


@dataclass(frozen=True, slots=True)
class WorkshopPlan:
    """The plan of the day: number of learners, duration, recipes."""

    learners: int
    minutes: float
    max_steps: int
    """Optimizer steps of each run of the rehearsal."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Resources that one run holds, per node. Memory is None if the site decides."""

    num_nodes: int
    gpus_per_node: int
    cpus_per_node: int
    mem_mib: int | None = None
    gpu_type: str | None = None

    @property
    def num_gpus(self) -> int:
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """All resources of one node. CPUs and memory are None if Slurm does not report them."""

    gpus: tuple[tuple[str | None, int], ...]
    """(GPU type, number) of each type."""
    num_cpus: int | None
    memory_mib: int | None

    @property
    def num_gpus(self) -> int:
        return sum(number for _, number in self.gpus)


@dataclass(frozen=True, slots=True)
class Place:
    """The machines that the learners share, assuming that nobody else uses them."""

    name: str
    """`partition gpu`, `reservation workshop`, `this machine`."""
    rooms: tuple[NodeRoom, ...]
    is_exclusive: bool = False
    """True if each run gets whole nodes."""

    @property
    def num_gpus(self) -> int:
        return sum(room.num_gpus for room in self.rooms)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The result of one recipe. None: the rehearsal did not get that far. `_time_s` are epoch seconds, other
    `_s` are durations in seconds."""

    name: str
    run_id: str | None = None
    run_dir: str | None = None
    job_id: str | None = None
    state: str | None = None
    """Final state in Slurm's words; None if the job was refused."""
    submitted_time_s: float | None = None
    started_time_s: float | None = None
    first_step_time_s: float | None = None
    ended_time_s: float | None = None
    shape: Shape | None = None
    place: Place | None = None
    """None if its nodes are unknown."""
    num_runs: int = 1
    """Number of runs in a learner's launch: more than one for a sweep."""
    time_limit_s: int | None = None
    gpu_hours: float | None = None
    """Cost in GPU hours that the recipe states for its defaults; None if the plan changes parameters."""
    warnings: tuple[str, ...] = ()
    """Unusual but allowed parts of the launch."""
    finding: Finding | None = None
    """The primary finding, if it is at least a warning."""
    problem: str | None = None
    """The defect, in one line; None if all is well."""
    hint: str | None = None

    @property
    def is_well(self) -> bool:
        return self.problem is None

    @property
    def queued_s(self) -> float | None:
        return _between(self.submitted_time_s, self.started_time_s)

    @property
    def first_step_s(self) -> float | None:
        """Seconds from the start of the job to its first step."""
        return _between(self.started_time_s, self.first_step_time_s)

    @property
    def seconds(self) -> float | None:
        """Seconds from the start to the end of the job."""
        return _between(self.started_time_s, self.ended_time_s)

    @property
    def gpu_seconds(self) -> float | None:
        return None if self.seconds is None or self.shape is None else self.seconds * self.shape.num_gpus


@dataclass(frozen=True, slots=True)
class Share:
    """One recipe's part of the day: all learners run it once, in rounds of as many runs as fit at once."""

    name: str
    gpus_per_run: int | None
    cpus_per_run: int | None
    at_once: int | None
    """Number of runs that fit at once; None if nothing is known about the recipe."""
    rounds: int | None
    each_s: float | None
    """Seconds that one learner's launch takes."""
    because: str
    """The source of `each_s`; if `each_s` is None, why it is unknown."""
    is_at_most: bool = False
    """True if `each_s` is only an upper bound."""

    @property
    def total_s(self) -> float | None:
        return None if self.rounds is None or self.each_s is None else self.rounds * self.each_s


@dataclass(frozen=True, slots=True)
class Fit:
    """The available time beside the time that all learners need, one recipe after the other."""

    learners: int
    available_s: float
    places: tuple[Place, ...]
    shares: tuple[Share, ...]

    @property
    def least_s(self) -> float:
        """Lower bound in seconds: without recipes of unknown duration and without upper bounds."""
        return sum(share.total_s or 0.0 for share in self.shares if not share.is_at_most)

    @property
    def most_s(self) -> float | None:
        """Upper bound in seconds; None if a duration is unknown."""
        totals = [share.total_s for share in self.shares]
        known = [total for total in totals if total is not None]
        return sum(known) if len(known) == len(totals) else None

    @property
    def fits(self) -> bool | None:
        if any(share.at_once == 0 for share in self.shares) or self.least_s > self.available_s:
            return False
        return True if self.most_s is not None and self.most_s <= self.available_s else None


def _between(start_s: float | None, end_s: float | None) -> float | None:
    """Duration in seconds. Never negative: the two clocks may be those of different machines."""
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)
