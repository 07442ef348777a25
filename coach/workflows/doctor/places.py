"""Check where coach would write: which candidate is used, whether it is writable, and how much room is left.

Each place is checked in a thread of its own, because each may lie on another file server, and one that hangs
must not hide the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coach.config import Settings
from coach.launch.disk_space import Room, judge_rooms, other_place
from coach.model.errors import UserError
from coach.model.judging.doctor_report import OK, UNKNOWN, WARNING, WRONG, Check
from coach.sources.io import Io
from coach.sources.machine.disk import read_space, why_not_kept, why_not_writable
from coach.sources.machine.file_clock import Skew, read_skew
from coach.sources.machine.quota import read_mount, read_quota
from coach.sources.machine.user import user_name
from coach.workflows.doctor.config_files import ROOTS, config_probes
from coach.workflows.doctor.probes import Probe

AREA = ROOTS
MAX_SKEW_S = 2.0
"""Seconds. Ages of readings and checkpoints are shown in whole seconds: a smaller skew is not visible."""


def place_probes(settings: Settings, io: Io, env: Mapping[str, str] | None) -> dict[tuple[str, str], Probe]:
    """The probes of all places. `env` names the config files; None: one of them is broken."""
    places = {
        "runs": (settings.runs_root, "runs_root", settings.runs_root_text),
        "data and caches": (settings.cache_dir, "cache_dir", None),
    }
    if settings.scratch_cache_dir is not None:
        places["caches of jobs"] = (settings.scratch_cache_dir, "scratch_cache_dir", None)
    probes: dict[tuple[str, str], Probe] = {
        (AREA, what): _probe_of(what, path, key, text, io) for what, (path, key, text) in places.items()
    }
    if settings.data_dir is not None:
        data_dir = settings.data_dir
        probes[AREA, "data sets"] = lambda: [judge_data(data_dir, data_dir.is_dir())]
    probes.update(config_probes(settings, env))
    probes[AREA, "clock"] = lambda: look_at_clock(settings.runs_root)
    return probes


def _probe_of(what: str, path: Path, key: str, chosen: str | None, io: Io) -> Probe:
    def look() -> list[Check]:
        problem = why_not_kept(path)
        mount = read_mount(io, path) if problem is None else None
        quota = read_quota(io, mount, user_name()) if mount is not None else None
        return [judge_place(what, Room(str(path), key, read_space(path), quota, {}), problem, chosen)]

    return look


def judge_place(what: str, room: Room, problem: str | None, chosen: str | None = None) -> Check:
    """A directory that has to be writable, by the same measure as at a launch. `chosen`: why this one is
    used."""
    if problem is not None:
        todo = other_place(room.key)
        return Check(AREA, what, WRONG, room.path, chosen or problem, todo)
    because = chosen if chosen is not None and "passed over" in chosen else None
    try:
        notes, warnings = judge_rooms([room])
    except UserError as full:
        return Check(AREA, what, WRONG, room.path, full.message, full.hint)
    if warnings:
        todo = f"`coach runs clean` and `coach data` list what could go; {other_place(room.key)}"
        return Check(AREA, what, WARNING, warnings[0], because, todo)
    if not notes:
        return Check(AREA, what, OK, room.path, because or "its free space is unknown")
    return Check(AREA, what, OK, notes[0], because)


def judge_data(path: Path, is_there: bool) -> Check:
    """The place that the config names for real data sets."""
    if is_there:
        return Check(AREA, "data sets", OK, str(path), is_needed=False)
    because = "no such directory here: the trainers generate a stand-in, unless a node has it"
    return Check(AREA, "data sets", WARNING, str(path), because, "correct data_dir in config.toml", False)


def look_at_clock(directory: Path) -> list[Check]:
    """The clock of a file server, by a file in the directory or in the nearest one above it that exists."""
    place = next((path for path in (directory, *directory.parents) if path.is_dir()), directory)
    if why_not_writable(place) is not None:
        because = "nothing can be written there to look at its time"
        return [Check(AREA, "clock", UNKNOWN, None, because, is_needed=False)]
    return [judge_skew(place, read_skew(place))]


def judge_skew(directory: Path, skew: Skew) -> Check:
    """The clock of the runs' file server compared with this machine's."""
    what = "clock"
    off_s = abs(skew.skew_s)
    if off_s - skew.error_s <= MAX_SKEW_S:
        value = f"{directory}: within {off_s + skew.error_s:.2f} s of this machine's"
        if skew.error_s > MAX_SKEW_S:
            because = f"its answer took {2 * skew.error_s:.0f} s, too long to compare the clocks"
            todo = "try again when the file server is less busy"
            return Check(AREA, what, UNKNOWN, value, because, todo, is_needed=False)
        return Check(AREA, what, OK, value, is_needed=False)
    side = "ahead of" if skew.skew_s > 0 else "behind"
    because = "ages on the screen are off by as much"
    todo = "ask the site to keep the clocks together (chrony, ntpd)"
    value = f"{directory}: {off_s:.1f} s {side} this machine's"
    return Check(AREA, what, WARNING, value, because, todo, is_needed=False)
