"""Find the batch script of a job: in Slurm, in the accounting, or as a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coach.model.errors import UserError
from coach.sources.io import Io, Query, for_user

_MAX_BYTES = 1 << 20
_NUMBER = re.compile(r"\d+")
_KEPT = re.compile(r"(?m)^Batch Script for [^\n]*\n-{20,}\n")
_CONFIG = re.compile(r"--deepspeed(?:_config)?[= ][\"']?([\w./-]+\.json)")


@dataclass(frozen=True, slots=True)
class FoundScript:
    """A batch script that was found; `origin` tells where."""

    text: str
    origin: str
    files: Mapping[str, str]
    """Readable configuration files that the script names: name in the script → content."""
    why_not_kept: str | None = None
    """Why neither Slurm nor the accounting returned its copy: the text is then that of the current file."""


def find_script(io: Io, job_id: str, command: str | None, work_dir: str | None, user: str) -> FoundScript:
    """Slurm's own copy while it remembers the job, else the accounting's copy, else the file, which is opened
    for the job's user. Raises UserError if none of them exists."""
    whys, io = [], for_user(io, lambda: user)
    for origin, argv in _holders(job_id):
        answer = io.run(Query("batch-script", argv))
        text = answer.text
        if argv[0] == "sacct":
            text = parse_kept(text)
        if answer.returncode == 0 and text.strip():
            return _with_files(io, text, f"{origin} ({' '.join(argv)})", work_dir)
        whys.append(f"{argv[0]}: {answer.error or ' '.join(answer.stderr.split()) or 'no script'}")
    submitted = split_command(io, command or "", work_dir)
    if submitted is not None:
        path, _ = submitted
        try:
            text = io.read(path, 0, _MAX_BYTES).decode("utf-8", "surrogateescape")
            found = _with_files(io, text, f"the file of its command as it is now ({path})", work_dir)
            return replace(found, why_not_kept="; ".join(whys))
        except OSError as error:
            whys.append(f"{path}: {error.strerror or error}")
    raise UserError(
        f"job {job_id}: its batch script is not available any more: submit your own copy by sbatch",
        "; ".join(whys),
    )


def split_command(io: Io, command: str, work_dir: str | None) -> tuple[Path, tuple[str, ...]] | None:
    """The submitted file and the words of its arguments. None for a script that came through a pipe or from
    --wrap.

    Slurm joins both by blanks, and a path may have blanks too: the shortest beginning that names a file is
    the path, or the first word if there is no such file any more. An older Slurm reports a relative path as
    it was typed. Accounting reports the whole line of the submission.
    """
    words = command.split(" ")
    if words[0] == "sbatch":
        words = words[_place_of_script(io, words, work_dir) :]
    if not words or not words[0]:
        return None
    for end in range(1, len(words) + 1):
        path = Path(work_dir or "/", " ".join(words[:end]))
        try:
            io.read(path, 0, 1)
        except OSError:
            continue
        return path, tuple(filter(None, words[end:]))
    return Path(work_dir or "/", words[0]), tuple(filter(None, words[1:]))


def _place_of_script(io: Io, words: Sequence[str], work_dir: str | None) -> int:
    """The index of the script in a line of sbatch; past its end if the script cannot be read. The value of an
    option may name a file too, but no script."""
    for place, word in enumerate(words[1:], 1):
        with contextlib.suppress(OSError):
            if io.read(Path(work_dir or "/", word), 0, 2) == b"#!":
                return place
    return len(words)


def _holders(job_id: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(source, command) in the order to try. All tasks of an array have one script, under the array's job
    id."""
    found = _NUMBER.match(job_id)
    number = found[0] if found is not None else job_id
    yield "as Slurm keeps it", ("scontrol", "write", "batch_script", number, "-")
    yield "as accounting keeps it", ("sacct", "-B", "-j", number)


def parse_kept(text: str) -> str:
    """The script in the answer of `sacct -B`, for the newest job with this id; empty if the accounting stores
    no script."""
    script = _KEPT.split(text)[-1] if _KEPT.search(text) else ""
    return "" if script.strip() == "NONE" else script.removesuffix("\n")


def _with_files(io: Io, text: str, origin: str, work_dir: str | None) -> FoundScript:
    return FoundScript(text, origin, dict(_files(io, text, work_dir)))


def _files(io: Io, text: str, work_dir: str | None) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(_CONFIG.findall(text)):
        try:
            yield name, io.read(Path(work_dir or "/", name), 0, _MAX_BYTES).decode("utf-8", "surrogateescape")
        except OSError:
            continue  # the file is elsewhere, or the job itself creates it
