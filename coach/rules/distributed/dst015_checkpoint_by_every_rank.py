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
        Checkpoints that the ranks themselves note (event, step and path): the same file from more than one
        rank at the same step.
    Why it matters
        Nobody knows whose bytes end up in the file. Mostly all are equal and nothing is seen; now and then
        the file is cut or mixed and cannot be loaded, after hours. And the storage gets the work of all ranks
        at once.
    When it stays silent
        Where ranks write files of their own, or parts into one folder (FSDP, ZeRO-3 and
        torch.distributed.checkpoint: there all take part). Where each of them is on a node of its own, and
        the path may lead to that node's own disk.
    What to do
        Save on rank 0 alone (`if rank == 0:`), to a temporary name that is renamed when the file is whole.
        Nothing that is a collective may stand inside of that condition.
    Sources
        PyTorch, Getting Started with DistributedDataParallel ("Save and Load Checkpoints").
    """

    code = "DST015"
    name = "checkpoint-by-every-rank"
    cause = "checkpoint_by_every_rank"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)

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
            fixes=(Fix("Save on rank 0 alone, to a temporary name that is renamed when the file is whole"),),
        )


def _is_one_file(path: str, ranks: set[int], snapshot: TargetSnapshot) -> bool:
    """Whether the path means the same file for at least two of these ranks."""
    run_dir = snapshot.run.run_dir if snapshot.run is not None else None
    if run_dir and PurePosixPath(path).is_relative_to(run_dir):
        return True
    nodes = {event.rank: event.fields.get("node") for event in snapshot.events if event.event == "start"}
    named = [node for rank in ranks if isinstance(node := nodes.get(rank), str)]
    return len(named) < len(ranks) or len(set(named)) < len(named)
