"""Find the checkpoints among a directory's files, their framework, and whether they are complete.

Only the two ends of a file are read: formats state their length at one end or close with a mark, so a file of
many GB costs two small reads. Nothing is unpickled, because other people's checkpoints may run code.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath

from coach.model.training.checkpoint_files import Saved
from coach.sources.io import Io

_ZIP_BEGINS, _ZIP_ENDS = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_TAIL_BYTES = 1 << 10
"""torch writes no comment behind the mark, so it is within the last 22 bytes; other programs add padding."""
_MAX_HEADER_BYTES = 1 << 26
"""safetensors' own limit is 100 MB; the header of a model with 100,000 tensors has 10 MB."""
_MAX_FILE_BYTES = 1 << 63
_MAX_LOOKED_AT = 6
"""Largest number of torn checkpoints in a row; a directory with more has another problem."""

_FILE = re.compile(r"\.(?:pt|pth|ckpt|safetensors)$")
_SHARE = re.compile(r"(?:^|/)(?:(?:bf16_)?zero_pp_rank_\d+_)?mp_rank_\d+_(?:model|optim)_states\.pt$")
_OPTIMIZER_SHARE = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_HUGGING_FACE = re.compile(r"(?:^|/)checkpoint-\d+$")
_WEIGHTS = re.compile(r"/(?:pytorch_model|model|adapter_model|optimizer)[\w-]*\.(?:bin|pt|safetensors)$")
_STEP = re.compile(
    r"(?:checkpoint|global_step|step|iter(?:ation)?|ckpt)[=_-]?(\d{1,18})(?!\d)"
    r"(?!.{0,200}(?:step|iter)[=_-]?\d)",
    re.IGNORECASE,
)
_LIGHTNING = re.compile(
    r"epoch=\d.{0,200}\.ckpt$|(?:^|/)lightning_logs/.{0,1000}\.ckpt$|(?:^|/)last(?:-v\d+)?\.ckpt$"
)


def groups(paths: Iterable[str]) -> dict[str, list[str]]:
    """Path of each checkpoint → its files. A directory of a known kind includes all files in it; every other
    file is a checkpoint of its own."""
    known = sorted(set(paths))
    folders = _folders_of(known)
    outermost = {folder for folder in folders if _nearest_above(folder, folders) is None}
    found: dict[str, list[str]] = {}
    for path in known:
        above = _nearest_above(path, outermost)
        if above is not None:
            found.setdefault(above, []).append(path)
        elif _FILE.search(path) and path not in outermost:
            found[path] = [path]
    return found


def _folders_of(paths: Iterable[str]) -> set[str]:
    """The directories that are one checkpoint each, identified by their names or by a file in them."""
    folders: set[str] = set()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if _HUGGING_FACE.search(path):
            folders.add(path)
        if folder and (name == ".metadata" or name.endswith(".distcp") or _SHARE.search(path)):
            folders.add(folder)
    return folders


def _nearest_above(path: str, folders: Collection[str]) -> str | None:
    return next((str(up) for up in PurePosixPath(path).parents if str(up) in folders), None)


def newest_saved(
    io: Io,
    directory: Path,
    paths: Iterable[str],
    from_s: float,
    writers_of: Callable[[str, float], tuple[str, ...]] = lambda path, time_s: (),
) -> tuple[Saved, ...]:
    """Checkpoints that were written at or after `from_s`, newest first, down to the newest complete one.

    `writers_of` gets a path and its time, and returns the other jobs that may have written it. Of such
    checkpoints only the newest is returned, and none that is older than the newest complete one.
    """
    dated = []
    for path, files in groups(paths).items():
        times = [time_s for file in files if (time_s := _modified_s(io, directory / file)) is not None]
        if times and max(times) >= from_s:
            dated.append((max(times), path, files))
    found: list[Saved] = []
    num_own = 0
    for time_s, path, files in sorted(dated, reverse=True):
        if num_own == _MAX_LOOKED_AT:
            break
        if writers := writers_of(path, time_s):
            if not any(each.may_be_of for each in found):
                made_by, torn = _judge(io, directory, path, files)
                found.append(Saved(str(directory / path), made_by, step_of(path), time_s, torn, writers))
            continue
        num_own += 1
        made_by, torn = _judge(io, directory, path, files)
        found.append(Saved(str(directory / path), made_by, step_of(path), time_s, torn))
        if torn is None:
            break
    return tuple(found)


def without_steps(path: str) -> str:
    """The path without the numbers that are steps: `ckpt-17/step_80.pt` becomes `ckpt-17/.pt`."""
    return _STEP.sub("", path)


def step_of(path: str) -> int | None:
    """The step in the last part of the path that contains one; else None."""
    for part in reversed(PurePosixPath(path).parts):
        if match := _STEP.search(part):
            return int(match[1])
    return None


def why_torn(io: Io, path: Path) -> str | None:
    """Why a file is incomplete, judged by its ends; None if it is complete, or if its format does not
    tell."""
    size = io.size(path)
    if size == 0:
        return "it is empty"
    if path.suffix == ".safetensors":
        return _why_torn_safetensors(io, path, size)
    if io.read(path, 0, len(_ZIP_BEGINS)) != _ZIP_BEGINS:
        return None
    tail = io.read(path, max(0, size - _ZIP_TAIL_BYTES), _ZIP_TAIL_BYTES)
    return None if _ZIP_ENDS in tail else "its end is missing"


def _why_torn_safetensors(io: Io, path: Path, size: int) -> str | None:
    head = io.read(path, 0, 8)
    if len(head) < 8:
        return "its end is missing"
    (length,) = struct.unpack("<Q", head)
    if not 2 <= length <= _MAX_HEADER_BYTES:
        return "its header is broken"
    try:
        header = json.loads(io.read(path, 8, length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        missing = 8 + length + min(max(ends, default=0), _MAX_FILE_BYTES) - size
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return "its header is broken" if 8 + length <= size else "its end is missing"
    return f"it ends {missing:,} bytes early" if missing > 0 else None


def _judge(io: Io, directory: Path, path: str, files: list[str]) -> tuple[str, str | None]:
    """(framework, why the checkpoint is torn or None)."""
    if files == [path]:
        return _maker_of_file(path), _of_file(io, directory / path)
    names = {file[len(path) + 1 :] for file in files}
    if _HUGGING_FACE.search(path):
        return "Hugging Face", _why_torn_hugging_face(io, directory, path, files, names)
    shares = [file for file in files if _SHARE.search(file)]
    if shares:
        torn = _first_torn(io, directory, path, shares) or _gap(files)
        return "DeepSpeed", torn or _is_not_latest(io, directory / path)
    torn = None if ".metadata" in names else ".metadata, which is written last, is missing"
    return "torch.distributed.checkpoint", torn


def _maker_of_file(path: str) -> str:
    if path.endswith(".safetensors"):
        return "safetensors"
    return "Lightning" if _LIGHTNING.search(path) else "PyTorch"


def _why_torn_hugging_face(
    io: Io, directory: Path, path: str, files: list[str], names: set[str]
) -> str | None:
    if "trainer_state.json" not in names:
        return "trainer_state.json is missing"
    judged = [file for file in files if _WEIGHTS.search(file) or _SHARE.search(file)]
    shards = _missing_shards(io, directory, path, names)
    return shards or _first_torn(io, directory, path, judged) or _gap(files)


def _first_torn(io: Io, directory: Path, folder: str, files: Iterable[str]) -> str | None:
    for file in files:
        if torn := _of_file(io, directory / file):
            return f"{file[len(folder) + 1 :]}: {torn}"
    return None


def _of_file(io: Io, path: Path) -> str | None:
    try:
        return why_torn(io, path)
    except OSError as error:
        return error.strerror or "it cannot be read"


def _missing_shards(io: Io, directory: Path, path: str, names: set[str]) -> str | None:
    """The first file that the index of a sharded model names and that is missing."""
    index = next(
        (name for name in sorted(names) if name.endswith((".safetensors.index.json", ".bin.index.json"))),
        None,
    )
    if index is None:
        return None
    try:
        file = directory / path / index
        wanted = set(json.loads(io.read(file, 0, _MAX_HEADER_BYTES))["weight_map"].values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{index}: it cannot be read"
    missing = sorted(str(name) for name in wanted - names)
    return f"{missing[0]} is missing" if missing else None


def _gap(files: Iterable[str]) -> str | None:
    """The first rank whose part of the optimizer is missing between others."""
    ranks = {int(match[1]) for file in files if (match := _OPTIMIZER_SHARE.search(file))}
    missing = next((place for place, rank in enumerate(sorted(ranks)) if rank != place), None)
    return None if missing is None else f"the share of rank {missing} is missing"


def _is_not_latest(io: Io, folder: Path) -> str | None:
    """DeepSpeed writes a checkpoint's name to `latest` after all ranks have written their parts: a checkpoint
    of a later step is unfinished."""
    try:
        latest = io.read(folder.parent / "latest", 0, 200).decode("utf-8", "replace").strip()
    except OSError:
        return None
    named, step = step_of(latest), step_of(folder.name)
    is_later = named is not None and step is not None and step > named
    return f"`latest` names {latest}, an earlier one" if is_later else None


def _modified_s(io: Io, path: Path) -> float | None:
    try:
        return io.modified_s(path)
    except OSError:
        return None
