"""Say of a failure without a cause if its file system has no room now.

A full disk takes no error message, so a failure without a cause may be a full disk. The look comes after the
end, so it is told with its age, and it is evidence beside the finding: it changes no cause.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from coach.analysis.spelling.sizes import format_bytes
from coach.launch.disk_space import MIN_LEFT_BYTES, MIN_LEFT_FILES
from coach.model.judging.finding import Diagnosis, Evidence
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age
from coach.sources.io import Io
from coach.sources.machine.disk import Space, read_space
from coach.sources.machine.quota import Mount, Quota, read_mount, read_quota
from coach.sources.machine.user import user_name

_UNKNOWN = frozenset({"END001", "JOB017"})
_AGAIN_S = 60.0


class FullDisk:
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
