"""DST011: fewer ranks train than there are devices for, or than were started."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.launched_with import int_resource
from coach.rules.advice.placement import has_uneven_ranks, num_gpus_asked
from coach.rules.advice.remedies import declared
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import ranks_text

_MIN_SAMPLES = 20
"""Of a GPU: short kernels may fall between fewer."""


class IdleRanks(Rule):
    """Fewer ranks train than were started, or than the job has GPUs for.

    What it sees
        The ranks that make steps, against the number of ranks that torchrun started (world_size), that the
        launch asked for, and against the GPUs of the job. A rank that said that it started and has made no
        step, while others made many, does not train.
    Why it matters
        The job is as fast as the ranks that work, and holds, and pays for, all that it was given. Nothing
        fails, and the loss falls.
    When it stays silent
        In the first steps. Where the program does not say how many ranks it has. Where only some ranks write
        down anything at all: many programs log on rank 0 alone, and learners have actors beside them. Where
        one process uses several GPUs (DataParallel, or utilization on all of them), and where the use of the
        GPUs was not measured.
    What to do
        One rank per device: `--nproc-per-node` as many as the node has GPUs, DistributedDataParallel around
        the model, DistributedSampler for the data, and no `if rank == 0` around the training. Or ask for one
        device.
    Sources
        Princeton jobstats and job_defense_shield (GPUs that one job leaves idle); torchrun documentation.
    """

    code = "DST011"
    name = "idle-ranks"
    cause = "idle_ranks"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    thresholds = (
        Threshold("min_steps", 20, "steps", "ranks start seconds apart, and not that many steps"),
        Threshold("min_s", 5, "seconds of steps", "the same, where steps are very short"),
        Threshold(
            "lag_s", 90, "seconds of steps", "on several nodes: so late a network file system may show them"
        ),
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
        # What ranks on other nodes wrote may be seen late; once the run has ended, all of it is there.
        least_s = self.values["min_s" if snapshot.has_ended or (nodes or 1) == 1 else "lag_s"]
        if len(at_work) >= expected or not self._trains(history, least_s):
            return
        idle = [rank for rank in range(told) if rank not in at_work]
        if not set(idle) <= {event.rank for event in snapshot.events if event.event == "start"}:
            return
        evidence = [
            Evidence("ranks that make steps: " + ranks_text(at_work), value=len(at_work)),
            Evidence("ranks that were started (world_size)", value=told),
        ]
        evidence += [Evidence("ranks that the launch asked for", value=asked)] if asked else []
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
                Fix("Or ask for one device: one is all that is used"),
            ),
            severity=Severity.CRITICAL if gpus == expected else None,
        )

    def _trains(self, history: History, least_s: float) -> bool:
        """Whether the ranks at work have made so many steps that the others would have, too."""
        steps = history.steps(history.ranks[0])
        seconds = sum(step.step_time_s or 0.0 for step in steps)
        return len(steps) >= self.values["min_steps"] and seconds >= least_s


def _a_rank_per_device(run: Run | None) -> Fix:
    changes = declared(run, "rank_per_device")
    way = (
        f"the recipe {changes['recipe']}" if "recipe" in changes else "DistributedDataParallel under torchrun"
    )
    return Fix(
        f"One rank per device, each on its own part of the data: {way}", changes, changes_learning=True
    )


def _world_size(snapshot: TargetSnapshot) -> int | None:
    """The number of ranks, as the program itself says at its start."""
    sizes = [event.fields.get("world_size") for event in snapshot.events if event.event == "start"]
    known = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    return known[-1] if known else None


def _leaves_gpus(history: History) -> bool:
    """Whether there is a GPU of which it is known that no kernel ran on it."""
    return any(
        len(samples) >= _MIN_SAMPLES and all(sample.utilization_pct == 0 for sample in samples)
        for key in history.gpus
        if (samples := history.gpu(*key))
    )
