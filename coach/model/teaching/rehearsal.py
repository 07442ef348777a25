"""A workshop before it begins: what its plan says, what came of trying each recipe of the day, and whether it
fits.

Values alone, so that the arithmetic can be shown by a command, printed as JSON and tested without a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.model.judging.finding import Finding
from coach.model.launching.launch import LaunchRequest


@dataclass(frozen=True, slots=True)
class Item:
    """One recipe of the day. `request` is the learners' launch, whole."""

    name: str
    request: LaunchRequest
    minutes: float | None
    """How long a learner's whole run takes; None: not said."""


@dataclass(frozen=True, slots=True)
class WorkshopPlan:
    """The day: who, for how long, and with which recipes."""

    learners: int
    minutes: float
    max_steps: int
    """Optimizer steps of each run of the rehearsal."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What one run holds while it runs, per node. Memory is None where the site decides."""

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
    """What one node has in all. CPUs and memory are None where Slurm does not say."""

    gpus: tuple[tuple[str | None, int], ...]
    """Type and number."""
    num_cpus: int | None
    memory_mib: int | None

    @property
    def num_gpus(self) -> int:
        return sum(number for _, number in self.gpus)


@dataclass(frozen=True, slots=True)
class Place:
    """The machines that the learners share, as if nobody else were there."""

    name: str
    """`partition gpu`, `reservation workshop`, `this machine`."""
    rooms: tuple[NodeRoom, ...]
    is_exclusive: bool = False
    """Whether each run gets whole nodes."""

    @property
    def num_gpus(self) -> int:
        return sum(room.num_gpus for room in self.rooms)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What came of one recipe. What was not reached is None; times are epoch seconds, `_s` alone are
    durations."""

    name: str
    run_id: str | None = None
    run_dir: str | None = None
    job_id: str | None = None
    state: str | None = None
    """Slurm's word for its end; None when it was not taken."""
    submitted_time_s: float | None = None
    started_time_s: float | None = None
    first_step_time_s: float | None = None
    ended_time_s: float | None = None
    shape: Shape | None = None
    place: Place | None = None
    """None where nobody knows which nodes it is."""
    num_runs: int = 1
    """How many runs a learner's launch is: more than one in a sweep."""
    time_limit_s: int | None = None
    gpu_hours: float | None = None
    """What the recipe says a launch with its defaults costs; None where the plan changes its parameters."""
    warnings: tuple[str, ...] = ()
    """What is unusual about its launch, but allowed."""
    finding: Finding | None = None
    """The primary one, where it is at least a warning."""
    problem: str | None = None
    """What is broken, in one line; None when all is well."""
    hint: str | None = None

    @property
    def is_well(self) -> bool:
        return self.problem is None

    @property
    def queued_s(self) -> float | None:
        return _between(self.submitted_time_s, self.started_time_s)

    @property
    def first_step_s(self) -> float | None:
        """From the start of the job to its first step."""
        return _between(self.started_time_s, self.first_step_time_s)

    @property
    def seconds(self) -> float | None:
        """From the start to the end of the job."""
        return _between(self.started_time_s, self.ended_time_s)

    @property
    def gpu_seconds(self) -> float | None:
        return None if self.seconds is None or self.shape is None else self.seconds * self.shape.num_gpus


@dataclass(frozen=True, slots=True)
class Share:
    """One recipe's part of the day: all learners do it once, as many at once as there is room for."""

    name: str
    gpus_per_run: int | None
    cpus_per_run: int | None
    at_once: int | None
    """Runs that the place holds side by side; None when nothing is known of the recipe."""
    rounds: int | None
    each_s: float | None
    """What one learner's launch takes."""
    because: str
    """Where `each_s` comes from; when it is None, why it is not known."""
    is_at_most: bool = False
    """Whether `each_s` is only the most that it may take."""

    @property
    def total_s(self) -> float | None:
        return None if self.rounds is None or self.each_s is None else self.rounds * self.each_s


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether all learners get through the day, one recipe after the other."""

    learners: int
    available_s: float
    places: tuple[Place, ...]
    shares: tuple[Share, ...]

    @property
    def least_s(self) -> float:
        """Without what is not known, or only as the most that it may take."""
        return sum(share.total_s or 0.0 for share in self.shares if not share.is_at_most)

    @property
    def most_s(self) -> float | None:
        """None when something is not known."""
        totals = [share.total_s for share in self.shares]
        known = [total for total in totals if total is not None]
        return sum(known) if len(known) == len(totals) else None

    @property
    def fits(self) -> bool | None:
        if any(share.at_once == 0 for share in self.shares) or self.least_s > self.available_s:
            return False
        return True if self.most_s is not None and self.most_s <= self.available_s else None


def _between(start_s: float | None, end_s: float | None) -> float | None:
    """Never below zero: the clocks are those of several machines."""
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)
