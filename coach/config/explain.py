"""The settings in force, key by key, each with its origin: for a person who asks why coach acts as it does.

Pure: it reads only the settings, so the explained values are the values in force.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach.analysis.spelling.slurm import format_time
from coach.config.keys import FIXED_SCREEN_KEYS, KEYS, LAUNCH_FIELDS, LAUNCH_KEYS, SCREEN_KEYS
from coach.config.layers import shown_value
from coach.config.settings import Settings
from coach.model.launching.environment import Environment
from coach.model.launching.site import Advice, Switch

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Row:
    """One key. `value` has its JSON form, None if the key is not set."""

    key: str
    value: Any
    origin: str
    """`FILE:LINE`, `environment variable X` or `default`; for a root of runs also `$SCRATCH` or `home`."""
    lock: str | None
    """The site's reason why users may not set it."""

    @property
    def text(self) -> str | None:
        """The value in the form that the config file takes; None if the key is not set."""
        if self.value is None or self.value in ([], {}):
            return None
        if isinstance(self.value, dict):
            return ", ".join(f"{name} {shown_value(said)}" for name, said in self.value.items())
        return shown_value(self.value)

    @property
    def source(self) -> str:
        """The origin, in words for people."""
        return self.origin if self.lock is None else f"site, locked: {self.lock} ({self.origin})"


def rows(settings: Settings) -> Iterator[Row]:
    """Each setting in force, and each key that somebody added to an open table."""
    for key, value in _values(settings):
        lock = settings.lock_of(key)
        origin = settings.origins.get(key)
        if origin is None and key == "runs_root":
            origin = dict(settings.runs_root_candidates).get(settings.runs_root)
        if key == "runs_roots" and value:
            origin = settings.runs_root_candidates[0][1]
        if origin is None and lock is not None:
            origin = lock.origin
        yield Row(key, _plain(value), origin or DEFAULT, None if lock is None else lock.reason)


def _single_values(settings: Settings) -> dict[str, Any]:
    limits = settings.limits
    return {
        "runs_root": settings.runs_root,
        "runs_roots": tuple(str(place) for place, _ in settings.runs_root_candidates),
        "cache_dir": settings.cache_dir,
        "data_dir": settings.data_dir,
        "scratch_cache_dir": settings.scratch_cache_dir,
        "recipes": settings.recipe_paths,
        **{f"keys.{digit}": settings.recipe_keys.get(digit) for digit in LAUNCH_KEYS},
        **{f"keys.{key_id}": settings.chosen_keys.get(key_id) for key_id in SCREEN_KEYS},
        "readonly": settings.is_readonly,
        "theme": settings.theme,
        "ascii": settings.is_ascii,
        "notify.ways": settings.notices.ways,
        "notify.command": shlex.join(settings.notices.command) or None,
        "idle_gpus.command": shlex.join(settings.idle_command) or None,
        "idle_gpus.minutes": settings.idle_minutes_of_command,
        "telemetry.ssh": settings.is_ssh_allowed,
        "cohort.roster": settings.roster,
        "cohort.group": settings.cohort_group,
        **{key: getattr(settings.launch, field) for key, field in LAUNCH_FIELDS.items()},
        "poll.jobs_interval_s": settings.jobs_interval_s,
        "poll.nodes_interval_s": settings.nodes_interval_s,
        "poll.idle_minutes": settings.idle_minutes,
        "poll.min_jobs_interval_s": settings.least_jobs_interval_s or None,
        "poll.min_nodes_interval_s": settings.least_nodes_interval_s or None,
        "slurm.timeout_s": settings.slurm_timeout_s,
        "slurm.sbatch_timeout_s": settings.sbatch_timeout_s,
        "rules.mute": settings.muted_rules,
        "rules.files": settings.rule_files,
        "limits.max_gpus": limits.max_gpus,
        "limits.max_time": None if limits.max_time_s is None else format_time(limits.max_time_s),
        "limits.max_running": limits.max_running,
        **{switch.key: switch not in settings.switched_off for switch in Switch},
    }


def _values(settings: Settings) -> Iterator[tuple[str, Any]]:
    single = _single_values(settings)
    for key in KEYS:
        if key.removeprefix("keys.") not in FIXED_SCREEN_KEYS:
            yield key, single[key]
    yield from _open("launch.sbatch", settings.launch.sbatch)
    for code, numbers in settings.thresholds.items():
        yield from _open(f"rules.{code}", numbers)
    yield from _open("environments", settings.environments)
    yield from _open("advice", settings.advice)
    for key in settings.locks:
        if (
            key.startswith("launch.sbatch.")
            and key.removeprefix("launch.sbatch.") not in settings.launch.sbatch
        ):
            yield key, None


def _open(table: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield f"{table}.{name}", value


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case Environment():
            said: dict[str, Any] = {"kind": value.kind.value}
            for name in ("path", "modules", "image", "binds", "python", "setup", "variables", "torch"):
                if one := getattr(value, name):
                    said[name] = _plain(one)
            return said
        case Advice():
            return {"text": value.text} | ({"url": value.url} if value.url else {})
        case Mapping():
            return dict(value)
        case _:
            return value
