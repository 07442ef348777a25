"""Find logs, metrics and dumps in a directory by the names that frameworks give.

The search is bounded in depth and entries: the directory may be somebody's home, or hold a data set of a
million files. In a directory that a person names it stays inside: a link may lead to somebody else's secret.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path

from coach.model.training.log import Signature
from coach.sources.io import Io
from coach.sources.metrics import mlflow_database
from coach.sources.metrics.stack_dumps import PY_SPY_DUMP

MAX_DEPTH = 4
"""Levels below the start directory that are searched: torchrun keeps a rank's logs four levels down."""
MAX_ENTRIES = 2000
MAX_FILES = 64
"""Files of one kind that are read at most, and runs of wandb that are searched: the newest. Of the
flight-recorder dumps all are returned: each rank has one."""
_AGAIN_S = 120.0
"""Seconds until a directory is searched again: files appear after the training has begun."""
_MAX_NAMED = 3
"""Other jobs that are named as possible writers of a file."""
_NUMBERS = "NUM"
"""The family of rules that judge the numbers of a training."""

_FILE = re.compile(
    r"\.(?:py|pyc|pt|pth|bin|json|jsonl|csv|tsv|out|err|log|txt|md|ya?ml|toml|cfg|ini|sh|sbatch|slurm|png"
    r"|jpe?g|svg|pdf"
    r"|npy|npz|h5|pkl|safetensors|onnx|tar|t?gz|zip|zst|xz|bz2|parquet|arrow|lmdb|db|ipynb|so|o|a|c|cc|cpp|cu"
    r"|cuh|h|hpp|sif|whl|lock|wandb)$",
    re.IGNORECASE,
)
_NO_FOLDER = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|site-packages|venv|conda|miniconda\d?|anaconda\d?"
    r"|envs|pkgs)$"
    rf"|{_FILE.pattern}",
    re.IGNORECASE,
)
_WANDB_RUN = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-\w+")
_RUN_FOLDER = re.compile(rf"(?:^|/)(?:{_WANDB_RUN.pattern}|[0-9a-f]{{32}})$")
"""The run folders of wandb and MLflow hold hundreds of files in folders, and coach needs none of them."""


class Kind(Enum):
    """The kind of a file by its name; the value is its name in messages."""

    LOG = "logs"
    STEP_LOG = "logs that its script names"
    RANK_LOG = "torchrun's logs of each rank"
    METRICS = "metrics.csv, trainer_state.json, TensorBoard events, wandb's and MLflow's files"
    DUMP = "flight-recorder dumps"


_NAMES = {
    Kind.RANK_LOG: re.compile(r"(?:^|/)attempt_\d+/\d+/(?:stdout|stderr)\.log$"),
    Kind.METRICS: re.compile(
        r"(?:^|/)(?:metrics\.(?:csv|jsonl)|trainer_state\.json|events\.out\.tfevents\.[^/]+|run-\w+\.wandb"
        r"|[0-9a-f]{32}/meta\.yaml|mlflow\.db(?:/\w+)?)$"
    ),
    Kind.DUMP: re.compile(
        r"(?:^|/)(?:[^/]*(?:trace_rank_?|fr_trace_|_dump_)|comm_traces/rank_)\d{1,6}$"
        rf"|{PY_SPY_DUMP.pattern}"
    ),
    Kind.LOG: re.compile(r"\.(?:out|err|log|txt)$"),
}


TRAINING_TABLE = re.compile(
    r"(?:^|/)(?:(?:train(?:ing|er)?[_-])?(?:log|logs|history|progress|results)|train(?:ing)?)"
    r"\.(?:csv|tsv|jsonl)$"
)
"""More names of metric files, from Keras' CSVLogger, ultralytics, LLaMA-Factory and similar: trusted only
beside a program that is known to train, and in a directory that a person names."""
_TABLE = re.compile(r"\.(?:[ct]sv|jsonl|log\.json)$|(?:^|/)scalars\.json$")
"""Names of any table: `coach check FILE` reads each of them, but a data set has such names too."""
_BARE_LOG = re.compile(r"(?:^|/)[^/.]*(?:log|out|err)[^/.]*$|\.(?:out|err|log|txt)\.\d{1,3}$")
"""Names of logs without a suffix (`train_output`), and of the older part of one (`nohup.out.1`)."""


def kind_of(path: str) -> Kind | None:
    """The kind of a file by the names that frameworks give; any log counts."""
    return next((kind for kind, pattern in _NAMES.items() if pattern.search(path)), None)


def find_inside(io: Io, directory: Path) -> Found:
    """The files of a directory that a person names. Tables of any name, then logs without a suffix, are read
    only where there is nothing else."""
    for names, kind in ((TRAINING_TABLE, Kind.METRICS), (_TABLE, Kind.METRICS), (_BARE_LOG, Kind.LOG)):
        find_kind = partial(_kind_inside, directory, names, kind)
        found = find_files(io, directory, find_kind, stays_inside=True)
        if found.files:
            break
    return found


def _kind_inside(directory: Path, names: re.Pattern[str], kind: Kind, path: str) -> Kind | None:
    """The kind of a file: `kind` for a name of `names`. The directory's name may tell what lies in it."""
    return kind_of(f"{directory.name}/{path}") or (kind if names.search(path) else None)


def is_metrics(path: Path) -> bool:
    """True if a file that a person names holds metrics, False if it is a log.

    ultralytics writes `results.csv`.
    """
    return kind_of(str(path)) is Kind.METRICS or path.name == "results.csv"


class Walk:
    """Searches breadth first, so that a deep tree hides no file above it. In a folder with too many entries,
    the files that `is_wanted` names come first, then folders, then other files."""

    def __init__(
        self,
        io: Io,
        root: Path,
        is_wanted: Callable[[str], object] = lambda path: False,
        *,
        max_depth: int = MAX_DEPTH,
        stays_inside: bool = False,
    ) -> None:
        self.is_whole = True
        self.problem: str | None = None
        self.links_out: list[str] = []
        """The links that lead out of a root that must not be left."""
        self._io, self._root, self._is_wanted, self._max_depth = io, root, is_wanted, max_depth
        self._inside = io.real_path(root) if stays_inside else None
        self._walked = {self._inside}

    def paths(self) -> Iterator[str]:
        """The paths below the root, at most MAX_ENTRIES."""
        folders, num_left = [("", 0)], MAX_ENTRIES
        while folders:
            if num_left == 0:
                self.is_whole = False
                return
            folder, depth = folders.pop(0)
            if folder and not self._may_enter(folder):
                continue
            paths = self._listed(folder)
            if len(paths) > num_left:
                paths, self.is_whole = sorted(paths, key=self._rank)[:num_left], False
            num_left -= len(paths)
            yield from paths
            if depth < self._max_depth and not _RUN_FOLDER.search(folder):
                folders += [(path, depth + 1) for path in paths if not _NO_FOLDER.search(path)]

    def _listed(self, folder: str) -> list[str]:
        """The paths in a folder; none in a file."""
        try:
            names = self._io.list_dir(self._root / folder)
        except OSError as error:
            if not folder:
                self.problem = error.strerror or str(error)
            return []
        if folder.rpartition("/")[2] == "wandb":  # `latest-run` is a link to one of the runs
            runs = sorted((found[1], found[0]) for found in map(_WANDB_RUN.fullmatch, names) if found)
            names = [name for _, name in runs[-MAX_FILES:]]
        return [f"{folder}/{name}" if folder else name for name in names]

    def may_read(self, path: str) -> bool:
        """False for a link that leads out of a root that must not be left."""
        if self._inside is None or self._io.real_path(self._root / path).is_relative_to(self._inside):
            return True
        self.links_out.append(path)
        return False

    def _may_enter(self, folder: str) -> bool:
        """False also for a folder that was searched under another name: a link may lead back."""
        if self._inside is None:
            return True
        if not self.may_read(folder):
            return False
        real = self._io.real_path(self._root / folder)
        is_new = real not in self._walked
        self._walked.add(real)
        return is_new

    def _rank(self, path: str) -> int:
        if self._is_wanted(path):
            return 0
        return 2 if _FILE.search(path) else 1


@dataclass(frozen=True, slots=True)
class Found:
    """The files in a directory; `directory` is None if it is not known, or if the job has not started.
    `is_whole` is False if it was too large to be searched completely."""

    directory: Path | None
    files: Mapping[Kind, tuple[Path, ...]] = field(default_factory=dict)
    is_whole: bool = True
    problem: str | None = None
    links_out: tuple[str, ...] = ()
    """Links that lead out of the directory, and are not followed."""
    left_out: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    """Files that may be another job's → the jobs that may have written them."""
    sharers: tuple[str, ...] = ()
    """Jobs that wrote to the job's output file at the same time."""
    is_completed: bool = False
    does_script_name_logs: bool = False

    def of(self, *kinds: Kind) -> tuple[Path, ...]:
        return tuple(path for kind in kinds for path in self.files.get(kind, ()))


def find_files(
    io: Io,
    directory: Path,
    kind_of: Callable[[str], Kind | None],
    owns: Callable[[Path, float], bool] = lambda path, time_s: True,
    *,
    max_depth: int = MAX_DEPTH,
    stays_inside: bool = False,
) -> Found:
    """The newest files of each kind in a directory. `kind_of` gets each path in it; `owns` decides about a
    file and the time of its last change."""
    walk = Walk(io, directory, kind_of, max_depth=max_depth, stays_inside=stays_inside)
    dated: dict[Kind, list[tuple[float, Path]]] = {}
    for name in walk.paths():
        kind = kind_of(name)
        if kind is not None and walk.may_read(name):
            own = [(time_s, path) for time_s, path in _dated(io, directory / name) if owns(path, time_s)]
            dated.setdefault(kind, []).extend(own[-1:])
    limits = {Kind.DUMP: MAX_ENTRIES}
    newest = {kind: sorted(each)[-limits.get(kind, MAX_FILES) :] for kind, each in dated.items() if each}
    files = {kind: tuple(sorted(path for _, path in each)) for kind, each in newest.items()}
    return Found(directory, files, walk.is_whole, walk.problem, tuple(walk.links_out))


def _dated(io: Io, path: Path) -> list[tuple[float, Path]]:
    """The file with the time of its last change. All runs write to MLflow's database: its runs, each with the
    time when it began."""
    try:
        if path.name != mlflow_database.NAME:
            return [(io.modified_s(path), path)]
    except OSError:
        return []
    runs = mlflow_database.read_runs(io, path)
    return [(run.start_s, mlflow_database.path_of(path, run.run_id)) for run in runs]


class ForeignFiles:
    """The files of a target whose files must be found. `look` is called from time to time: they appear after
    the training has begun.

    `named_by_slurm` returns the target's output files. `logs` and `metrics` that a person names replace those
    that would be found.
    """

    def __init__(
        self,
        io: Io,
        look: Callable[[], Found],
        named_by_slurm: Callable[[], tuple[Path, ...]] = tuple,
        logs: tuple[Path, ...] = (),
        metrics: tuple[Path, ...] = (),
    ) -> None:
        self.io = io
        """Opens the files; those of another user's job for that user."""
        self.last = Found(None)
        """The result of the last search."""
        self._look, self._named_by_slurm = look, named_by_slurm
        self._named_logs, self._named_metrics = logs, metrics
        self._looked_s = -math.inf
        self._turn = threading.Lock()

    def logs(self) -> tuple[Path, ...]:
        """The log files. Raises OSError if none is known."""
        if self._named_logs:
            return self._named_logs
        more = self.found().of(Kind.LOG, Kind.STEP_LOG, Kind.RANK_LOG)
        return tuple(dict.fromkeys((*self._named_by_slurm(), *more)))

    def logs_with_numbers(self) -> tuple[Path, ...]:
        """The logs whose numbers are the target's; none if other jobs wrote to its log at the same time: a
        curve of two trainings is wrong for both."""
        return () if self._sharers() else self.logs()

    def signatures(self, known: Sequence[Signature]) -> Sequence[Signature]:
        """The signatures to look for in the logs. If other jobs wrote there too, no numbers count. Then
        nothing in it shows how a completed job went."""
        if not self._sharers():
            return known
        if self.found().is_completed:
            return ()
        return [each for each in known if not each.rule.startswith(_NUMBERS)]

    def metrics(self) -> tuple[Path, ...]:
        return self._named_metrics or self.found().of(Kind.METRICS)

    def dumps(self) -> tuple[Path, ...]:
        """The dumps of torch's flight recorder, and those of py-spy."""
        return self.found().of(Kind.DUMP)

    def found(self) -> Found:
        """The files in its directory. Called by the threads of several sources."""
        with self._turn:
            if not self._looked_s <= self.io.now() < self._looked_s + _AGAIN_S:
                self.last, self._looked_s = self._look(), self.io.now()
            return self.last

    def lines(self) -> list[str]:
        """The searches that found nothing, in words: a missing file may be the reason for a missing
        finding."""
        found, lines = self.found(), []
        if found.directory is None:
            return ["its directory is not known: only the files that Slurm names were looked for"]
        if self._sharers():
            lines.append(
                "the numbers in its log are not read, as other jobs wrote to it at the same time "
                f"({job_names(found.sharers)}): "
                "give each job a log of its own, for example sbatch -o slurm-%j.out"
            )
        where = f"in {found.directory}, {MAX_DEPTH} levels down"
        if found.problem is not None:
            return [*lines, f"{found.directory}: {found.problem}"]
        if found.left_out:
            jobs = job_names(tuple(dict.fromkeys(chain.from_iterable(found.left_out.values()))))
            rivals = f"other files there may belong to other jobs that ran there too ({jobs})"
            return [*lines, f"{where}: {rivals}: name yours with --log, --metrics"]
        sought = [kind for kind in Kind if kind is not Kind.STEP_LOG or found.does_script_name_logs]
        if missing := [kind.value for kind in sought if not found.of(kind)]:
            lines.append(f"not found {where}: {'; '.join(missing)}")
        if not found.is_whole:
            lines.append(f"only the first {MAX_ENTRIES} entries of {found.directory} were looked at")
        if found.links_out:
            links = ", ".join(found.links_out)
            lines.append(f"not followed, as they lead out of {found.directory}: {links}")
        return lines

    def _sharers(self) -> tuple[str, ...]:
        """Jobs that wrote to its log at the same time; none for a log that a person names."""
        return () if self._named_logs else self.found().sharers


def job_names(job_ids: Sequence[str]) -> str:
    """The first ids, and the number of further ones."""
    more = len(job_ids) - _MAX_NAMED
    return ", ".join(job_ids[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def directory_files(
    io: Io, directory: Path, logs: tuple[Path, ...] = (), metrics: tuple[Path, ...] = ()
) -> ForeignFiles:
    """The files of a directory that a person names: all logs and metrics in it, of any age."""
    return ForeignFiles(io, partial(find_inside, io, directory), logs=logs, metrics=metrics)
