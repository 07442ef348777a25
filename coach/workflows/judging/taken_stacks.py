"""Join the stacks that were taken of a job with its diagnosis.

A log alone does not tell a hang from a training that is slow; whoever took the stacks saw where the ranks
stood. After a time limit they are evidence beside the finding. Of a job that runs and is silent, stacks in
which some ranks wait for one that stands elsewhere prove the hang. Beside dumps of torch's flight recorder
they give the place of each rank.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.analysis.measured.stack_groups import merge
from coach.config import Settings
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Evidence, Finding, Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age
from coach.model.training.stacks import RankPlace, RankStack, Stacks
from coach.rules.from_numbers.training_windows import newest_end
from coach.sources.metrics.stack_dumps import read_stacks
from coach.trusted import open_trusted

_SUMMARY = "summary.txt"
_MAX_BYTES = 4096
_APART = "not where the others are: "
"""Begins the summary's second line if ranks wait for some that stand elsewhere."""
_WAIT = " wait"
_CONFIDENCE = 0.85
"""Two signs agree, the silence and the stacks; but stacks show one moment only."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A summary of stacks."""

    path: Path
    taken_s: float
    sentence: str
    """Its first line: `ranks 0-1 wait in barrier; rank 2 is in barrier.py`."""
    apart: str | None
    """The ranks for which the others wait; None without such ranks."""


def with_places(snapshot: TargetSnapshot, history: History, settings: Settings) -> TargetSnapshot:
    """The snapshot; if the training left dumps, it also has the places of the ranks by the newest stacks that
    were taken after its last step: those of py-spy in its directory, and of `coach stacks`."""
    if not snapshot.flight:
        return snapshot
    _, start_s, end_s = snapshot.moments
    since_s = max(start_s or 0.0, newest_end(history) or 0.0)
    until_s = end_s or snapshot.now_s or math.inf
    stacks: dict[int | None, RankStack] = {
        each.rank: each for each in snapshot.stacks if since_s <= (each.taken_s or 0.0) <= until_s
    }
    kept = _newest(snapshot, settings, since_s, until_s)
    for of_node in read_stacks(kept.path.parent).values() if kept is not None else ():
        stacks |= {each.rank: each for each in of_node}
    places = [
        RankPlace(each.rank, f"{group.place.sentence(is_one=True)}{group.place.where}", group.is_odd)
        for group in merge(Stacks(tuple(stacks.values()), "", 1)).groups
        for each in group.ranks
        if each.rank is not None
    ]
    return replace(snapshot, places=tuple(places))


def with_stacks(diagnosis: Diagnosis, snapshot: TargetSnapshot, settings: Settings) -> Diagnosis:
    """The diagnosis; if stacks were taken of a job that the time limit ended, or that hangs, its first
    finding says where the ranks stood."""
    first = next(iter(diagnosis.findings), None)
    if first is None:
        return diagnosis
    if first.cause == "slurm_timeout" and snapshot.has_ended:
        (_, since_s, until_s), moment = snapshot.moments, "before its end"
    elif first.cause == "hang" and snapshot.state == "RUNNING":
        # Only stacks of the silence itself count: the job may have worked before.
        since_s, until_s, moment = first.since_s, snapshot.now_s, "ago"
    else:
        return diagnosis
    kept = _newest(snapshot, settings, since_s, until_s)
    if kept is None or until_s is None:
        return diagnosis
    words = f"stacks taken {rough_age(until_s - kept.taken_s)} {moment}: {kept.sentence}"
    evidence = Evidence(words, str(kept.path), 1)
    if first.cause == "hang":
        first = _in_a_hang(first, kept, evidence)
    else:
        first = replace(first, evidence=(*first.evidence, evidence))
    return replace(diagnosis, findings=(first, *diagnosis.findings[1:]))


def _in_a_hang(first: Finding, kept: _Kept, stacks: Evidence) -> Finding:
    evidence = (stacks, *first.evidence)
    if kept.apart is None:
        return replace(first, evidence=evidence)
    look = Fix(
        f"See in the stacks what keeps {kept.apart}: the others wait",
        command=f"less {shlex.quote(str(kept.path))}",
    )
    return replace(
        first,
        severity=max(first.severity, Severity.WARNING),
        confidence=max(first.confidence, _CONFIDENCE),
        summary=f"{first.summary}: {kept.sentence}",
        evidence=evidence,
        fixes=(look, *(fix for fix in first.fixes if not (fix.command or "").startswith("coach stacks "))),
    )


def _newest(
    snapshot: TargetSnapshot, settings: Settings, after_s: float | None, until_s: float | None
) -> _Kept | None:
    """The newest summary of the job, if it was written in this time: job numbers are given again."""
    if after_s is None or until_s is None:
        return None
    paths = (max(folder.glob(f"*/{_SUMMARY}"), default=None) for folder in _folders(snapshot, settings))
    kept = (_read(path) for path in paths if path is not None)
    return next((each for each in kept if each and after_s <= each.taken_s <= until_s), None)


def _folders(snapshot: TargetSnapshot, settings: Settings) -> Iterable[Path]:
    if snapshot.job is not None:
        yield settings.cache_dir / "stacks" / snapshot.job.job_id
    if snapshot.run is not None and snapshot.run.run_dir:
        yield runs.RunPaths(Path(snapshot.run.run_dir)).stacks_dir


def _read(path: Path) -> _Kept | None:
    try:
        taken_s = path.stat().st_mtime
        with open_trusted(path, owner=None) as file:
            head = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    first, second = (*head.splitlines(), "", "")[:2]
    is_waited_for = second.startswith(_APART) and _WAIT in first
    apart = second.removeprefix(_APART).partition(" (")[0] if is_waited_for else None
    return _Kept(path, taken_s, first, apart) if first else None
