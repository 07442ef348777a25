"""DST015: several ranks write a checkpoint to the same path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule
from coach.rules.from_logs.quoted_evidence import ranks_text


class CheckpointByEveryRank(Rule):
    """Several ranks write a checkpoint to the same path.

    What it sees
        Checkpoint events of the ranks (step and path): more than one rank writes the same file at the same
        step.
    Why it matters
        It is undefined which rank's bytes end up in the file. Mostly all ranks write the same and nothing is
        noticed, but sometimes the file is truncated or mixed and cannot be loaded. The storage also gets the
        writes of all ranks at once.
    When it stays silent
        If ranks write separate files, or parts into one folder (FSDP, ZeRO-3 and
        torch.distributed.checkpoint, in which all ranks take part). If each rank is on its own node, and the
        path may be on that node's local disk.
    What to do
        Save only on rank 0 (`if rank == 0:`), to a temporary name, and rename the file when it is complete.
        Put no collective inside this condition.
    Sources
        PyTorch, Getting Started with DistributedDataParallel ("Save and Load Checkpoints").
    """

    code = "DST015"
    name = "checkpoint-by-every-rank"
    cause = "checkpoint_by_every_rank"
    severity = Severity.WARNING
    needs = (Need.METRICS,)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        writers: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        for event in snapshot.events:
            path = event.fields.get("path")
            if event.event == "checkpoint" and event.step is not None and isinstance(path, str):
                writers[path, event.step].add(event.rank)
        shared = {
            (path, step): sorted(ranks)
            for (path, step), ranks in writers.items()
            if len(ranks) > 1 and PurePosixPath(path).suffix and _is_one_file(path, ranks, snapshot)
        }
        if not shared:
            return
        (path, step), ranks = next(iter(shared.items()))
        yield Hit(
            summary=f"{ranks_text(ranks).capitalize()} each wrote the checkpoint {PurePosixPath(path).name}",
            evidence=(
                Evidence(f"step {step}: written by {ranks_text(ranks)}", path),
                Evidence("checkpoints that more than one rank wrote", value=len(shared)),
            ),
            confidence=0.9,
            fixes=(
                Fix("Save on rank 0 alone, to a temporary name that is renamed when the file is complete"),
            ),
        )


def _is_one_file(path: str, ranks: set[int], snapshot: TargetSnapshot) -> bool:
    """True if the path is the same file for at least two of these ranks."""
    run_dir = snapshot.run.run_dir if snapshot.run is not None else None
    if run_dir and PurePosixPath(path).is_relative_to(run_dir):
        return True
    nodes = {event.rank: event.fields.get("node") for event in snapshot.events if event.event == "start"}
    named = [node for rank in ranks if isinstance(node := nodes.get(rank), str)]
    return len(named) < len(ranks) or len(set(named)) < len(named)
