"""The numbers of a training for one line of a list: progress, loss, throughput and use of its devices.

Only targets that are followed anyway are read, and each is computed once per new data. A training that left
the screen keeps its last numbers, with their age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.jobs.progress import Progress, progress_told
from coach.lookback.glance import DeviceUse, Glance, together
from coach.model.judging.finding import Finding, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.model.training.run import Run
from coach.tui.ports import Session

if TYPE_CHECKING:
    from coach.analysis.judging.ranking import RankedFinding

LATELY_S = 600.0
"""Measurements of a node that are older than this, in seconds, are not shown as its current use."""
_MAX_KEPT = 200
"""Number of trainings whose last numbers are kept."""


@dataclass(frozen=True, slots=True)
class Training:
    """The measured numbers of one job or run."""

    glance: Glance
    progress: Progress | None = None

    @property
    def gpus(self) -> DeviceUse | None:
        return together(self.glance.gpus.values())

    @property
    def cpus(self) -> DeviceUse | None:
        return together(self.glance.cpus.values())


class Trainings:
    """The trainings that are or were followed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Glance, tuple[object, ...], Training]] = {}
        """By target: the glance and the target's parts from which the training was computed, and the
        training."""
        self._runs: tuple[object, Mapping[str, tuple[Run, ...]]] = (None, {})

    def look(self, session: Session, snapshot: Snapshot) -> None:
        """Read the new data of the followed targets."""
        for name, target in snapshot.targets.items():
            glance = session.glance(name)
            parts = (target.events, target.log_tails, target.run)
            before = self._known.get(name)
            if before is not None and before[0] is glance and _are_same(before[1], parts):
                continue
            if glance.is_empty and before is not None and not before[0].is_empty:
                continue  # it is being read again, and has no data yet
            self._known.pop(name, None)
            self._known[name] = (glance, parts, _training(glance, target))
        while len(self._known) > _MAX_KEPT:
            del self._known[next(iter(self._known))]

    @property
    def is_any_measured(self) -> bool:
        """True once any training has a measured number."""
        return any(not glance.is_empty or each.progress for glance, _, each in self._known.values())

    @property
    def is_any_use_measured(self) -> bool:
        """True once the use of GPUs or CPUs of any training was measured."""
        return any(training.gpus or training.cpus for _, _, training in self._known.values())

    def of(self, target: str) -> Training | None:
        """The training of a target: a run's id, or the job id of a job without a run."""
        known = self._known.get(target)
        return known[2] if known is not None else None

    def target_of(self, job: Job, runs: Iterable[Run]) -> str:
        """The followed target of a job: its run's id, else its job id. `runs` are all runs."""
        if self._runs[0] is not runs:
            by_job: dict[str, tuple[Run, ...]] = {}
            for run in runs:
                if run.job_id is not None:
                    by_job[run.job_id] = (*by_job.get(run.job_id, ()), run)
            self._runs = (runs, by_job)
        of_job = (run.run_id for run in self._runs[1].get(job.job_id, ()) if is_job_of(job, run))
        return next(of_job, job.job_id)

    def uses_by_node(self, now_s: float) -> Mapping[str, DeviceUse]:
        """By node, the recent GPU use that the trainings measured. If two trainings measured a node, the
        newer value."""
        found: dict[str, DeviceUse] = {}
        for glance, _, _ in self._known.values():
            for node, use in glance.gpus.items():
                is_newer = node not in found or found[node].time_s < use.time_s
                if is_newer and now_s - use.time_s <= LATELY_S:
                    found[node] = use
        return found


def worst_of(found: Iterable[RankedFinding]) -> Finding | None:
    """The most severe cause of one target; info findings are ignored."""
    causes = [
        each.finding
        for each in found
        if each.finding.severity > Severity.INFO and each.finding.consequence_of is None
    ]
    return max(causes, key=lambda each: (each.severity, each.is_primary), default=None)


def _training(glance: Glance, target: TargetSnapshot) -> Training:
    parameters = target.run.parameters if target.run is not None else {}
    used_s = target.job.time_used_s if target.job is not None else None
    progress = progress_told(glance.curve, parameters, target.events, target.log_tails, used_s)
    return Training(glance, progress)


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(before, now, strict=True))
