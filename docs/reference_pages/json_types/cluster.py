"""Documents of jobs, history, nodes, partitions and reservations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.analysis.queueing.free_gpus import GpuSlot, TypeGpus
from coach.analysis.queueing.pending_reasons import PendingClass
from coach.model.json_types import Schema1, Together
from coach.model.slurm.accounting import Efficiency, FairShare, Limits, PriorityFactors
from coach.model.slurm.cluster import Job, Node, Partition, Reservation


class PendingObject(TypedDict):
    """The reason why a job waits."""

    kind: Annotated[str, PendingClass]
    meaning: str
    advice: str
    starts_by_itself: bool
    nodes: str | None
    """The nodes that it waits for, as a node set expression."""


class _JobAlso(TypedDict):
    estimated_start_s: float | None
    """Slurm's estimate of the start. It changes whenever the queue does."""
    pending: PendingObject | None


class NotTold(TypedDict):
    """A part that this site does not report."""

    what: str
    because: str


class PlaceObject(TypedDict):
    """With `--why`: the factors that decide your place in the queue."""

    priorities: list[Annotated[dict[str, Any], PriorityFactors]]
    fair_share: list[Annotated[dict[str, Any], FairShare]]
    limits: list[Annotated[dict[str, Any], Limits]]
    reservations: list[Annotated[dict[str, Any], Reservation]]
    not_told: list[NotTold]


class _Listing(TypedDict):
    schema: Schema1
    num_bad_rows: NotRequired[int]
    """Rows of the answer that could not be read and are missing."""
    hidden: NotRequired[list[str]]
    """The kinds that the site hides: others' jobs, others' reservations, nodes or partitions."""


class ColumnsDocument(_Listing):
    """With `--columns`: rows with only the named fields."""


class JobsDocument(_Listing):
    """The queue."""

    jobs: list[Annotated[dict[str, Any], Together("JobRow", (Job, _JobAlso))]]
    place: NotRequired[PlaceObject]


class _PastJobAlso(TypedDict):
    is_ended: bool
    efficiency: Annotated[dict[str, Any], Efficiency]
    source: Literal["sacct", "run", "seen"]
    """`sacct`, `run` (its run directory) or `seen` (the queue, when coach last saw it there)."""
    run_id: str | None
    last_seen_s: float | None


class HistoryDocument(_Listing):
    """Jobs that have left the queue, the newest first."""

    jobs: list[Annotated[dict[str, Any], Together("PastJobRow", (Job, _PastJobAlso))]]


class _NodeAlso(TypedDict):
    num_gpus: int | None
    num_gpus_allocated: int | None
    num_gpus_free: int | None
    """GPUs that a job could have now."""
    gpus_not_free_because: str | None
    state_meaning: str
    takes_jobs: bool


class NodesDocument(_Listing):
    """The nodes."""

    nodes: list[Annotated[dict[str, Any], Together("NodeRow", (Node, _NodeAlso))]]


class GpusDocument(_Listing):
    """With `--gpus`: each GPU by its index, with its job."""

    gpus: list[Annotated[dict[str, Any], GpuSlot]]


class _PartitionAlso(TypedDict):
    num_gpus: int | None
    num_gpus_allocated: int | None
    free_gpus: list[Annotated[dict[str, Any], TypeGpus]]


class PartitionsDocument(_Listing):
    """The partitions."""

    partitions: list[Annotated[dict[str, Any], Together("PartitionRow", (Partition, _PartitionAlso))]]


class ReservedDocument(_Listing):
    """The reservations."""

    reservations: list[Annotated[dict[str, Any], Reservation]]
