"""Read slurm.conf on this machine: it is available without the controller, which may be dead.

Nodes of a cluster without configuration files ("configless") may have no copy. For this case, the
controller's last answer is kept in coach's cache.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from coach import runs
from coach.trusted import private_folder, read_text

_FILES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
"""The last one is the copy that slurmd or sackd of a configless cluster keeps."""
_MAX_INCLUDES = 20
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE)
_KEPT_FILE = "message-timeouts.json"
VARIABLE = "SLURM_CLUSTER_NAME"


def conf_files(env: Mapping[str, str]) -> tuple[str, ...]:
    """Possible paths of slurm.conf, the most likely one first."""
    named = env.get("SLURM_CONF")
    return (*((named,) if named else ()), *_FILES)


def conf_value(env: Mapping[str, str], key: str) -> tuple[str, str] | None:
    """(value of a key, the file that sets it) in the file that Slurm's clients read: the first one that
    exists. None without such a file or key; another cluster's file may come after it."""
    file = next((file for file in conf_files(env) if _is_file(Path(file))), None)
    value = _value_in(Path(file), key, []) if file is not None else None
    return (value, file) if value is not None and file is not None else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def message_timeout_s(env: Mapping[str, str]) -> tuple[float, str] | None:
    """(seconds that Slurm's clients wait for an answer, the file that sets it)."""
    found = conf_value(env, "MessageTimeout")
    seconds = parse_seconds(found[0]) if found is not None else None
    return (seconds, found[1]) if found is not None and seconds is not None else None


def parse_seconds(text: str) -> float | None:
    """Seconds from `100`, or from `100 sec` as scontrol prints it."""
    number = text.split()[0] if text.split() else ""
    return float(number) if number.isdecimal() and len(number) <= 4 and 0 < int(number) <= 3600 else None


def kept_message_timeout_s(cache_dir: Path, cluster: str) -> float | None:
    """The last value from this cluster's controller."""
    said = runs.read_json_if_any(cache_dir / _KEPT_FILE).get(cluster)
    if isinstance(said, (int, float)) and not isinstance(said, bool) and 0 < said <= 3600:
        return float(said)
    return None


def keep_message_timeout(cache_dir: Path, cluster: str, seconds: float) -> None:
    """Store the value for a later coach that cannot ask. If it cannot be stored, that coach uses the
    default."""
    file = cache_dir / _KEPT_FILE
    with contextlib.suppress(OSError, runs.RunFileError):
        if kept_message_timeout_s(cache_dir, cluster) != seconds:
            private_folder(cache_dir)
            runs.write_json(file, {**runs.read_json_if_any(file), cluster: seconds})


def conf_lines(file: Path) -> list[str]:
    """The lines of a file that the site names; empty if it cannot be read."""
    try:
        return read_text(file, owner=None, follows_links=True, errors="replace").splitlines()
    except OSError:
        return []


def _value_in(file: Path, key: str, seen: list[Path]) -> str | None:
    """The last value of a key in a file and the files that it includes, as Slurm reads it."""
    if file in seen or len(seen) >= _MAX_INCLUDES:
        return None
    seen.append(file)
    pattern = re.compile(rf"(?:^|\s){key}\s*=\s*(\S+)", re.IGNORECASE)
    value = None
    for line in conf_lines(file):
        text = line.split("#")[0]
        included = _INCLUDE.match(text)
        if included is not None:
            value = _value_in(file.parent / included[1], key, seen) or value
        elif (found := pattern.search(text)) is not None:
            value = found[1]
    return value


def cluster_name(env: Mapping[str, str]) -> str | None:
    """The variable that a module or a job sets, else ClusterName in slurm.conf; None if neither is there."""
    if env.get(VARIABLE):
        return env[VARIABLE]
    names = (_value_in(Path(file), "ClusterName", []) for file in conf_files(env))
    return next(filter(None, names), None)
