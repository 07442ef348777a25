"""Where jobs that coach did not launch write their output: asked of Slurm once for all of a user's jobs.

squeue tells the paths as they were given, from some versions on without what was left to Slurm (its default name), and `scontrol show
job`, which costs a call per job, does not expand all patterns either (22.05: neither %N nor %5j). So they are expanded here; scontrol
is only asked about a job whose path cannot be known that way.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from pathlib import Path

from coach.sources.io import Io, Query, new_separator
from coach.sources.slurm_text import optional, split_records

_PATH = re.compile(r"^ +(StdOut|StdErr)=(/.*)$", re.MULTILINE)
_PATTERN = re.compile(r"%(\d{0,2})(.)")
_FIRST_HOST = re.compile(r"([^\[,]+)(?:\[(\d+))?")
_RETRY_S = 30.0

_FIELDS = (
    *("jobarrayid", "jobid", "arrayjobid", "arraytaskid", "username", "nodelist", "workdir"),
    *("stdout", "stderr", "name"),
)


def output_paths_query(user: str) -> Query:
    """All jobs of a user, also those that have just ended."""
    separator, record_end = new_separator(), new_separator()
    columns = [f"{field}:{separator}" for field in _FIELDS[:-1]] + [f"{_FIELDS[-1]}:{record_end}"]
    argv = ("squeue", "-h", "-a", "-t", "all", "-u", user, "-O", ",".join(columns))
    return Query("job-files", argv, separator, record_end)


def parse_all_output_paths(text: str, separator: str, record_end: str) -> dict[str, tuple[Path, ...]]:
    """Job id → its StdOut and StdErr, once each. A job whose paths cannot be known from this is left out."""
    found = {}
    for record in split_records(text, separator, record_end):
        if len(record) != len(_FIELDS):
            continue
        row = dict(zip(_FIELDS, record, strict=True))
        stdout = _expand(optional(row["stdout"]) or _default_name(row), row)
        stderr = _expand(optional(row["stderr"]) or optional(row["stdout"]) or _default_name(row), row)
        if stdout is not None and stderr is not None:
            found[row["jobarrayid"]] = tuple(dict.fromkeys((stdout, stderr)))
    return found


def _default_name(row: Mapping[str, str]) -> str:
    return "slurm-%A_%a.out" if optional(row["arraytaskid"]) else "slurm-%j.out"


def _expand(given: str, row: Mapping[str, str]) -> Path | None:
    """sbatch(1), "filename pattern"; None where something in it is not known here."""
    if "\\" in given:
        return None  # it takes the meaning from patterns, in ways that differ by version
    task = optional(row["arraytaskid"])
    host = _FIRST_HOST.match(optional(row["nodelist"]) or "")
    values = {
        "%": "%",
        "j": row["jobid"],
        "A": row["arrayjobid"],
        "a": task if task is None or task.isdecimal() else None,
        "x": row["name"],
        "u": row["username"],
        "N": None if host is None else (host[1] + (host[2] or "")).split(".")[0],
        "b": None if task is None or not task.isdecimal() else str(int(task) % 10),
        "n": "0",
        "t": "0",
    }
    if any(values.get(found[2]) is None for found in _PATTERN.finditer(given)):
        return None
    text = _PATTERN.sub(lambda found: _padded(str(values[found[2]]), found[1]), given)
    return Path(row["workdir"]) / text


def _padded(value: str, width: str) -> str:
    return value.zfill(min(int(width), 10)) if width and value.isdecimal() else value


class OutputPaths:
    """The output paths of a user's jobs: one question, when the first of them is wanted."""

    def __init__(self, io: Io, user: str) -> None:
        self._io = io
        self._user = user
        self._paths: dict[str, tuple[Path, ...]] | None = None

    def of(self, job_id: str) -> tuple[Path, ...] | None:
        """None when they are not known this way: then the job has to be asked about by itself."""
        if self._paths is None:
            result = self._io.run(output_paths_query(self._user))
            text = result.stdout.decode("utf-8", "surrogateescape") if result.returncode == 0 else ""
            query = result.query
            self._paths = parse_all_output_paths(text, query.separator, query.record_end)
        return self._paths.get(job_id)


def parse_output_paths(stdout: bytes) -> tuple[Path, ...]:
    """StdOut and StdErr as `scontrol show job` tells them, once each.

    The last of each counts: a job's name stands earlier in the text and may contain anything, line ends and fields included.
    """
    found = dict(_PATH.findall(stdout.decode("utf-8", "surrogateescape")))
    return tuple(dict.fromkeys(Path(found[key]) for key in ("StdOut", "StdErr") if key in found))


def job_files_query(job_id: str) -> Query:
    return Query(f"job-files {job_id}", ("scontrol", "show", "job", job_id))


class JobFiles:
    """The logs of one job, asked for until Slurm has told them. `known` has been asked for many jobs at once."""

    def __init__(self, io: Io, job_id: str, known: OutputPaths | None = None) -> None:
        self._io = io
        self._job_id = job_id
        self._known = known
        self._paths: tuple[Path, ...] | None = None
        self._error = ""
        self._asked_s: float | None = None

    def __call__(self) -> tuple[Path, ...]:
        """Raises OSError with Slurm's words while they are not known."""
        if self._paths is None and self._known is not None:
            self._paths = self._known.of(self._job_id)
        if self._paths is None and (
            self._asked_s is None or not 0 <= self._io.now() - self._asked_s < _RETRY_S
        ):
            self._asked_s = self._io.now()
            result = self._io.run(job_files_query(self._job_id))
            if result.returncode == 0:
                self._paths = parse_output_paths(result.stdout)
            else:
                words = (result.error or result.stderr).strip().splitlines()
                self._error = words[0] if words else f"scontrol ended with status {result.returncode}"
        if self._paths is None:
            raise OSError(errno.EIO, self._error)
        return self._paths
