"""Find the files of a job that coach did not launch. They are, in this order:

1. the output files that Slurm names;
2. logs that the job's script names, written while it ran;
3. what lies in the job's directory: logs with its number in their name, and files of the names that
   frameworks write, from the time that it ran.

Never another job's: a file that Slurm names as its output, or that has its number, or that changed last while
it ran in the same directory (`Rivals`). The search is bounded in depth and entries: the directory may be
somebody's home.
"""

from __future__ import annotations

import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

from coach.model.slurm.cluster import Job, is_final
from coach.model.training.log import Signature
from coach.sources.io import Io, for_user
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.logs.output_path import names_of, output_paths
from coach.sources.logs.script_outputs import named_outputs
from coach.sources.metrics.mlflow_database import path_of, read_runs
from coach.sources.slurm.kept_script import split_command

MAX_DEPTH = 4
"""Levels below the start directory that are searched: torchrun keeps a rank's logs four levels down."""
MAX_ENTRIES = 2000
MAX_FILES = 64
"""Files of one kind that are read at most, the newest."""

MAX_NAMED = 3
"""Other jobs that are named as possible writers of a file."""
_NUMBERS = "NUM"
"""The family of rules that judge the numbers of a training."""

_BEFORE_S = 60.0
"""Seconds by which the clocks of nodes and file servers may differ."""
_AFTER_S = 600.0
"""Seconds after a job's end in which its files may still change: network file systems flush buffers late."""
_AGAIN_S = 120.0
_MAX_SCRIPT_BYTES = 1 << 16

_FILE = re.compile(
    r"\.(?:py|pyc|pt|pth|bin|json|jsonl|csv|tsv|out|err|log|txt|md|ya?ml|toml|cfg|ini|sh|sbatch|slurm|png"
    r"|jpe?g|svg|pdf"
    r"|npy|npz|h5|pkl|safetensors|onnx|tar|t?gz|zip|zst|xz|bz2|parquet|arrow|lmdb|db|ipynb|so|o|a|c|cc|cpp|cu"
    r"|cuh|h|hpp|sif|whl|lock|wandb)$",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"^\.|^(?:__pycache__|node_modules|site-packages|venv|conda|miniconda\d?|anaconda\d?|envs|pkgs)$"
)


class Kind(Enum):
    """The kind of file searched for; the value is its name in messages."""

    LOG = "logs"
    STEP_LOG = "logs that its script names"
    RANK_LOG = "torchrun's logs of each rank"
    METRICS = "metrics.csv, trainer_state.json, TensorBoard events, wandb's and MLflow's files"
    DATABASE = "MLflow's database"
    DUMP = "flight-recorder dumps"


_METRICS = re.compile(
    r"(?:^|/)(?:metrics\.(?:csv|jsonl)|trainer_state\.json|events\.out\.tfevents\.[^/]+|run-\w+\.wandb"
    r"|[0-9a-f]{32}/meta\.yaml)$"
)
_DATABASE = re.compile(r"(?:^|/)mlflow\.db$")
_WANDB_RUN = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-\w+")
_MLFLOW_RUN = re.compile(r"[0-9a-f]{32}")
_RUN_IN_DATABASE = re.compile(r"(?:^|/)mlflow\.db(?:/\w+)?$")
_PROGRAM_METRICS = re.compile(
    r"(?:^|/)(?:(?:train(?:ing)?[_-])?(?:log|logs|history|progress|results)|train(?:ing)?)"
    r"\.(?:csv|tsv|jsonl)$"
)
"""More names of metric files, from Keras' CSVLogger and similar: trusted only beside a program that is known
to train."""
_NAMES = {
    Kind.RANK_LOG: re.compile(r"(?:^|/)attempt_\d+/\d+/(?:stdout|stderr)\.log$"),
    Kind.METRICS: _METRICS,
    Kind.DATABASE: _DATABASE,
    Kind.DUMP: re.compile(r"(?:^|/)\w*trace_rank_?\d+$"),
}
_LOG = re.compile(r"\.(?:out|err|log|txt)$")
_OTHER_NUMBER = re.compile(
    r"(?:(?<![A-Za-z\d])\d++_|(?:node|host|gpu|cpu|rank|worker|epoch|fold)[-_]?)$",
    re.IGNORECASE,
)
"""Prefixes after which a number is no job id: `slurm-9_` of task 5 in array 9, `slurmd-node` of node 5."""
_COUNTED_NUMBER = re.compile(r"(?:checkpoint|ckpt|version|step|seed|trial|attempt|iter)[-_]?\d+", re.I)
"""Numbers of other things, which are hardly the ids of other jobs."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files in a directory; `directory` is None if it is not known, or if the job has not started.
    `is_whole` is False if it was too large to be searched completely."""

    directory: Path | None
    files: Mapping[Kind, tuple[Path, ...]] = field(default_factory=dict)
    is_whole: bool = True
    problem: str | None = None
    rivals: tuple[str, ...] = ()
    """Jobs that ran there when a file without this job's number changed last: it may be theirs, and is not
    taken."""
    sharers: tuple[str, ...] = ()
    """Jobs that wrote to the job's output file at the same time."""
    does_script_name_logs: bool = False
    links_out: tuple[str, ...] = ()
    """Links that lead out of the directory.

    They are not followed: their target may be somebody else's secret.
    """

    def of(self, *kinds: Kind) -> tuple[Path, ...]:
        return tuple(path for kind in kinds for path in self.files.get(kind, ()))


def find_files(
    io: Io,
    directory: Path,
    kind_of: Callable[[str], Kind | None],
    window: Window | None = None,
    rivals: Rivals | None = None,
    *,
    max_depth: int = MAX_DEPTH,
    stays_inside: bool = False,
) -> Found:
    """Look through a directory for files that changed last in the window, and are none of the rivals'.

    `kind_of` gets each path in it. With `stays_inside`, links that lead out of the directory are not
    followed.
    """
    window = window or Window(-math.inf, math.inf)
    found: dict[Kind, list[tuple[float, Path]]] = {}
    walk = Walk(
        io, directory, max_depth, stays_inside=stays_inside, is_wanted=lambda path: bool(kind_of(path))
    )
    for path in walk.paths():
        kind = kind_of(path)
        if kind is None or not walk.may_read(path):
            continue
        try:
            modified_s = io.modified_s(directory / path)
        except OSError:
            continue
        from_s, to_s = window.times_of(kind)
        if not from_s <= modified_s <= to_s:
            continue
        if rivals is None or not rivals.may_have_written(directory / path, kind, modified_s):
            found.setdefault(kind, []).append((modified_s, directory / path))
    newest = {
        kind: tuple(sorted(path for _, path in sorted(files)[-MAX_FILES:])) for kind, files in found.items()
    }
    if databases := newest.pop(Kind.DATABASE, ()):
        runs = tuple(_runs_in(io, databases, window.times_of(Kind.METRICS)))
        newest |= {Kind.METRICS: (*newest.get(Kind.METRICS, ()), *runs)} if runs else {}
    return Found(directory, newest, walk.is_whole, walk.problem, links_out=tuple(walk.links_out))


def _runs_in(io: Io, databases: Iterable[Path], times: tuple[float, float]) -> Iterator[Path]:
    """From each MLflow database, the run that began last between these times."""
    from_s, to_s = times
    for database in databases:
        began = [run for run in read_runs(io, database) if from_s <= run.start_s <= to_s]
        if began:
            yield path_of(database, began[-1].run_id)


class Walk:
    """Searches breadth first, so that a deep tree hides no file above it."""

    def __init__(
        self,
        io: Io,
        root: Path,
        max_depth: int,
        *,
        stays_inside: bool = False,
        is_wanted: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """In a folder with too many entries, the files that `is_wanted` names come first, then folders, then
        other files."""
        self.is_whole = True
        self._is_wanted = is_wanted
        self.problem: str | None = None
        self.links_out: list[str] = []
        self._inside = io.real_path(root) if stays_inside else None
        self._walked = {self._inside}
        self._io = io
        self._root = root
        self._max_depth = max_depth

    def paths(self) -> Iterator[str]:
        folders, num_left = [("", 0)], MAX_ENTRIES
        while folders:
            if num_left == 0:
                self.is_whole = False
                return
            folder, depth = folders.pop(0)
            if folder and not self._may_enter(folder):
                continue
            try:
                names = self._io.list_dir(self._root / folder)
            except OSError as error:
                if not folder:
                    self.problem = error.strerror or str(error)
                continue  # a file, in most cases
            if len(names) > num_left:
                names, self.is_whole = self._first_of(folder, names, num_left), False
            num_left -= len(names)
            parent = folder.rpartition("/")[2]
            if parent == "wandb":
                names = _newest_of_wandb(names)
            for name in names:
                path = f"{folder}/{name}" if folder else name
                yield path
                if depth < self._max_depth and _leads_on(parent, name):
                    folders.append((path, depth + 1))

    def _first_of(self, folder: str, names: list[str], number: int) -> list[str]:
        def rank(name: str) -> int:
            if self._is_wanted(f"{folder}/{name}" if folder else name):
                return 0
            return 2 if _FILE.search(name) else 1

        return sorted(names, key=rank)[:number]

    def may_read(self, path: str) -> bool:
        """False for a link that leads out of a root that the walk must not leave."""
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


def _leads_on(parent: str, name: str) -> bool:
    """True if a folder is searched. The run folders of wandb and MLflow hold hundreds of files, and coach
    needs none of them."""
    if _WANDB_RUN.fullmatch(parent) or _MLFLOW_RUN.fullmatch(parent):
        return False
    return not _FILE.search(name) and not _LEFT_OUT.search(name)


def _newest_of_wandb(names: Sequence[str]) -> list[str]:
    """The runs that began last; `latest-run` is a link to one of them."""
    runs = [(match[1], name) for name in names if (match := _WANDB_RUN.fullmatch(name))]
    return [name for _, name in sorted(runs)[-MAX_FILES:]]


def kind_of(path: str) -> Kind | None:
    """The kind of a file by the names that frameworks give; any log counts, because no job has to match."""
    return _common_kind(path) or (Kind.LOG if _LOG.search(path) else None)


def kind_for(job: Job, named_by_script: Sequence[str] = ()) -> Callable[[str], Kind | None]:
    """The kinds for one job: a log counts only if its name has the job's number, or matches a pattern that
    the script names."""
    of_steps = [re.compile(rf"(?:.*/)?(?:{pattern})") for pattern in named_by_script]

    def kind(path: str) -> Kind | None:
        name = path.rpartition("/")[2]
        if found := _common_kind(path):
            return found
        if _LOG.search(name) and names_job(job, name):
            return Kind.LOG
        return Kind.STEP_LOG if any(pattern.fullmatch(path) for pattern in of_steps) else None

    return kind


def names_job(job: Job, text: str) -> bool:
    """True for a text that has the job's number, and not as the number of a node, a rank or an epoch."""
    return _number_in(text, r"(?<!\d)", {job.job_id, job.raw_job_id}, r"(?![\d_])") > 0


def _standing_alone(job: Job, text: str) -> int:
    """Length of the job's number in a text, 0 if it is not there. Letters beside a number make it a part of a
    name: the 2 in `healthy2-9.out`. All tasks of an array have the array's number."""
    ids = {job.job_id, job.raw_job_id} - {job.job_id.partition("_")[0]} | {job.job_id}
    return _number_in(text, r"(?:(?<![A-Za-z\d])|(?<=job))", ids, r"(?![A-Za-z\d_])")


def _number_in(text: str, before: str, ids: Collection[str | None], behind: str) -> int:
    named = f"{before}(?:{'|'.join(re.escape(each) for each in ids if each is not None)}){behind}"
    found = (at for at in re.finditer(named, text) if not _OTHER_NUMBER.search(text[: at.start()]))
    return max((len(at[0]) for at in found), default=0)


def kind_of_program(path: str) -> Kind | None:
    """The metrics of a program that is known to train: more names count than for other programs."""
    if _METRICS.search(path) or _PROGRAM_METRICS.search(path):
        return Kind.METRICS
    return Kind.DATABASE if _DATABASE.search(path) else None


def _kind_in_folder(name: re.Pattern[str], path: str) -> Kind | None:
    return Kind.STEP_LOG if name.fullmatch(path) else None


def is_metrics(path: Path) -> bool:
    """True if a file that a person names holds metrics, False if it is a log."""
    return _METRICS.search(str(path)) is not None or _RUN_IN_DATABASE.search(str(path)) is not None


def _common_kind(path: str) -> Kind | None:
    return next((kind for kind, pattern in _NAMES.items() if pattern.search(path)), None)


class ForeignFiles(ABC):
    """The files of a target that coach did not launch. Its directory is searched again from time to time.

    `logs` and `metrics` that a person names replace those that would be found.
    """

    def __init__(self, io: Io, logs: tuple[Path, ...] = (), metrics: tuple[Path, ...] = ()) -> None:
        self.io = io
        """Opens the files; those of another user's job for that user."""
        self._named_logs = logs
        self._named_metrics = metrics
        self._found = Found(None)
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
        return () if self._is_log_shared() else self.logs()

    def signatures(self, known: Sequence[Signature]) -> Sequence[Signature]:
        """The signatures to look for in the logs. If other jobs wrote there too, no numbers count. Then
        nothing in it shows how a completed job went."""
        if not self._is_log_shared():
            return known
        return () if self._is_completed() else [each for each in known if not each.rule.startswith(_NUMBERS)]

    def _is_completed(self) -> bool:
        return False

    def _is_log_shared(self) -> bool:
        return not self._named_logs and bool(self.found().sharers)

    def metrics(self) -> tuple[Path, ...]:
        return self._named_metrics or self.found().of(Kind.METRICS)

    def dumps(self) -> tuple[Path, ...]:
        """The dumps of torch's flight recorder."""
        return self.found().of(Kind.DUMP)

    def found(self) -> Found:
        """The files in its directory. Called by the threads of several sources."""
        with self._turn:
            if not self._looked_s <= self.io.now() < self._looked_s + _AGAIN_S:
                self._found, self._looked_s = self._look(), self.io.now()
            return self._found

    def lines(self) -> list[str]:
        """The searches that found nothing, in words: a missing file may be the reason for a missing
        finding."""
        found = self.found()
        if found.directory is None:
            return ["its directory is not known: only the files that Slurm names were looked for"]
        if not self._is_log_shared():
            return _lines_of(found)
        shared = (
            "the numbers in its log are not read, as other jobs wrote to it at the same time "
            f"({job_names(found.sharers)}): "
            "give each job a log of its own, for example sbatch -o slurm-%j.out"
        )
        return [shared, *_lines_of(found)]

    def _named_by_slurm(self) -> tuple[Path, ...]:
        return ()

    @abstractmethod
    def _look(self) -> Found: ...


def _lines_of(found: Found) -> list[str]:
    left_out = {Kind.DATABASE} | (set() if found.does_script_name_logs else {Kind.STEP_LOG})
    sought = [kind for kind in Kind if kind not in left_out]
    missing = [kind.value for kind in sought if not found.of(kind)]
    where = f"in {found.directory}, {MAX_DEPTH} levels down"
    if found.problem is not None:
        return [f"{found.directory}: {found.problem}"]
    if found.rivals:
        return [
            f"{where}: other files there may belong to other jobs that ran there too "
            f"({job_names(found.rivals)}): name yours with --log, --metrics"
        ]
    told = []
    if missing:
        told.append(f"not found {where}: {'; '.join(missing)}")
    if not found.is_whole:
        told.append(f"only the first {MAX_ENTRIES} entries of {found.directory} were looked at")
    if found.links_out:
        links = ", ".join(found.links_out)
        told.append(f"not followed, as they lead out of {found.directory}: {links}")
    return told


def job_names(job_ids: Sequence[str]) -> str:
    """The first ids, and the number of further ones."""
    more = len(job_ids) - MAX_NAMED
    return ", ".join(job_ids[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


class JobFiles(ForeignFiles):
    """A job's files: its output and then its error file, as Slurm names them; then files in its directory
    from the time that it ran."""

    def __init__(
        self,
        io: Io,
        job_id: str,
        output_paths: OutputPaths,
        logs: tuple[Path, ...] = (),
        metrics: tuple[Path, ...] = (),
    ) -> None:
        super().__init__(for_user(io, lambda: output_paths.user(job_id), (*logs, *metrics)), logs, metrics)
        self._job_id = job_id
        self._output_paths = output_paths

    def _named_by_slurm(self) -> tuple[Path, ...]:
        return self._output_paths.of(self._job_id)

    def _is_completed(self) -> bool:
        job = self._output_paths.known(self._job_id)
        return job is not None and job.state == "COMPLETED"

    def _look(self) -> Found:
        job = self._output_paths.row(self._job_id) if "[" not in self._job_id else None
        if job is None or job.work_dir is None or job.state == "PENDING":
            return Found(None)
        window = window_of(job)
        rivals = Rivals(self.io, job, window, self._output_paths)
        named = self._named_by_script(job)
        inside = f"{re.escape(job.work_dir.rstrip('/'))}/"
        within = [pattern.removeprefix(inside) for pattern in named]
        found = find_files(self.io, Path(job.work_dir), kind_for(job, within), window, rivals)
        elsewhere = list(self._elsewhere([each for each in within if each[0] == "/"], window, rivals))
        files = {**found.files, Kind.STEP_LOG: (*found.of(Kind.STEP_LOG), *elsewhere)}
        sharers = [
            other.job_id
            for other in self._output_paths.with_same_output(job)
            if _has_run(other) and window.is_shared_with(*_span(other))
        ]
        return replace(
            found,
            files=files,
            does_script_name_logs=bool(named),
            rivals=tuple(rivals.found),
            sharers=tuple(sharers),
        )

    def _named_by_script(self, job: Job) -> tuple[str, ...]:
        names = names_of(job)
        if names is None or not job.command or job.work_dir is None:
            return ()
        try:
            submitted = split_command(self.io, job.command, job.work_dir)
            script = self.io.read(submitted[0], 0, _MAX_SCRIPT_BYTES) if submitted else b""
        except (OSError, ValueError):
            return ()
        return named_outputs(script.decode("utf-8", "replace"), names)

    def _elsewhere(self, patterns: Sequence[str], window: Window, rivals: Rivals) -> Iterator[Path]:
        """The logs outside the directory, if the script names their folder literally. Only that folder is
        searched."""
        for pattern in patterns:
            folder, _, name = pattern.rpartition("/")
            directory = Path(re.sub(r"\\(.)", r"\1", folder))
            kinds = partial(_kind_in_folder, re.compile(name))
            yield from find_files(self.io, directory, kinds, window, rivals, max_depth=0).of(Kind.STEP_LOG)


class Window:
    """The time in which a job wrote, in epoch seconds. For files without its number, the window ends where
    another job of the same directory begins."""

    def __init__(self, start_s: float, end_s: float) -> None:
        self._start_s = start_s
        self._end_s = end_s
        self._named = self._start_s - _BEFORE_S, self._end_s + _AFTER_S
        self._from_s, self._to_s = self._named

    def times_of(self, kind: Kind) -> tuple[float, float]:
        """The window for one kind of file. A log with the job's number must lie in it too: a number in a file
        name may be a date or an epoch."""
        if kind is Kind.DATABASE:
            return self._from_s, math.inf  # other runs continue to write to it
        return self._named if kind is Kind.LOG else (self._from_s, self._to_s)

    def is_shared_with(self, start_s: float, end_s: float) -> bool:
        """True if another job ran at the same time; a job before or after this one narrows the window."""
        if start_s >= self._end_s:
            self._to_s = min(self._to_s, start_s)
        elif end_s <= self._start_s:
            self._from_s = max(self._from_s, end_s)
        else:
            return True
        return False


class Rivals:
    """Jobs that ran in a job's directory, above or below it at the same time, and may have written its files;
    and all others that are known, whose files show whose they are. Jobs before and after it narrow its
    window."""

    def __init__(self, io: Io, own: Job, window: Window, paths: OutputPaths) -> None:
        self._io, self._own, self._own_folder = io, own, _folder(own)
        beside = [job for job in paths.beside(own) if _has_run(job) and window.is_shared_with(*_span(job))]
        self._beside = [(job.job_id, _folder(job), *_span(job)) for job in beside]
        self._others = [(job, *_span(job)) for job in paths.others(own) if _has_run(job)]
        self.found: dict[str, None] = {}
        """Ids of the jobs for which a file was left out."""

    def may_have_written(self, path: Path, kind: Kind, modified_s: float) -> bool:
        """True for a file without the job's number that changed last while one of them ran. All of them may
        write to a database."""
        if self._is_anothers(path, modified_s):
            return True
        if kind is Kind.LOG:
            return False
        writers = self.writers_of(path, None if kind is Kind.DATABASE else modified_s)
        self.found.update(dict.fromkeys(writers))
        return bool(writers)

    def _is_anothers(self, path: Path, modified_s: float) -> bool:
        """True for the output file of another job, and for a path with another job's number, unless the job's
        own is the longer one."""
        if self._is_output_of(self._own, path):
            return False
        text = _COUNTED_NUMBER.sub("", str(path).removeprefix(self._own_folder))
        own = _standing_alone(self._own, text)
        return any(
            self._is_output_of(other, path) or _standing_alone(other, text) >= max(own, 1)
            for other, start_s, end_s in self._others
            if start_s - _BEFORE_S <= modified_s <= end_s + _AFTER_S
        )

    def _is_output_of(self, job: Job, path: Path) -> bool:
        return any(
            each.name == path.name and self._io.real_path(each) == self._io.real_path(path)
            for each in output_paths(job) or ()
        )

    def writers_of(self, path: Path, modified_s: float | None) -> tuple[str, ...]:
        """Ids of those that may have written a file at a time, or at any time.

        In the job's own directory, a file belongs to the jobs with the nearest directory above it: neither a
        job that was submitted further up nor one from a folder beside the file is its writer.
        """
        own = self._own_folder
        is_inside = str(path).startswith(own)
        return tuple(
            job_id
            for job_id, folder, start_s, end_s in self._beside
            if not is_inside or (folder.startswith(own) and str(path).startswith(folder))
            if modified_s is None or start_s - _BEFORE_S <= modified_s <= end_s + _BEFORE_S
        )


def window_of(job: Job) -> Window:
    """The time in which the job wrote; none if it has not started."""
    started_s = job.start_time_s if job.start_time_s is not None else job.submit_time_s
    return Window(math.inf if started_s is None else started_s, _end_s(job))


def _folder(job: Job) -> str:
    """The job's working directory as a text that begins the path of each file in it."""
    return f"{(job.work_dir or '').rstrip('/')}/"


def _has_run(job: Job) -> bool:
    """False for a job that waits, or was cancelled before its start."""
    return job.state != "PENDING" and not (is_final(job.state) and job.nodes is None)


def _span(job: Job) -> tuple[float, float]:
    """The start and the end of another job."""
    return job.start_time_s or 0.0, _end_s(job)


def _end_s(job: Job) -> float:
    """The end of a job; its time limit if coach did not see the end."""
    if is_final(job.state):
        return job.end_time_s if job.end_time_s is not None else math.inf
    if job.start_time_s is None or job.time_limit_s is None:
        return math.inf
    return job.start_time_s + job.time_limit_s + _AFTER_S


class DirectoryFiles(ForeignFiles):
    """The files of a directory that a person names: all logs and metrics in it, of any age."""

    def __init__(
        self, io: Io, directory: Path, logs: tuple[Path, ...] = (), metrics: tuple[Path, ...] = ()
    ) -> None:
        super().__init__(io, logs, metrics)
        self._directory = directory

    @property
    def is_empty(self) -> bool:
        return not self.found().files

    def _look(self) -> Found:
        return find_files(self.io, self._directory, kind_of, stays_inside=True)
