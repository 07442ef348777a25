"""Data on this node's own disk: copied there once by one of its ranks, whole as soon as it is visible, and
timed.

A parallel file system serves every node of the cluster, and is worst at many small reads. A copy pays when
the data are read often enough. Two times decide that: the time of the copy, and the time that each reading of
it saves.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from common.distributed import TrainerError, counted, node_name, print_rank0
from common.once import made_once

_CHUNK = 4 * 1024 * 1024
_MARGIN = 1.05
"""File systems need a little more than the sum of the files."""


@dataclass(frozen=True)
class Staged:
    """Place and time of the copy, for the `staging` event. Times in seconds; `seconds` counts waiting for
    another rank's copy."""

    path: str
    source: str
    node: str
    num_files: int
    num_bytes: int
    seconds: float
    is_copied: bool
    """False: this node had a copy of the same files already."""
    read_source_s: float
    """Reading all files where they came from, not from memory."""
    read_staged_s: float


def stage(source: Path, stage_to: str | None) -> Staged:
    """Copy a folder to this node's own disk, unless it is there. All ranks of a node may call this at once:
    one copies, the others wait."""
    files = _files(source)
    num_bytes = sum(size for _, size, _ in files)
    folder = _private_folder(Path(stage_to) if stage_to else node_local_dir())
    final = folder / _digest(source, files)
    started = time.perf_counter()

    def make(unfinished: Path, show_alive: Callable[[], None]) -> None:
        _check_room(folder, num_bytes)
        _copy(source, files, unfinished / source.name, show_alive)

    try:
        is_copied = made_once(final, make)
    except OSError as error:
        raise TrainerError(
            f"{folder}: cannot hold a copy of {source} ({error}); --stage_to names another folder on "
            "this node"
        ) from error
    seconds = time.perf_counter() - started
    found = Staged(
        path=str(final / source.name),
        source=str(source),
        node=node_name(),
        num_files=len(files),
        num_bytes=num_bytes,
        seconds=seconds,
        is_copied=is_copied,
        read_source_s=_read_time(source, files),
        read_staged_s=_read_time(final / source.name, files),
    )
    print_rank0(_as_text(found))
    return found


def node_local_dir() -> Path:
    """$SLURM_TMPDIR, which some sites make for every job, else $TMPDIR, else /tmp, which in some places is
    memory."""
    return Path(os.environ.get("SLURM_TMPDIR") or os.environ.get("TMPDIR") or "/tmp")


def _private_folder(parent: Path) -> Path:
    """A folder of this user's own: where everybody may write, another's folder of that name could hold
    anything."""
    folder = parent / f"coach-staged-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise TrainerError(
            f"{parent}: no folder for staged data ({error}); --stage_to names another"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise TrainerError(f"{folder} belongs to somebody else; --stage_to names another folder on this node")
    return folder


def _files(source: Path) -> list[tuple[str, int, int]]:
    """Relative path, size and time of change of every file, ordered."""
    found = []
    for path in sorted(source.rglob("*")):
        if path.is_file():
            status = path.stat()
            found.append((str(path.relative_to(source)), status.st_size, status.st_mtime_ns))
    return found


def _digest(source: Path, files: list[tuple[str, int, int]]) -> str:
    """Other files, other name: files that changed since make another copy."""
    return hashlib.sha256(repr((str(source), files)).encode()).hexdigest()[:12]


def _check_room(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes * _MARGIN:
        raise TrainerError(
            f"{folder} on {node_name()} has {free / 1e9:.2f} GB free, the data need "
            f"{num_bytes * _MARGIN / 1e9:.2f} GB;"
            " --stage_to names another folder on this node"
        )


def _copy(
    source: Path, files: list[tuple[str, int, int]], copy: Path, show_alive: Callable[[], None]
) -> None:
    for name, _, _ in files:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(source / name, "rb") as read, open(target, "wb") as written:
            while chunk := read.read(_CHUNK):
                written.write(chunk)
                show_alive()
            written.flush()
            os.fsync(written.fileno())  # or the disk would do its work during the training, not timed


def _read_time(folder: Path, files: list[tuple[str, int, int]]) -> float:
    started = time.perf_counter()
    for name, _, _ in files:
        with open(folder / name, "rb") as file:
            if hasattr(os, "posix_fadvise"):
                # A reading from memory says nothing.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(_CHUNK):
                pass
    return time.perf_counter() - started


def _as_text(staged: Staged) -> str:
    megabytes = staged.num_bytes / 1e6
    done = f"copied in {staged.seconds:.2f} s ({megabytes / max(staged.seconds, 1e-9):.0f} MB/s)"
    text = (
        f"staging: {megabytes:.1f} MB in {counted(staged.num_files, 'file')}, "
        f"{done if staged.is_copied else 'there already'}: {staged.path};"
    )
    text += (
        f" reading all of it takes {staged.read_source_s:.2f} s from {staged.source}, "
        f"{staged.read_staged_s:.2f} s from the copy"
    )
    saved = staged.read_source_s - staged.read_staged_s
    if not staged.is_copied:
        return text
    if saved <= 0:
        return f"{text}: reading the copy is not faster, so staging does not pay here"
    return f"{text}: staging pays if the data are read more than {staged.seconds / saved:.1f} times"
