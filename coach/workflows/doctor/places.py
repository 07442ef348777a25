"""Where coach would write: which of the candidates is taken, whether it can be written, how much room is left.

Each place is looked at in a thread of its own, because each may lie on another file server, and one that hangs must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coach.config import Settings
from coach.model.doctor import Check, CheckState
from coach.sources.disk import Space, read_space, why_not_writable
from coach.sources.file_clock import read_skew
from coach.workflows.doctor.here import judge_skew
from coach.workflows.doctor.probes import Probe

AREA = "roots"
MIN_FREE_BYTES, MIN_FREE_INODES = 50 * 10**6, 100
"""Less than this, and a run cannot even be set up."""
LOW_FREE_BYTES, LOW_FREE_SHARE = 10**9, 0.05


def place_probes(settings: Settings) -> dict[tuple[str, str], Probe]:
    """What to look at. Places that share a directory are looked at once."""
    places = {
        "runs": (settings.runs_root, "runs_root"),
        "data and caches": (settings.cache_dir, "cache_dir"),
    }
    if settings.scratch_cache_dir is not None:
        places["caches of jobs"] = (settings.scratch_cache_dir, "scratch_cache_dir")
    probes: dict[tuple[str, str], Probe] = {
        (AREA, what): _probe_of(what, path, key) for what, (path, key) in places.items()
    }
    if settings.data_dir is not None:
        data_dir = settings.data_dir
        probes[AREA, "data sets"] = lambda: [judge_data(data_dir, data_dir.is_dir())]
    probes[AREA, "clock"] = lambda: _look_at_clock(settings.runs_root)
    return probes


def _probe_of(what: str, path: Path, key: str) -> Callable[[], list[Check]]:
    return lambda: [judge_place(what, path, key, why_not_writable(path), read_space(path))]


def judge_place(what: str, path: Path, key: str, problem: str | None, space: Space | None) -> Check:
    """A directory that has to be written. `key` is what sets it in the config."""
    todo = f"set {key} in config.toml to a directory of yours"
    if problem is not None:
        return Check(AREA, what, CheckState.WRONG, str(path), problem, todo)
    if space is None:
        return Check(AREA, what, CheckState.OK, str(path), "its free space cannot be asked")
    value = f"{path}: {_room(space)}"
    clean = f"make room (`coach runs clean` lists what could go), or set {key} in config.toml"
    if space.free_bytes < MIN_FREE_BYTES:
        return Check(AREA, what, CheckState.WRONG, value, "the file system is full", clean)
    if space.free_inodes is not None and space.free_inodes < MIN_FREE_INODES:
        return Check(AREA, what, CheckState.WRONG, value, "no more files can be made there", clean)
    if space.free_bytes < LOW_FREE_BYTES or space.free_bytes < LOW_FREE_SHARE * space.total_bytes:
        return Check(AREA, what, CheckState.WARNING, value, "it is nearly full", clean)
    return Check(AREA, what, CheckState.OK, value)


def judge_data(path: Path, is_there: bool) -> Check:
    """Where real data sets were said to lie."""
    if is_there:
        return Check(AREA, "data sets", CheckState.OK, str(path), is_needed=False)
    because = "no such directory here: the trainers generate a stand-in, unless a node has it"
    return Check(
        AREA, "data sets", CheckState.WARNING, str(path), because, "correct data_dir in config.toml", False
    )


def _look_at_clock(directory: Path) -> list[Check]:
    place = next((path for path in (directory, *directory.parents) if path.is_dir()), directory)
    if why_not_writable(place) is not None:
        because = "nothing can be written there to look at its time"
        return [Check(AREA, "clock", CheckState.UNKNOWN, None, because, is_needed=False)]
    return [judge_skew(place, read_skew(place))]


def _room(space: Space) -> str:
    room = f"{size(space.free_bytes)} free of {size(space.total_bytes)}"
    return room if space.free_inodes is None else f"{room}, {space.free_inodes:,} more files"


def size(num_bytes: float) -> str:
    """`512 MB`, `1.5 TB`: decimal units, as quotas and disks are sold in."""
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
