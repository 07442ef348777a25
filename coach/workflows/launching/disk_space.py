"""What the places of a launch have left, looked up for the plan. The quota is asked at most once a minute, by all of a user's coaches."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.config import Settings
from coach.launch.disk_space import GENERATED_DATA_BYTES, Room, checkpoint_bytes, judge_rooms
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from coach.sources.io import Io
from coach.sources.machine.disk import read_space, why_not_writable
from coach.sources.machine.quota import Mount, Quota, read_mount, read_quota
from coach.sources.machine.user import user_name
from coach.sources.values import table, whole

QUOTA_AGE_S = 60.0
_SLOW_S = 0.5
_CACHE_FILE = "quota.json"
_GENERATED_DATA = "cifar-10-generated-"


def with_room(plan: Plan, settings: Settings, io: Io, now_s: float) -> Plan:
    """The plan with a line about the room of each place it writes to. Raises UserError where nothing could be written."""
    problem = why_not_writable(settings.runs_root)
    if problem is not None:
        hint = "set runs_root in config.toml to a directory of yours"
        raise UserError(f"{settings.runs_root}: runs cannot be written there: {problem}", hint)
    notes, warnings = judge_rooms(look_at_rooms(plan.parameters, settings, io, now_s))
    if settings.runs_root_candidates and settings.runs_root_candidates[0][0] != settings.runs_root:
        notes = (f"runs go to {settings.runs_root_text}", *notes)  # the first choice cannot be written
    return replace(plan, notes=plan.notes + notes, warnings=plan.warnings + warnings)


def look_at_rooms(parameters: Mapping[str, Any], settings: Settings, io: Io, now_s: float) -> list[Room]:
    """The runs root, and where data will be generated if that is somewhere else."""
    places: list[tuple[Path, str, dict[str, int | None]]] = [
        (settings.runs_root, "runs_root", {"checkpoints": checkpoint_bytes(parameters)})
    ]
    if settings.data_dir is None and not _is_data_generated(io, settings.cache_dir):
        places.append((settings.cache_dir, "cache_dir", {"generated data": GENERATED_DATA_BYTES}))
    by_mount: dict[Mount | Path, Room] = {}
    for path, key, needs in places:
        mount = read_mount(io, path)
        known = by_mount.get(mount or path)
        if known is not None:
            by_mount[mount or path] = replace(known, needs={**known.needs, **needs})
            continue
        quota = _quota(io, mount, settings.cache_dir / _CACHE_FILE, now_s) if mount else None
        by_mount[mount or path] = Room(str(path), key, read_space(path), quota, needs)
    return list(by_mount.values())


def _is_data_generated(io: Io, cache_dir: Path) -> bool:
    try:
        return any(name.startswith(_GENERATED_DATA) for name in io.list_dir(cache_dir))
    except OSError:
        return False


def _quota(io: Io, mount: Mount, file: Path, now_s: float) -> Quota | None:
    try:
        kept = runs.read_json(file)
    except runs.RunFileError:
        kept = {}
    entry = table(kept.get(mount.point))
    asked_s = entry.get("asked_s")
    if isinstance(asked_s, int | float) and 0 <= now_s - asked_s < QUOTA_AGE_S:
        return _from_json(table(entry.get("quota")))
    start_s = io.now()
    quota = read_quota(io, mount, user_name())
    if quota is not None or io.now() - start_s > _SLOW_S:
        said = None
        if quota is not None:
            said = {name: getattr(quota, name) for name in Quota.__dataclass_fields__}
        with contextlib.suppress(OSError):  # where nothing can be kept, the next plan asks again
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            runs.write_json(file, {**kept, mount.point: {"asked_s": now_s, "quota": said}})
    return quota


def _from_json(value: Mapping[str, Any]) -> Quota | None:
    used_bytes, used_files = whole(value.get("used_bytes")), whole(value.get("used_files"))
    if used_bytes is None or used_files is None:
        return None
    return Quota(used_bytes, whole(value.get("limit_bytes")), used_files, whole(value.get("limit_files")))
