"""The files of a job that coach did not launch: where Slurm says it writes, and what its directory holds from the time that it ran.

A foreign job promises no layout, so its directory is looked through for names that frameworks are known to write: bounded in depth
and in entries, because the directory may be somebody's home. What is not the job's for certain, by name or by time, is not taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from coach.model.cluster import Job, is_final
from coach.sources.io import Io
from coach.sources.job_files import OutputPaths

MAX_DEPTH = 4
"""Directories below the one that is looked through: torchrun keeps the logs of a rank four levels down."""
MAX_ENTRIES = 2000
MAX_FILES = 64
"""So many files of one kind are read, the newest."""

_BEFORE_S = 60.0
"""Clocks of nodes and of file servers differ by so much."""
_AFTER_S = 600.0
"""What a job wrote last may carry a time after its end: buffers are flushed late on a network file system."""
_AGAIN_S = 120.0

_FILE = re.compile(
    r"\.(?:py|pyc|pt|pth|bin|json|jsonl|csv|tsv|out|err|log|txt|md|ya?ml|toml|cfg|ini|sh|sbatch|slurm|png|jpe?g|svg|pdf"
    r"|npy|npz|h5|pkl|safetensors|onnx|tar|t?gz|zip|zst|xz|bz2|parquet|arrow|lmdb|db|ipynb|so|o|a|c|cc|cpp|cu|cuh|h|hpp|sif|whl|lock)$",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"^\.|^(?:__pycache__|node_modules|site-packages|venv|conda|miniconda\d?|anaconda\d?|envs|pkgs|wandb)$"
)


class Kind(Enum):
    """What is looked for; the value is what it is called."""

    SLURM_LOG = "logs named by the job"
    RANK_LOG = "torchrun's logs of each rank"
    METRICS = "metrics.csv, trainer_state.json, TensorBoard events"
    DUMP = "flight-recorder dumps"


_RANK_LOG = re.compile(r"(?:^|/)attempt_\d+/\d+/(?:stdout|stderr)\.log$")
_METRICS = re.compile(r"(?:^|/)(?:metrics\.csv|trainer_state\.json|events\.out\.tfevents\.[^/]+)$")
_DUMP = re.compile(r"(?:^|/)\w*trace_rank_?\d+$")
_LOG = re.compile(r"\.(?:out|err|log|txt)$")


@dataclass(frozen=True, slots=True)
class Found:
    """What a directory holds. `is_whole` is False where it was too large to be looked through."""

    directory: Path
    files: Mapping[Kind, tuple[Path, ...]] = field(default_factory=dict)
    is_whole: bool = True
    problem: str | None = None

    def of(self, *kinds: Kind) -> tuple[Path, ...]:
        return tuple(path for kind in kinds for path in self.files.get(kind, ()))


def find_files(
    io: Io, directory: Path, is_kind: Callable[[str], Kind | None], from_s: float, to_s: float
) -> Found:
    """Look through a directory. `is_kind` is given each path in it; what carries no job's name must be of the time that is meant."""
    found: dict[Kind, list[tuple[float, Path]]] = {}
    walk = _Walk(io, directory)
    for path in walk.paths():
        kind = is_kind(path)
        if kind is None:
            continue
        try:
            modified_s = io.modified_s(directory / path)
        except OSError:
            continue
        if kind is Kind.SLURM_LOG or from_s <= modified_s <= to_s:
            found.setdefault(kind, []).append((modified_s, directory / path))
    newest = {
        kind: tuple(sorted(path for _, path in sorted(files)[-MAX_FILES:])) for kind, files in found.items()
    }
    return Found(directory, newest, walk.is_whole, walk.problem)


class _Walk:
    """Breadth first, so that a deep tree hides nothing that lies above it."""

    def __init__(self, io: Io, root: Path) -> None:
        self.is_whole = True
        self.problem: str | None = None
        self._io = io
        self._root = root

    def paths(self) -> Iterator[str]:
        folders, num_left = [("", 0)], MAX_ENTRIES
        while folders:
            folder, depth = folders.pop(0)
            try:
                names = self._io.list_dir(self._root / folder)
            except OSError as error:
                if not folder:
                    self.problem = error.strerror or str(error)
                continue  # a file, most often
            if len(names) > num_left:
                names, self.is_whole = names[:num_left], False
            num_left -= len(names)
            for name in names:
                path = f"{folder}/{name}" if folder else name
                yield path
                if depth < MAX_DEPTH and not _FILE.search(name) and not _LEFT_OUT.search(name):
                    folders.append((path, depth + 1))


def kind_of(path: str) -> Kind | None:
    """By the names that frameworks give; any log is one where nobody says whose it is to be."""
    return _common_kind(path) or (Kind.SLURM_LOG if _LOG.search(path) else None)


def kind_for(job: Job) -> Callable[[str], Kind | None]:
    """The same for one job: a log by its name only where the job's number stands in it."""
    numbers = {job.job_id, job.raw_job_id} - {None}
    named = re.compile(rf"(?<!\d)(?:{'|'.join(re.escape(str(number)) for number in numbers)})(?![\d_])")

    def kind(path: str) -> Kind | None:
        name = path.rpartition("/")[2]
        return _common_kind(path) or (Kind.SLURM_LOG if _LOG.search(name) and named.search(name) else None)

    return kind


def _common_kind(path: str) -> Kind | None:
    for kind, pattern in ((Kind.RANK_LOG, _RANK_LOG), (Kind.METRICS, _METRICS), (Kind.DUMP, _DUMP)):
        if pattern.search(path):
            return kind
    return None


class JobFiles:
    """The files of one foreign job, by whoever knows them. While it runs its directory is looked through again from time to time.

    `logs` and `metrics` that a person names take the place of what would be found.
    """

    def __init__(
        self,
        io: Io,
        job_id: str,
        output_paths: OutputPaths,
        named_logs: tuple[Path, ...] = (),
        named_metrics: tuple[Path, ...] = (),
    ) -> None:
        self._io = io
        self._job_id = job_id
        self._output_paths = output_paths
        self._named_logs = named_logs
        self._named_metrics = named_metrics
        self._found: Found | None = None
        self._looked_s = -math.inf

    def logs(self) -> tuple[Path, ...]:
        """What Slurm names first: its output, then its errors. Raises OSError when nobody knows any."""
        if self._named_logs:
            return self._named_logs
        told = self._output_paths.of(self._job_id)
        found = self.found()
        more = found.of(Kind.SLURM_LOG, Kind.RANK_LOG) if found is not None else ()
        return tuple(dict.fromkeys((*told, *more)))

    def metrics(self) -> tuple[Path, ...]:
        found = self.found() if not self._named_metrics else None
        return self._named_metrics or (found.of(Kind.METRICS) if found is not None else ())

    def found(self) -> Found | None:
        """None for a job that has not started, or whose directory nobody knows."""
        job = self._output_paths.row(self._job_id)
        if job is None or job.work_dir is None or job.state == "PENDING" or "[" in job.job_id:
            return None
        if self._found is None or not self._looked_s <= self._io.now() < self._looked_s + _AGAIN_S:
            started_s = job.start_time_s if job.start_time_s is not None else job.submit_time_s
            ended_s = job.end_time_s if is_final(job.state) else None
            from_s = math.inf if started_s is None else started_s - _BEFORE_S
            to_s = math.inf if ended_s is None else ended_s + _AFTER_S
            self._looked_s = self._io.now()
            self._found = find_files(self._io, Path(job.work_dir), kind_for(job), from_s, to_s)
        return self._found
