"""The run directory: its paths, its schema, atomic writes and tolerant reads.

Trainers, the sampler and coach communicate only through files, so this one module defines their places. It
runs on compute nodes under the site's Python (>= 3.9): standard library only, plain dicts, no import of the
rest of coach.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from coach.trusted import MAX_BYTES, open_trusted, read_small, read_text, why_not_mine
from coach.trusted import private_folder as private_folder

SCHEMA = 1
MAX_TELEMETRY_RECORD_BYTES = (
    900  # srun cuts and interleaves lines longer than 1 KiB; files and streams share one format
)

MAX_SUMMARY_BYTES = 2048
"""Bytes: a shared summary is never longer, so a longer file is not a summary."""

LOGS_FOLDER = ".logs"
"""In the runs root: the folder for the output files of Slurm's jobs. A node may not yet see a new run
directory when it opens them."""

CODE_FOLDER = ".code"
"""In the runs root: trainers and node code as they were at a launch."""

ARRAY_SCRIPT = "array.sh"
"""In the first run of a group that was submitted as a job array: the array's script."""

FULL_DISK_SUFFIX = ".full"
"""In the telemetry, the end of a node's file about its full file system."""

RUN_VARIABLE = "COACH_RUN_ID"
"""Environment variable with the run's name, in each process that a run starts on the machine of its `coach
run` or supervisor."""

SAID_OF_END = "coach: why: "
"""Starts each line that a job writes into its log about its own end. No rule reads such a line."""

RUN_ID = re.compile(r"^\d{8}-\d{6}-[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+)*-[0-9a-f]{4}$")

# A lock older than this belongs to a dead process: a locked update is only a read, a merge and a rename.
_STALE_LOCK_S = 10.0
_LOCK_RETRY_S = 0.02
_FIRST_AGE_CHECK_S = 0.2
_AGE_CHECK_INTERVAL_S = 1.0


class RunFileError(Exception):
    """A file of a run directory cannot be used. `path` names it, and the message gives the reason."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class RunPaths:
    """The paths in one run directory."""

    def __init__(self, run_dir: "os.PathLike[str] | str") -> None:
        self.run_dir = Path(run_dir)

    @property
    def run_json(self) -> Path:
        return self.run_dir / "run.json"

    @property
    def job_script(self) -> Path:
        return self.run_dir / "job.sh"

    @property
    def stdout_log(self) -> Path:
        return self.run_dir / "stdout.log"

    @property
    def stderr_log(self) -> Path:
        return self.run_dir / "stderr.log"

    @property
    def exit_json(self) -> Path:
        return self.run_dir / "exit.json"

    @property
    def exit_status(self) -> Path:
        """The command's exit status alone, written before any other record of its end."""
        return self.run_dir / "exit_status"

    @property
    def verdict_json(self) -> Path:
        return self.run_dir / "verdict.json"

    @property
    def drill_answer_json(self) -> Path:
        return self.run_dir / "drill_answer.json"

    @property
    def metrics_dir(self) -> Path:
        return self.run_dir / "metrics"

    @property
    def telemetry_dir(self) -> Path:
        return self.run_dir / "telemetry"

    @property
    def checkpoints_dir(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def profile_dir(self) -> Path:
        return self.run_dir / "profile"

    @property
    def stacks_dir(self) -> Path:
        return self.run_dir / "stacks"

    def metrics_of(self, rank: int) -> Path:
        return self.metrics_dir / f"rank-{rank}.jsonl"

    def telemetry_of(self, node: str) -> Path:
        return self.telemetry_dir / f"{node}.jsonl"

    def full_disk_of(self, node: str) -> Path:
        """Overwritten in place, because a full disk takes no new file."""
        return self.telemetry_dir / f"{node}{FULL_DISK_SUFFIX}"

    def stack_samples_of(self, node: str) -> Path:
        return self.stacks_dir / f"samples-{node}.jsonl"


def expand_home(path: str) -> Path:
    """The path with the home directory in place of `~` or `~user`. Where there is no such user it stays as it
    is, as in a shell; Path.expanduser raises RuntimeError."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (see above)


def coach_home(env: Mapping[str, str]) -> Optional[Path]:
    """The single directory for runs, cache and config, if the user set COACH_HOME."""
    home = env.get("COACH_HOME")
    return Path(home).expanduser().absolute() if home else None


def default_runs_root(env: Mapping[str, str]) -> Path:
    """$COACH_HOME/runs, else $SCRATCH/coach/runs, else under home. Never a shared temporary directory."""
    home = coach_home(env)
    if home is not None:
        return home / "runs"
    scratch = env.get("SCRATCH")
    if scratch:
        return Path(scratch).absolute() / "coach" / "runs"
    return _user_home(env) / "coach" / "runs"


def default_cache_dir(env: Mapping[str, str]) -> Path:
    """$COACH_HOME/cache, else $SCRATCH/coach/cache, else $XDG_CACHE_HOME/coach, else ~/.cache/coach. Holds
    generated data.

    It is beside the runs if $SCRATCH is set, because nodes may not see the home directory.
    """
    home = coach_home(env)
    if home is not None:
        return home / "cache"
    if env.get("SCRATCH"):
        return Path(env["SCRATCH"]).absolute() / "coach" / "cache"
    xdg = env.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else _user_home(env) / ".cache") / "coach"


def default_config_dir(env: Mapping[str, str]) -> Path:
    """$COACH_HOME, else $XDG_CONFIG_HOME/coach, else ~/.config/coach. Holds config.toml."""
    home = coach_home(env)
    if home is not None:
        return home
    xdg = env.get("XDG_CONFIG_HOME")
    return (Path(xdg) if xdg else _user_home(env) / ".config") / "coach"


def _user_home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def new_run_id(recipe: str, time_s: float) -> str:
    """For example 20261121-142233-ddp-4f2a: sorts by time, names the recipe, and is unique within a
    second."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time_s))
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", recipe).strip("-") or "run"
    return f"{stamp}-{name}-{secrets.token_hex(2)}"


def create_run_dir(runs_root: Path, run_id: str) -> RunPaths:
    """Make the run directory, accessible only to its owner (mode 0700).

    Raises FileExistsError if the run exists, OSError if the root cannot be written or is not private.
    """
    private_folder(runs_root)
    run_dir = runs_root / run_id
    run_dir.mkdir(mode=0o700)
    return RunPaths(run_dir)


def scheduler_logs(runs_root: Path, run_id: str) -> Tuple[Path, Path]:
    """The files to which Slurm writes a run's output and errors; `stdout.log` and `stderr.log` are links to
    them."""
    folder = runs_root / LOGS_FOLDER
    return folder / f"{run_id}.out", folder / f"{run_id}.err"


def link_scheduler_logs(paths: RunPaths) -> None:
    """Make the links and, if it is missing, the folder to which they point. The links are relative, because
    the root may be moved or mounted elsewhere."""
    output, errors = scheduler_logs(paths.run_dir.parent, paths.run_dir.name)
    private_folder(output.parent)
    paths.stdout_log.symlink_to(Path("..") / LOGS_FOLDER / output.name)
    paths.stderr_log.symlink_to(Path("..") / LOGS_FOLDER / errors.name)


def write_atomic(path: Path, text: str, may_replace: Callable[[], bool] = lambda: True) -> bool:
    """Write a file so that after a crash, or for a reader, it holds the old text or the new, never a part.
    Only its owner can access it (mode 0600).

    `may_replace` is called just before the last step; if it returns False, the old file stays. Returns True
    if the new text is in place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if may_replace():
            temporary.replace(path)
            return True
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    temporary.unlink()
    return False


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one JSON object atomically, indented, for people to read."""
    write_atomic(path, _as_text(value))


def _as_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Dict[str, Any]:
    """Read one JSON object. Raises RunFileError if the file is missing, torn, or not an object."""
    try:
        text = read_text(path, owner=None, follows_links=True, errors="surrogateescape")
    except FileNotFoundError:
        raise RunFileError(path, "no such file") from None
    except OSError as error:
        raise RunFileError(path, error.strerror or str(error)) from None
    return _parse_object(text, path)


def read_json_if_any(path: Path) -> Dict[str, Any]:
    """Read one JSON object; empty if the file is missing, torn, or not an object."""
    try:
        return read_json(path)
    except RunFileError:
        return {}


def read_own(path: Path) -> bytes:
    """Read a file of a run of this user: the run directory and the file belong to the user, and nobody else
    may write to them. Only such files say what coach starts, signals or changes.

    Raises OSError, whose `strerror` says what is wrong.
    """
    problem = why_not_mine(path.parent.stat())
    if problem is not None:
        raise OSError(errno.EPERM, problem, str(path.parent))
    with open_trusted(path, owner=os.geteuid()) as file:
        problem = why_not_mine(os.fstat(file.fileno()))
        if problem is not None:
            raise OSError(errno.EPERM, problem, str(path))
        return file.read(MAX_BYTES)


def read_own_record(run_dir: Path) -> Dict[str, Any]:
    """run.json of a run of this user. Raises RunFileError, also for another run."""
    path = RunPaths(run_dir).run_json
    try:
        return _parse_object(read_own(path).decode("utf-8", "surrogateescape"), path)
    except OSError as error:
        place = path if error.filename is None else Path(error.filename)
        raise RunFileError(place, error.strerror or str(error)) from None


def _parse_object(text: str, path: Path) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RunFileError(path, f"not valid JSON ({error}); it may have been cut while written") from None
    except RecursionError:
        raise RunFileError(path, "not valid JSON (nested too deeply)") from None
    if not isinstance(value, dict):
        raise RunFileError(path, f"expected a JSON object, found {type(value).__name__}")
    return value


def update_json(path: Path, changes: Mapping[str, Any]) -> Dict[str, Any]:
    """Merge changes into a JSON object under a lock, for files with several writers (run.json, exit.json).

    A mapping is merged into an existing mapping; any other value replaces the old one. A missing file starts
    empty. Raises RunFileError if the file is torn.
    """
    while True:
        with _Lock(path) as lock:
            value: Dict[str, Any] = read_json(path) if path.exists() else {"schema": SCHEMA}
            for key, change in changes.items():
                old = value.get(key)
                value[key] = (
                    {**old, **change} if isinstance(old, dict) and isinstance(change, Mapping) else change
                )
            if write_atomic(path, _as_text(value), lock.is_held):
                return value


def locked(path: Path) -> "_Lock":
    """The lock for changing a file with several writers, held within the `with` block."""
    return _Lock(path)


class LockFile:
    """The right to do something: a file that only one process can create.

    O_EXCL works on all network file systems that clusters use; flock does not. Whoever finds the file waits,
    or breaks a lock that its owner left behind. Methods raise OSError if the file system fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own: Optional[Tuple[int, int]] = None

    def make(self) -> bool:
        """Return True if this process now owns the lock."""
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        # Names the owner, for people and for waiting processes. On a full disk the file stays empty.
        with contextlib.suppress(OSError), open(descriptor, "w") as file:
            file.write(lock_owner())
        self._own = self.identity()
        return True

    def is_held(self) -> bool:
        """False if others took this process for dead, because it or its file system was stopped for longer
        than a lock lives."""
        return self._own is not None and self.identity() == self._own

    def release(self) -> None:
        """Remove the lock, unless another process has taken it over."""
        if self.is_held():
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()

    def break_(self, stale: Tuple[int, int]) -> None:
        """Remove a lock that was left behind. It is renamed first: a waiter that was too late, and has caught
        a newer lock, sees that and gives it back."""
        moved = self._unique_name()
        try:
            self.path.rename(moved)
        except FileNotFoundError:
            return
        if _identity(moved) != stale:
            # If another process has taken the lock meanwhile, this one's owner notices, and starts again.
            with contextlib.suppress(OSError):
                os.link(moved, self.path)
        with contextlib.suppress(FileNotFoundError):
            moved.unlink()

    def identity(self) -> Optional[Tuple[int, int]]:
        """Distinguishes the present lock from a later one with the same name; None if there is none."""
        return _identity(self.path)

    def _unique_name(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.{secrets.token_hex(4)}")


class _Lock(LockFile):
    """The lock for changing a file, beside it.

    The age of a lock is judged only by the file server's clock, because nodes' clocks differ. If the owner
    was a process of this machine and has ended, for example after a kill, the lock is broken at once.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.with_name(f".{path.name}.lock"))

    def __enter__(self) -> "_Lock":
        seen, check_s = None, 0.0
        while not self.make():
            found = self.identity()
            if found != seen:
                seen, check_s = found, time.monotonic() + _FIRST_AGE_CHECK_S
                if found is not None and has_lost_its_owner(self.path):
                    self.break_(found)
            elif found is not None and time.monotonic() >= check_s:
                check_s = time.monotonic() + _AGE_CHECK_INTERVAL_S
                if self._server_time_ns() - found[1] > _STALE_LOCK_S * 1e9:
                    self.break_(found)
            time.sleep(_LOCK_RETRY_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _server_time_ns(self) -> int:
        probe = self._unique_name()
        try:
            with open(probe, "x") as file:
                return os.fstat(file.fileno()).st_mtime_ns
        finally:
            with contextlib.suppress(FileNotFoundError):
                probe.unlink()


def lock_owner() -> str:
    """The text that this process writes into a lock that it has made."""
    return f"{os.uname().nodename} {os.getpid()} {time.time():.0f} {_processes_seen()}\n"


def has_lost_its_owner(lock: Path) -> bool:
    """True if the owner of a lock was a process of this machine and has ended."""
    try:
        node, pid, _, seen = read_text(lock, owner=None).split()
        if (node, seen) == (os.uname().nodename, _processes_seen()) and seen != "-":
            os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False  # another user's process, or a text that this version did not write
    return False


def _processes_seen() -> str:
    """The boot and the pid namespace of this process: equal texts mean that both see the same pids."""
    try:
        # The link's text is needed.
        return f"{boot_id()}/{os.readlink('/proc/self/ns/pid')}" if boot_id() else "-"  # noqa: PTH115
    except OSError:
        return "-"


def boot_id() -> Optional[str]:
    """The kernel's id of the current boot; None if it provides none."""
    return read_small("/proc/sys/kernel/random/boot_id") or None


def _identity(path: Path) -> Optional[Tuple[int, int]]:
    """Identifies one lock among those of the same name: a file system reuses inode numbers, but not with the
    same time."""
    try:
        # Opening the file makes the node ask the file server: a plain stat may be a minute old.
        with open_trusted(path, owner=None) as file:
            found = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def encode_number(value: Optional[float]) -> Any:
    """The number as JSON can hold it: NaN and infinities become the strings "NaN", "Infinity",
    "-Infinity"."""
    if value is None or not isinstance(value, float):
        return value
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def decode_number(value: Any) -> Optional[float]:
    """The inverse of encode_number; None for a value that is not a number, or is too large."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return None


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One line of JSON, with non-finite numbers as strings."""
    safe = {key: encode_number(value) for key, value in record.items()}
    return json.dumps(safe, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def decode_records(data: bytes) -> Tuple[List[Dict[str, Any]], int, int]:
    """Split appended bytes into records: (records, number of bad lines, bytes consumed).

    A last line without its newline is left for the next read. A line that is not a JSON object is counted and
    never raises.
    """
    end = data.rfind(b"\n") + 1
    records: List[Dict[str, Any]] = []
    num_bad = 0
    for line in data[:end].splitlines():
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            num_bad += 1
            continue
        if isinstance(record, dict):
            records.append(record)
        else:
            num_bad += 1
    return records, num_bad, end
