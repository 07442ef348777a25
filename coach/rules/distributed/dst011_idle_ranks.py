"""DST011: fewer ranks train than were started, or than the job has devices for."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.launched_with import has_uneven_ranks, int_resource, num_gpus_asked
from coach.rules.advice.remedies import declared
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import ranks_text

_MIN_SAMPLES = 20
"""Samples of a GPU that are needed: with fewer, short kernels may go unseen."""


class IdleRanks(Rule):
    """Fewer ranks train than were started, or than the job has GPUs for.

    What it sees
        The number of ranks that make steps, compared with the ranks that torchrun started (world_size), with
        those that the launch requested, and with the GPUs of the job. A rank does not train if it reported
        its start but made no step while others made many.
    Why it matters
        Only some ranks train, but the job holds and pays for all its GPUs. It is easy to miss: nothing fails,
        and the loss falls.
    When it stays silent
        In the first steps. If the program does not report its number of ranks. If only some ranks write
        metrics at all: many programs log only on rank 0, and reinforcement learning has actors beside its
        learners. If one process uses several GPUs (DataParallel, or utilization on all of them), or the use
        of the GPUs was not measured.
    What to do
        Start one rank per device: set `--nproc-per-node` to the number of GPUs on the node, wrap the model in
        DistributedDataParallel, use DistributedSampler for the data, and put no `if rank == 0` around the
        training. Or request only one device.
    Sources
        Princeton jobstats and job_defense_shield (GPUs that one job leaves idle); torchrun documentation.
    """

    code = "DST011"
    name = "idle-ranks"
    cause = "idle_ranks"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    min_steps = Threshold(20, "steps", "ranks start seconds apart, and not that many steps")
    min_s = Threshold(5, "seconds of steps", "the same, where steps are very short")
    lag_s = Threshold(
        90, "seconds of steps", "on several nodes a network file system may show them this late"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        told = _world_size(snapshot)
        if told is None or has_uneven_ranks(snapshot.run):
            return
        at_work = history.ranks
        nodes, per_node = (int_resource(snapshot.run, name) for name in ("num_nodes", "nproc_per_node"))
        asked = nodes * per_node if nodes and per_node else 0
        gpus = num_gpus_asked(snapshot) or 0 if _leaves_gpus(history) else 0
        expected = max(told, asked, gpus)
        # Files of ranks on other nodes may become visible late. Once the run has ended, they are complete.
        least_s = self.min_s if snapshot.has_ended or (nodes or 1) == 1 else self.lag_s
        if len(at_work) >= expected or not self._trains(history, least_s):
            return
        idle = [rank for rank in range(told) if rank not in at_work]
        if not set(idle) <= {event.rank for event in snapshot.events if event.event == "start"}:
            return
        evidence = [
            Evidence("ranks that make steps: " + ranks_text(at_work), value=len(at_work)),
            Evidence("ranks that were started (world_size)", value=told),
        ]
        evidence += [Evidence("ranks that the launch requested", value=asked)] if asked else []
        evidence += [Evidence("GPUs of the job", value=gpus)] if gpus else []
        what = "GPUs" if gpus == expected else "ranks"
        yield Hit(
            summary=f"{len(at_work)} of {expected} {what} train{'s' * (len(at_work) == 1)}"
            + (f": {ranks_text(idle)} made no step" if idle else f": {told} was started" * (told == 1)),
            evidence=tuple(evidence),
            confidence=0.9,
            subject=Subject(rank=idle[0]) if len(idle) == 1 else Subject(),
            fixes=(
                _a_rank_per_device(snapshot.run),
                Fix("Or request one device: only one is used"),
            ),
            severity=Severity.CRITICAL if gpus == expected else None,
        )

    def _trains(self, history: History, least_s: float) -> bool:
        """True if the working ranks have trained for so long that the others would have made steps too."""
        steps = history.steps(history.ranks[0])
        seconds = sum(step.step_time_s or 0.0 for step in steps)
        return len(steps) >= self.min_steps and seconds >= least_s


def _a_rank_per_device(run: Run | None) -> Fix:
    changes = declared(run, "rank_per_device")
    way = (
        f"the recipe {changes['recipe']}" if "recipe" in changes else "DistributedDataParallel under torchrun"
    )
    return Fix(
        f"One rank per device, each on its own part of the data: {way}", changes, changes_learning=True
    )


def _world_size(snapshot: TargetSnapshot) -> int | None:
    """The number of ranks that the program reported at its start."""
    sizes = [event.fields.get("world_size") for event in snapshot.events if event.event == "start"]
    known = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    return known[-1] if known else None


def _leaves_gpus(history: History) -> bool:
    """True if at least one GPU is known to have run no kernel."""
    return any(
        len(samples) >= _MIN_SAMPLES and all(sample.utilization_pct == 0 for sample in samples)
        for key in history.gpus
        if (samples := history.gpu(*key))
    )
