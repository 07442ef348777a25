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
from coach.model.judging.doctor_report import Check, CheckState
from coach.sources.io import Io
from coach.sources.machine.disk import read_space, why_not_kept
from coach.sources.machine.quota import read_mount, read_quota
from coach.sources.machine.user import user_name
from coach.workflows.doctor.clock import look_at_clock
from coach.workflows.doctor.config_files import config_probes
from coach.workflows.doctor.probes import Probe

AREA = "roots"


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
    probes.update(config_probes(settings, env, AREA))
    probes[AREA, "clock"] = lambda: look_at_clock(settings.runs_root, AREA)
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
        return Check(AREA, what, CheckState.WRONG, room.path, chosen or problem, todo)
    because = chosen if chosen is not None and "passed over" in chosen else None
    try:
        notes, warnings = judge_rooms([room])
    except UserError as full:
        return Check(AREA, what, CheckState.WRONG, room.path, full.message, full.hint)
    if warnings:
        todo = f"`coach runs clean` and `coach data` list what could go; {other_place(room.key)}"
        return Check(AREA, what, CheckState.WARNING, warnings[0], because, todo)
    if not notes:
        return Check(AREA, what, CheckState.OK, room.path, because or "its free space is unknown")
    return Check(AREA, what, CheckState.OK, notes[0], because)


def judge_data(path: Path, is_there: bool) -> Check:
    """The place that the config names for real data sets."""
    if is_there:
        return Check(AREA, "data sets", CheckState.OK, str(path), is_needed=False)
    because = "no such directory here: the trainers generate a stand-in, unless a node has it"
    return Check(
        AREA, "data sets", CheckState.WARNING, str(path), because, "correct data_dir in config.toml", False
    )
