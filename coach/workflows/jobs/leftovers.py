"""Find entries of the runs root that belong to no run: logs without their run, code that no run starts from,
old dry runs.

Kept apart from removing runs because nobody has to choose here: a leftover is certain to be unneeded. In
doubt, an entry is not a leftover.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from coach import runs
from coach.launch.snapshot import code_dir, snapshot_files
from coach.sources.runs.run_sizes import size_of_file, size_of_tree
from coach.trusted import read_text

FRESH_S = 24 * 3600.0
"""A younger entry may belong to a launch under way, or to a script that was just printed, in seconds."""
DRY_RUN_S = 30 * 24 * 3600.0
_WRITTEN_BEFORE_RECORD = re.compile(r"job\.sh|config|\.(?:job\.sh|run\.json)\.\d+\.[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or directory that nothing needs."""

    path: Path
    what: str
    size_bytes: int | None


def find_leftovers(root: Path, leaving: AbstractSet[str], now_s: float) -> list[Leftover]:
    """All leftovers of a runs root. `leaving` are the runs that are being removed too."""
    try:
        names = sorted(entry.name for entry in os.scandir(root) if runs.RUN_ID.match(entry.name))
    except OSError:
        return []
    dry_runs = [name for name in names if _is_dry_run(root / name)]
    old = [name for name in dry_runs if _age_s(root / name, now_s) > DRY_RUN_S]
    broken = _interrupted(root, set(names) - set(dry_runs), now_s)
    staying = [name for name in names if name not in leaving and name not in {*old, *broken}]
    found = [Leftover(root / name, "a dry run that nobody submitted", 0) for name in old]
    found += [
        Leftover(
            root / name, "a launch that was interrupted before it was submitted", size_of_tree(root / name)
        )
        for name in broken
    ]
    found += _logs(root, {*staying, *leaving}, now_s)
    if not set(dry_runs) - set(
        old
    ):  # otherwise a script that lies somewhere else may start from any of the code
        found += _code(root, staying, now_s)
    return found


def _is_dry_run(run_dir: Path) -> bool:
    """True for the run directory of a dry run: empty except for links to logs that do not exist."""
    try:
        return all(
            # The entry has its path as a string.
            entry.name in ("stdout.log", "stderr.log") and not os.path.exists(entry.path)  # noqa: PTH110
            for entry in os.scandir(run_dir)
        )
    except OSError:
        return False


def _interrupted(root: Path, names: AbstractSet[str], now_s: float) -> list[str]:
    """Run directories of launches that stopped before their record was written."""
    return [
        name for name in sorted(names) if is_unrecorded(root / name) and _age_s(root / name, now_s) > FRESH_S
    ]


def is_unrecorded(run_dir: Path) -> bool:
    """True if a launch stopped before it wrote run.json: the directory holds only files written before that,
    and no output of a job."""
    try:
        return all(
            (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110 (the entry has its path)
            or _WRITTEN_BEFORE_RECORD.fullmatch(entry.name) is not None
            for entry in os.scandir(run_dir)
        )
    except OSError:
        return False


def _logs(root: Path, run_ids: AbstractSet[str], now_s: float) -> list[Leftover]:
    try:
        files = sorted((root / runs.LOGS_FOLDER).iterdir())
    except OSError:
        return []
    return [
        Leftover(file, "a log whose run is gone", size_of_file(file))
        for file in files
        if file.suffix in (".out", ".err")
        and runs.RUN_ID.match(file.stem)
        and file.stem not in run_ids
        and _age_s(file, now_s) > FRESH_S
    ]


def _code(root: Path, run_ids: list[str], now_s: float) -> list[Leftover]:
    try:
        snapshots = sorted((root / runs.CODE_FOLDER).iterdir())
        current = code_dir(root, snapshot_files())
    except OSError:
        return []
    old = [
        path
        for path in snapshots
        if path != current and _age_s(path, now_s) > FRESH_S and _is_directory(path)
    ]
    used: set[str] = set()
    for run_id in run_ids if old else ():
        code = _code_of(root / run_id)
        if code is None:
            return []
        used.add(code)
    return [
        Leftover(path, "code that no run uses", size_of_tree(path)) for path in old if path.name not in used
    ]


def _code_of(run_dir: Path) -> str | None:
    """The name of the code snapshot that a run starts from; empty if it has none (`coach run`); None if that
    cannot be read."""
    script = runs.RunPaths(run_dir).job_script
    try:
        text = read_text(script, owner=os.geteuid(), errors="replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("CODE="):
            try:
                return Path(shlex.split(line.removeprefix("CODE="))[0]).name
            except (ValueError, IndexError):
                return None
    return ""


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _age_s(path: Path, now_s: float) -> float:
    """Seconds since the last change; 0 if it cannot be read."""
    try:
        return now_s - path.lstat().st_mtime
    except OSError:
        return 0.0
