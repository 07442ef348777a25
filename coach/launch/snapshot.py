"""Copies trainers and node code to a folder named by their content, from which jobs start.

A job may wait for days and run on other machines. Meanwhile coach may be upgraded, moved or removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from coach import installed, runs
from coach.launch.recipe import data_dir
from coach.trusted import private_folder, read_trusted, why_not_mine


def snapshot_files(own_trainers: Path | None = None) -> dict[str, Path]:
    """The files of a snapshot: path inside it → source file. `own_trainers` is a user's folder that replaces
    coach's trainers."""
    package = installed.package()
    files = {
        f"coach/{name}": package / name for name in ("__init__.py", "harmless.py", "runs.py", "trusted.py")
    }
    # The sampler brings its own binding of NVML, because the training environment may have none. It is one
    # file without dependencies.
    nvml = _nvml_binding(package)
    if nvml is not None:
        files["pynvml.py"] = nvml
    files |= {
        path.relative_to(package.parent).as_posix(): path for path in sorted((package / "node").rglob("*.py"))
    }
    trainers = own_trainers or data_dir() / "trainers"
    found = _user_files(trainers) if own_trainers else trainers.rglob("*")
    for path in sorted(found):
        # A changed page of text does not change the program, so pages are left out.
        if path.is_file() and path.suffix != ".md" and "__pycache__" not in path.parts:
            files[f"trainers/{path.relative_to(trainers).as_posix()}"] = path
    return files


def _nvml_binding(package: Path) -> Path | None:
    beside = package.parent / "pynvml.py"
    if beside.is_file():
        return beside
    found = find_spec("pynvml")
    return None if found is None or found.origin is None else Path(found.origin)


def _user_files(folder: Path) -> Iterator[Path]:
    """The files that a trainer in a user's folder can import or read: scripts and JSON files directly in it,
    and the Python files of packages. Other files are left out, such as data, runs and notes."""
    for path in folder.iterdir():
        if path.suffix in (".py", ".json"):
            yield path
        elif (path / "__init__.py").is_file():
            yield from path.rglob("*.py")


def code_dir(runs_root: Path, files: dict[str, Path]) -> Path:
    """The path of these files' snapshot, named by their content. It may not exist yet."""
    digest = hashlib.sha256()
    for name, path in files.items():
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return runs_root / runs.CODE_FOLDER / digest.hexdigest()[:16]


def kept_snapshot(runs_root: Path) -> Path | None:
    """The path of a snapshot of coach's own code, which is made if missing. None: it cannot be written."""
    files = snapshot_files()
    target = code_dir(runs_root, files)
    try:
        make_snapshot(target, files)
    except OSError:
        return None
    return target


def make_snapshot(target: Path, files: dict[str, Path]) -> None:
    """Copy the files to `target`, which appears only when it is complete. If it exists, only its modification
    time changes.

    Raises OSError, also if an existing `target` holds other files: then somebody has changed it, or has made
    it under this name.
    """
    private_folder(target.parent)
    if target.is_dir():
        _check(target, files)
        target.touch()  # marks it as used: `coach runs clean` leaves it alone
        return
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, path in files.items():
            _copy(path, temporary / name)
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            _check(target, files)  # another launch may have made the same snapshot first
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check(target: Path, files: dict[str, Path]) -> None:
    """Compare a snapshot with its sources, and copy again what a purge of old files has removed. Raises
    OSError if the rest differs. Python keeps its compiled modules in it, and a program its own files; all
    must be the user's."""
    problem = why_not_mine(target.lstat())
    found = [] if problem else list(target.rglob("*"))
    for path in found:
        name = path.relative_to(target).as_posix()
        if path.lstat().st_uid != os.geteuid() or path.is_symlink():
            problem = f"{name} is not yours"
        elif name in files and read_trusted(path, owner=os.geteuid()) != files[name].read_bytes():
            problem = f"{name} was changed"
        elif name not in files and path.suffix == ".py":
            problem = f"{name} is not of the copied files"
    if problem is not None:
        raise OSError(errno.EPERM, f"{problem}: remove it, and coach makes it again", str(target))
    for name in files.keys() - {path.relative_to(target).as_posix() for path in found}:
        _copy(files[name], target / name)


def _copy(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(source.read_bytes())
