"""Turns this process's files and variables into settings: the only code that reads them.

Later sources win: defaults, the site's file, sbatch's own variables, COACH_HOME, the user's config.toml,
remembered answers, environment variables. A key that the site locked keeps the site's value. Flags and plan
fields come later, and the launch checks them against the locks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.config.file import ConfigFile, FileKind, Setting, absolute, read_config, read_file
from coach.config.keys import KEYS, LAUNCH_KEYS
from coach.config.layers import all_locks, merge
from coach.config.remembered import FILE_NAME as REMEMBERED
from coach.config.remembered import read_remembered
from coach.config.settings import (
    DEFAULT_CLUSTER,
    DEFAULT_JOBS_INTERVAL_S,
    DEFAULT_NODES_INTERVAL_S,
    DEFAULT_SBATCH_TIMEOUT_S,
    DEFAULT_SLURM_TIMEOUT_S,
    MESSAGE_SLACK_S,
    FileStamp,
    LaunchDefaults,
    NoticeSettings,
    Settings,
    find_lock,
)
from coach.config.variables import home_values, sbatch_values, variable_values
from coach.model.errors import UserError
from coach.model.launching.site import Limits, Switch
from coach.sources.machine.disk import choose_root, why_not_writable
from coach.sources.slurm.conf_file import cluster_name, kept_message_timeout_s, message_timeout_s

SITE_VARIABLE = "COACH_SITE"
USER_FILE = "config.toml"
WhyNot = Callable[[Path], str | None]
"""The reason why no run directory can be made in a directory; None if it can."""

_SITE_FILE = Path("etc/coach/site.toml")
_SITE_VENV = "libexec"
"""The environment folder in PREFIX/VERSION into which `make site` installs coach."""
SCRATCH_ORIGIN = "$SCRATCH"
HOME_ORIGIN = "home"
PATIENCE_S = 3.0
"""Seconds that a file system gets to show that it can be written, before the next one is tried."""


def load(env: Mapping[str, str], why_not: WhyNot = why_not_writable) -> Settings:
    """Load the settings of site and user. Raises UserError that names file, line and key of the first
    error."""
    absolute(env.get("COACH_HOME", ""), "environment variable COACH_HOME")  # the next line names no variable
    config_dir = runs.default_config_dir(env)
    candidates = site_file_candidates(env)
    names = (*candidates, config_dir / USER_FILE, config_dir / REMEMBERED)
    stamps = tuple(stamp(path) for path in names)  # taken before reading, so that a later change is noticed
    site = read_site(candidates, env)
    _refuse_first(site)
    user = _read_user(config_dir / USER_FILE, env)
    remembered, notes = read_remembered(config_dir / REMEMBERED)
    cluster = cluster_name(env) or DEFAULT_CLUSTER
    locks = all_locks(site.locks, site.values)
    answers = remembered.get(cluster, {})
    values, ignored = merge(
        site.values,
        (
            sbatch_values(env),
            home_values(env),
            user.values,
            # coach itself wrote these, so that nobody has to know of those that a lock overrides
            {key: answer for key, answer in answers.items() if find_lock(locks, key) is None},
            variable_values(env),
        ),
        locks,
    )
    raised = _raise_to_floors(values)
    places = runs_root_candidates(values, env, "runs_root" in locks)
    chosen = choose_root(places, lambda path: within(PATIENCE_S, lambda: why_not(path)))
    values.pop("runs_roots", None)
    values["runs_root"] = Setting(chosen.path, dict(places)[chosen.path])
    cache_dir = values["cache_dir"].value if "cache_dir" in values else runs.default_cache_dir(env)
    _take_timeout_of_slurm(values, env, cache_dir, cluster)
    fields = {"cache_dir": cache_dir, **_fields(values)}
    timeout_s = fields.get("slurm_timeout_s", DEFAULT_SLURM_TIMEOUT_S)
    fields.setdefault("sbatch_timeout_s", max(DEFAULT_SBATCH_TIMEOUT_S, 2 * timeout_s))
    keys = _table(values, "keys.")
    return Settings(
        **fields,
        config_dir=config_dir,
        runs_root_text=chosen.text,
        runs_root_candidates=places,
        launch=LaunchDefaults(**_fields(values, "launch"), sbatch=_table(values, "launch.sbatch.")),
        notices=NoticeSettings(**_fields(values, "notices"), term=env.get("TERM", "")),
        limits=Limits(**_fields(values, "limits")),
        recipe_keys=MappingProxyType({key: keys[key] for key in keys if key in LAUNCH_KEYS}),
        chosen_keys=MappingProxyType({key: keys[key] for key in keys if key not in LAUNCH_KEYS}),
        switched_off=frozenset(
            switch for switch in Switch if switch.key in values and not values[switch.key].value
        ),
        thresholds=_thresholds(values),
        environments=_table(values, "environments."),
        advice=_table(values, "advice."),
        locks=MappingProxyType(locks),
        origins=MappingProxyType(_origins(values)),
        notes=(*site.notes, *user.notes, *ignored, *raised, *notes),
        cluster=cluster,
        files=stamps,
    )


def _fields(values: Mapping[str, Setting], part: str = "") -> dict[str, Any]:
    """Field of Settings, or of a part of it → its value, if somebody set it."""
    found = {}
    for key in KEYS.values():
        holder, _, field = key.field.rpartition(".")
        if field and holder == part and key.name in values:
            found[field] = values[key.name].value
    return found


def _take_timeout_of_slurm(
    values: dict[str, Setting], env: Mapping[str, str], cache_dir: Path, cluster: str
) -> None:
    """Take the timeout of Slurm's commands from slurm.conf if nobody set one, and name it as the origin."""
    if "slurm.timeout_s" in values:
        return
    named = message_timeout_s(env)
    kept_s = kept_message_timeout_s(cache_dir, cluster) if named is None else None
    if named is not None:
        values["slurm.timeout_s"] = Setting(named[0] + MESSAGE_SLACK_S, f"{named[1]}: MessageTimeout")
    elif kept_s is not None:
        values["slurm.timeout_s"] = Setting(kept_s + MESSAGE_SLACK_S, "Slurm's MessageTimeout")


def site_file_candidates(
    env: Mapping[str, str], root: Path = Path("/"), prefix: Path | None = None
) -> tuple[Path, ...]:
    """Possible paths of the site's file; the first that exists counts. Raises UserError if the variable names
    no path. `prefix` is that of the interpreter; None: of this interpreter."""
    file = env.get(SITE_VARIABLE)
    named = (absolute(file, f"environment variable {SITE_VARIABLE}"),) if file else ()
    prefix = prefix or Path(sys.prefix)
    if prefix.name == _SITE_VENV:
        prefix = prefix.parents[1]  # the folder that all versions share
    return tuple(dict.fromkeys((*named, prefix / _SITE_FILE, root / _SITE_FILE)))


def read_if_there(
    path: Path, kind: FileKind, env: Mapping[str, str], owner: int | None = None
) -> ConfigFile | None:
    """The values of a file; None if it does not exist. If it cannot be read, its `problems` say so. `owner`:
    the user whose programs it may name; None for the site's file and for one that is only checked."""
    try:
        text = read_config(path, owner)
    except UserError as problem:
        return ConfigFile(path, problems=[problem])
    return None if text is None else read_file(path, text, kind, env)


def stamp(path: Path) -> FileStamp:
    """The file's current state: attributes that change when it is written."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return FileStamp(path)
    return FileStamp(path, found.st_mtime_ns, found.st_size, found.st_ino)


def read_site(candidates: Sequence[Path], env: Mapping[str, str]) -> ConfigFile:
    """The site's settings: those of the first file that exists. Locks of the other files hold as well, so no
    variable can bypass them."""
    files = [read_if_there(path, FileKind.SITE, env) for path in candidates]
    if env.get(SITE_VARIABLE) and files[0] is None:
        hint = f"the environment variable {SITE_VARIABLE} names it"
        return ConfigFile(candidates[0], problems=[UserError(f"{candidates[0]}: no such file", hint)])
    found = [file for file in files if file is not None]
    if not found:
        return ConfigFile(candidates[-1])
    site, *others = found
    for other in others:
        site.problems += other.problems
        site.notes += _impose(other, site)
    return site


def _impose(other: ConfigFile, site: ConfigFile) -> tuple[str, ...]:
    """Apply the locked values of `other` to `site`. Returns notes about values that no longer count."""
    locks = all_locks(other.locks, other.values)
    locked = {key: setting for key, setting in other.values.items() if find_lock(locks, key) is not None}
    site.values, notes = merge(locked, (site.values,), locks)
    site.locks = {**site.locks, **other.locks}
    return notes


def _read_user(path: Path, env: Mapping[str, str]) -> ConfigFile:
    user = read_if_there(path, FileKind.USER, env, os.geteuid()) or ConfigFile(path)
    _refuse_first(user)
    return user


def _refuse_first(file: ConfigFile) -> None:
    if not file.problems:
        return
    first, *more = file.problems
    if more:
        others = f"{len(more)} more: coach config --check {file.path}"
        first = UserError(first.message, f"{first.hint}; {others}" if first.hint else others)
    raise first


def runs_root_candidates(
    values: Mapping[str, Setting], env: Mapping[str, str], is_locked: bool
) -> tuple[tuple[Path, str], ...]:
    """Possible places for runs, best first, each with its origin.

    A place set by a user or a variable is the only one: runs made elsewhere would not be found again. After
    the site's places come the usual ones, unless the site's are locked.
    """
    setting, listed = values.get("runs_root"), values.get("runs_roots")
    places: dict[Path, str] = {}
    if setting is not None:
        places[setting.value] = setting.origin
    for path in listed.value if listed is not None else ():
        places.setdefault(path, listed.origin if listed is not None else "")
    is_final = is_locked or (setting is not None and not setting.is_site)
    if not places or not is_final:
        plain = {name: value for name, value in env.items() if name != "COACH_HOME"}
        if plain.get("SCRATCH"):
            places.setdefault(runs.default_runs_root(plain), SCRATCH_ORIGIN)
        plain.pop("SCRATCH", None)
        places.setdefault(runs.default_runs_root(plain), HOME_ORIGIN)
    return tuple(places.items())


def within(seconds: float, ask: Callable[[], str | None]) -> str | None:
    """The answer, or a reason that none came in time: a scratch file system that hangs must not keep coach
    from showing the queue."""
    answers = ["does not answer"]

    def work() -> None:
        answers.append(ask() or "")

    thread = threading.Thread(target=work, name="probe", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[-1] or None


def _raise_to_floors(values: dict[str, Setting]) -> list[str]:
    """Raise intervals to the site's minimum. Returns a note for each shorter interval that somebody set."""
    notes = []
    for name, default in (
        ("jobs_interval_s", DEFAULT_JOBS_INTERVAL_S),
        ("nodes_interval_s", DEFAULT_NODES_INTERVAL_S),
    ):
        floor, setting = values.get(f"poll.min_{name}"), values.get(f"poll.{name}")
        if floor is None or floor.value <= (default if setting is None else setting.value):
            continue
        if setting is not None:
            notes.append(
                f"{setting.origin}: poll.{name} = {setting.value:g} is ignored: the site's minimum is "
                f"{floor.value:g} ({floor.origin})"
            )
        values[f"poll.{name}"] = floor
    return notes


def _table(values: Mapping[str, Setting], prefix: str) -> Mapping[str, Any]:
    return MappingProxyType(
        {key.removeprefix(prefix): setting.value for key, setting in values.items() if key.startswith(prefix)}
    )


def _thresholds(values: Mapping[str, Setting]) -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for key, setting in values.items():
        table, _, rest = key.partition(".")
        code, _, name = rest.partition(".")
        if table == "rules" and name:
            found.setdefault(code, {})[name] = setting.value
    return MappingProxyType({code: MappingProxyType(numbers) for code, numbers in found.items()})


def _origins(values: Mapping[str, Setting]) -> dict[str, str]:
    usual = (SCRATCH_ORIGIN, HOME_ORIGIN)
    found = {key: setting.origin for key, setting in values.items() if setting.origin not in usual}
    for key in list(found):
        if key.startswith("rules.") and key.count(".") == 2:
            # An error about a rule code that does not exist needs its place.
            found.setdefault(key.rpartition(".")[0], found[key])
    return found
