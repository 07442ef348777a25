"""Add evidence that stands in no log: stacks that were taken of a job, and the room on its file system.

A log alone does not tell a hang from a training that is slow; whoever took the stacks saw where the ranks
stood. After a time limit they are evidence beside the finding. Of a job that runs and is silent, stacks in
which some ranks wait for one that stands elsewhere prove the hang.

A full disk takes no error message, so a failure without a cause may be a full disk. The look comes after the
end, so it is told with its age, and it is evidence beside the finding: it changes no cause.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.analysis.spelling.sizes import format_bytes
from coach.config import Settings
from coach.launch.disk_space import MIN_LEFT_BYTES, MIN_LEFT_FILES
from coach.model.judging.finding import Diagnosis, Evidence, Finding, Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age
from coach.sources.io import Io
from coach.sources.machine.disk import Space, read_space
from coach.sources.machine.quota import Mount, Quota, read_mount, read_quota
from coach.sources.machine.user import user_name
from coach.trusted import open_trusted

_SUMMARY = "summary.txt"
_MAX_BYTES = 4096
_APART = "not where the others are: "
"""Begins the summary's second line if ranks wait for some that stand elsewhere."""
_WAIT = " wait"
_CONFIDENCE = 0.85
"""Two signs agree, the silence and the stacks; but stacks show one moment only."""
_UNKNOWN = frozenset({"END001", "JOB017"})
_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A summary of stacks."""

    path: Path
    taken_s: float
    sentence: str
    """Its first line: `ranks 0-1 wait in barrier; rank 2 is in barrier.py`."""
    apart: str | None
    """The ranks for which the others wait; None without such ranks."""


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


class RoomNow:
    """Looks at file systems. The quota of each is asked once a minute at most: of an array, every task may
    have failed."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._looks: dict[Mount | None, tuple[float, str | None]] = {}

    def added_to(self, diagnosis: Diagnosis, snapshot: TargetSnapshot) -> Diagnosis:
        """The diagnosis; if its first finding knows no cause and there is no room now, the finding says
        so."""
        first, run = next(iter(diagnosis.findings), None), snapshot.run
        if first is None or first.rule not in _UNKNOWN or run is None or not snapshot.has_ended:
            return diagnosis
        words = self._words(Path(run.run_dir))
        if words is None:
            return diagnosis
        ended_s, now_s = snapshot.moments[2], self._io.now()
        later = f", {rough_age(max(0.0, now_s - ended_s))} after its end" if ended_s is not None else ""
        evidence = Evidence(f"{words}{later}: its error may be lost for lack of room", run.run_dir)
        found = replace(
            first,
            summary=f"{first.summary}; {words}{later}",
            evidence=(*first.evidence[:1], evidence, *first.evidence[1:]),
        )
        return replace(diagnosis, findings=(found, *diagnosis.findings[1:]))

    def _words(self, place: Path) -> str | None:
        mount = read_mount(self._io, place)
        looked_s, words = self._looks.get(mount, (-math.inf, None))
        if mount is None or not 0 <= self._io.now() - looked_s < _AGAIN_S:
            quota = read_quota(self._io, mount, user_name()) if mount is not None else None
            words = room_words(read_space(place), quota)
            self._looks[mount] = self._io.now(), words
        return words


def room_words(space: Space | None, quota: Quota | None) -> str | None:
    """The room that is left where hardly any is; None if there is room, or if it is unknown."""
    free, files = (space.free_bytes, space.free_inodes) if space is not None else (None, None)
    left, left_files = (quota.left_bytes, quota.left_files) if quota is not None else (None, None)
    if free is not None and free < MIN_LEFT_BYTES:
        return f"only {format_bytes(free)} were free on its file system"
    if files is not None and files < MIN_LEFT_FILES:
        return f"only {files} more files fitted on its file system"
    if left is not None and left < MIN_LEFT_BYTES:
        return f"only {format_bytes(left)} of your quota were left"
    if left_files is not None and left_files < MIN_LEFT_FILES:
        return f"only {left_files} more files were left of your quota"
    return None
