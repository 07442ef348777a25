"""Keep the records of runs small: thin and pack those of ended runs, oldest first, until they fit the limits.

A part of a run is replaced as a whole: its new directory is written beside it and takes its place by rename.
A process killed in between leaves the old part or the new one, and the next process tidies up; no record is
ever there twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach import runs
from coach.analysis.jobs.thinning import LOOSE_BYTES, PACKED_BYTES, ThinPlan, ThinStep, plan_thinning
from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.training.metrics import THINNED_EVENT
from coach.model.training.records import Part, RecordLimits, RunRecords, Volume
from coach.model.training.run import Run
from coach.node.telemetry_file import thinned
from coach.sources.io import Io
from coach.workflows.jobs.known_runs import KnownRun, read_known_runs
from coach.workflows.readonly import refuse_if_readonly

LOCK_FILE = "records.lock"
_NEW, _GONE = ".coach-new", ".coach-gone"
"""Name endings of a part's new directory before the swap, and of its old directory after it."""
_NOTE = f'"event":"{THINNED_EVENT}"'.encode()
_SHARE = re.compile(rb'("what":"records",.*one sample of )(\d{1,9})')
"""In the gap that reports a thinning of telemetry, the share that is left."""
_TELEMETRY_NAME = re.compile(r"(?P<node>.+?)(?:-(?P<number>\d+))?\.jsonl")
_RANK_NAME = re.compile(r"rank-(?P<rank>\d{1,6})\.jsonl")


@dataclass(frozen=True, slots=True)
class RecordsPlan:
    """The parts to thin, and the runs that stay as they are."""

    plan: ThinPlan
    kept: Mapping[str, str]
    """Run id → why its records stay."""


def limits_of(settings: Settings) -> RecordLimits:
    """The limits that the settings set."""
    return RecordLimits(settings.max_records_bytes, settings.max_records_files)


def plan_records(records: Iterable[RunRecords], settings: Settings, io: Io, user: str) -> RecordsPlan:
    """The records to thin now. The queue is asked once, and only if the limits are exceeded. Raises UserError
    if the runs cannot be read."""
    listed = tuple(records)
    limits = limits_of(settings)
    if not plan_thinning(listed, (), limits).is_over:
        return RecordsPlan(plan_thinning(listed, (), limits), {})
    known = {one.run.run_id: one for one in read_known_runs(settings, io, user, _is_slurm).runs}
    kept = {
        one.run_id: because
        for one in listed
        if (because := _why_kept(known.get(one.run_id), settings.runs_root / one.run_id)) is not None
    }
    return RecordsPlan(plan_thinning(listed, kept, limits), kept)


def _is_slurm(run: Run) -> bool:
    return run.backend == "slurm"


def _why_kept(known: KnownRun | None, run_dir: Path) -> str | None:
    """Why the records of a run stay; None if they may be thinned."""
    if known is None:
        return "it cannot be read"
    if known.alive_because is not None:
        return known.alive_because
    if known.run.is_open_drill:
        return "its drill has no answer yet"
    if _owner(run_dir) != os.geteuid():
        return "it is not a directory of yours"
    return None


def _owner(path: Path) -> int | None:
    try:
        return None if path.is_symlink() else path.lstat().st_uid
    except OSError:
        return None


def perform(
    steps: Iterable[ThinStep], settings: Settings, on_problem: Callable[[str], None]
) -> Iterator[Volume]:
    """Perform the steps one by one; yields the volume that each one freed. Raises UserError if coach may not
    change anything."""
    refuse_if_readonly(settings, "thins no records", Switch.CLEAN)
    with _alone(settings.cache_dir):
        for step in steps:
            try:
                yield thin_part(settings.runs_root / step.run_id, step.part)
            except OSError as error:
                on_problem(f"{step.run_id}: {step.part}: {error.strerror or error}")
                yield Volume()


@contextlib.contextmanager
def _alone(cache_dir: Path) -> Iterator[None]:
    """Hold the lock against other processes that thin. The kernel releases it when the process ends for any
    reason. Raises UserError while another process holds it."""
    path = cache_dir / LOCK_FILE
    try:
        runs.make_private(cache_dir)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError("another coach thins records now", "try again when it is done") from None
    finally:
        os.close(descriptor)


def thin_part(run_dir: Path, part: Part) -> Volume:
    """Replace one part of a run's records by one coarser file. Returns the volume freed.

    Raises OSError, also for a part with a file of another kind; the part is then unchanged.
    """
    folder = run_dir / part.value
    recover(folder)
    if not folder.is_dir():
        return Volume()
    if folder.is_symlink() or _owner(folder) != os.geteuid():
        raise PermissionError(1, "not a directory of yours")
    files = _files_of(folder, part)
    sizes = [path.stat() for path in files]
    before = Volume(len(files), sum(found.st_size for found in sizes))
    if not files:
        return Volume()
    every = _every(before.size_bytes)
    new = folder.with_name(f".{folder.name}{_NEW}")
    new.mkdir(mode=0o700)
    target = new / (files[0].name if len(files) == 1 else runs.PACKED_RECORDS)
    lines = _metrics_lines if part is Part.METRICS else _telemetry_lines
    try:
        with target.open("wb") as file:
            file.writelines(lines(files, every))
            file.flush()
            os.fsync(file.fileno())
        if target.stat().st_size > LOOSE_BYTES:
            _drop_evenly(target)
        newest_s = max(found.st_mtime for found in sizes)
        os.utime(target, (newest_s, newest_s))  # a run with a fresh file counts as alive
        after = Volume(1, target.stat().st_size)
        _swap(folder, new)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return before - after


def recover(folder: Path) -> None:
    """Tidy up after a process that was killed while it thinned a part. Raises OSError."""
    new, gone = folder.with_name(f".{folder.name}{_NEW}"), folder.with_name(f".{folder.name}{_GONE}")
    if gone.is_dir() and not folder.exists():
        gone.rename(folder)
    for rest in (new, gone):
        is_needed = rest == gone and not folder.exists()
        if rest.is_dir() and not rest.is_symlink() and not is_needed:
            shutil.rmtree(rest)


def _swap(folder: Path, new: Path) -> None:
    gone = folder.with_name(f".{folder.name}{_GONE}")
    found = folder.stat()
    folder.rename(gone)
    try:
        new.rename(folder)
    except OSError:
        gone.rename(folder)
        raise
    os.utime(folder, (found.st_atime, found.st_mtime))
    shutil.rmtree(gone)


def _files_of(folder: Path, part: Part) -> list[Path]:
    """The files of a part, rotated ones of a node before its live one. Raises OSError for a file that coach
    did not write: a part with such a file stays as it is."""
    pattern = _RANK_NAME if part is Part.METRICS else _TELEMETRY_NAME
    places = [folder, folder / "old"] if part is Part.TELEMETRY else [folder]
    found: list[Path] = []
    for place in places:
        for path in sorted(place.iterdir()) if place.is_dir() and not place.is_symlink() else ():
            if path.name == "old" and part is Part.TELEMETRY:
                continue
            if path.name.startswith(".") and path.is_file():
                continue  # a sampler's lock, or a part it had not merged
            is_known = path.name == runs.PACKED_RECORDS or pattern.fullmatch(path.name)
            if path.is_symlink() or not path.is_file() or not is_known:
                raise FileExistsError(17, f"{path.name} is not a file of coach")
            found.append(path)
    return sorted(found, key=_place_in_time)


def _place_in_time(path: Path) -> tuple[int, str, bool, int]:
    """The key that sorts the files of a part by age: packed ones before all others, because they hold what
    was thinned earlier."""
    is_rotated = path.parent.name == "old"
    if path.name == runs.PACKED_RECORDS:
        return int(is_rotated), "", False, 0
    match = _TELEMETRY_NAME.fullmatch(path.name)
    if not is_rotated or match is None:
        return 2, path.stem, True, 0
    return 2, match["node"], False, int(match["number"] or 0)


def _every(size_bytes: int) -> int:
    """Keep one record in this many: a power of two, so that a file thinned twice stays evenly spaced."""
    every = 1
    while size_bytes / every > PACKED_BYTES:
        every *= 2
    return every


def _telemetry_lines(files: Sequence[Path], every: int) -> Iterator[bytes]:
    """Thinned telemetry, with a gap for each node that reports the thinning. The shares of an earlier
    thinning and of this one multiply."""
    for path in files:
        with path.open("rb") as lines:
            earlier: list[bytes] = []
            is_noted = every == 1
            for line in thinned(_aside_from_notes(_whole_lines(lines), earlier), every):
                if earlier:
                    yield from (_note_again(each, every) for each in earlier)
                    earlier.clear()
                    is_noted = True
                if not is_noted:
                    record = _record(line)
                    if record is None:
                        continue  # a full disk cut this line
                    yield _note(record, every)
                    is_noted = True
                yield line


def _aside_from_notes(lines: Iterable[bytes], notes: list[bytes]) -> Iterator[bytes]:
    """All lines but the notes of earlier thinnings, which are put into `notes`."""
    for line in lines:
        if _SHARE.search(line):
            notes.append(line)
        else:
            yield line


def _note_again(note: bytes, every: int) -> bytes:
    """The note of an earlier thinning, with the share that is left now."""
    return _SHARE.sub(lambda share: b"%s%d" % (share[1], int(share[2]) * every), note)


def _record(line: bytes) -> Mapping[str, Any] | None:
    return next(iter(runs.decode_records(line)[0]), None)


def _note(record: Mapping[str, Any], every: int) -> bytes:
    """The gap by which a chart shows that telemetry was thinned. `record` is the first one that is left."""
    return runs.encode_record(
        {
            "kind": "gap",
            "time_s": record.get("time_s"),
            "node": record.get("node"),
            "what": "records",
            "because": f"thinned to fit the limit of records: one sample of {every} is left",
            "how": "set records.max_size in config.toml to a larger size before the next run",
        }
    )


def _metrics_lines(files: Sequence[Path], every: int) -> Iterator[bytes]:
    """Every nth step of each rank, its last step, and all events, after a note for the curve that steps are
    missing. If there are several ranks, each record names its own."""
    for path in files:
        match = _RANK_NAME.fullmatch(path.name)
        with path.open("rb") as lines:
            named = (
                line if match is None or len(files) == 1 else _with_rank(line, int(match["rank"]))
                for line in _whole_lines(lines)
            )
            yield from _thinned_steps((line for line in named if line is not None), every)


def _thinned_steps(lines: Iterable[bytes], every: int) -> Iterator[bytes]:
    """Thin the lines of one file. If it begins with a note of an earlier thinning, the two factors
    multiply."""
    num_steps, last, noted = 0, b"", False
    for line in lines:
        is_note = not noted and _NOTE in line
        if not noted and (every > 1 or is_note):
            yield _note_of_steps(line, every)
        noted = True
        if is_note:
            continue
        if b'"event":' in line:
            yield line
            continue
        if num_steps % every == 0:
            yield line
            last = b""
        else:
            last = line
        num_steps += 1
    if last:
        yield last


def _note_of_steps(line: bytes, every: int) -> bytes:
    """The event that opens a thinned file; a curve's caption shows it."""
    first, _, _ = runs.decode_records(line)
    record = first[0] if first else {}
    earlier = record.get("every") if record.get("event") == THINNED_EVENT else None
    note = {"event": THINNED_EVENT, "every": every * (earlier if isinstance(earlier, int) else 1)}
    rank = {"rank": record["rank"]} if "rank" in record else {}
    return runs.encode_record({**rank, **note})


def _with_rank(line: bytes, rank: int) -> bytes | None:
    """The record with its rank; None for a torn line."""
    if not line.startswith(b"{") or not line.endswith(b"}\n"):
        return None
    return b'{"rank":%d,%s' % (rank, line[1:])


def _whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Drop the torn last line of a file whose writer was killed."""
    return (line for line in lines if line.endswith(b"\n"))


def _drop_evenly(path: Path) -> None:
    """Halve a file of events until it is small enough."""
    size_bytes = path.stat().st_size
    every = _every(size_bytes)
    rest = path.with_name(f".{path.name}")
    with path.open("rb") as lines, rest.open("wb") as file:
        file.writelines(line for number, line in enumerate(lines) if number % every == 0)
        file.flush()
        os.fsync(file.fileno())
    rest.replace(path)
