"""The only access of sources to the outside: commands, files, the clock.

A recorder wraps it and stores all data before they are parsed; a replay takes its place. So a better parser
can be tried on an old recording, and sources behave the same in both cases.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from coach.sources.commands import run_command
from coach.sources.rpc_budget import cost_of
from coach.trusted import UNKNOWN_USER, open_trusted, refuse_special

COMMAND_TIMEOUT_S = 12.0
"""Default time limit of a command, in seconds.

Slurm's clients report an error only after MessageTimeout, 10 s unless the site changed it: a shorter limit
would lose the message.
"""

_SCRUBBED_PREFIXES = (
    "SQUEUE_",
    "SINFO_",
    "SACCT_",
    "SBATCH_",
    "SCONTROL_",
    "SPRIO_",
    "SSHARE_",
    "SLURM_TIME_FORMAT",
    "SLURM_CLUSTERS",
)


class OutputReader(Protocol):
    """Reads the output of a command piece by piece while it is printed: tens of megabytes are never held in
    memory at once, and are parsed by the time the last bytes arrive."""

    def feed(self, piece: bytes) -> None: ...

    @property
    def is_torn(self) -> bool:
        """True if the pieces end within a record."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """A command to run. `kind` is its stable name (`jobs`, `nodes` …). Separators are random for each call,
    because Slurm does not escape names."""

    kind: str
    argv: tuple[str, ...]
    separator: str = ""
    record_end: str = ""
    reader: OutputReader | None = field(default=None, compare=False, repr=False)
    """Reads the answer while it arrives, if the Io supports that. A reader serves one answer."""

    @property
    def num_rpcs(self) -> int:
        """Number of RPCs that the command costs the controller."""
        return cost_of(self.argv)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command; marks stand for its random separators, so that equal requests are
        equal."""
        return tuple(map(self.without_separators, self.argv))

    def without_separators(self, text: str) -> str:
        """The text with marks for the random separators."""
        for token, mark in ((self.separator, "\ue001"), (self.record_end, "\ue002")):
            text = text.replace(token, mark) if token else text
        return text


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `query` is the one that was really run: a replayed answer has its own
    separators."""

    query: Query
    returncode: int | None
    """None: not found or timed out; `error` tells which."""
    stdout: bytes
    stderr: str
    time_s: float
    duration_s: float
    error: str | None = None
    is_read: bool = False
    """True if `query.reader` received the answer piece by piece; `stdout` is then empty."""

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 become surrogate escapes."""
        return self.stdout.decode("utf-8", "surrogateescape")


class Io(Protocol):
    """The operations of a source. File methods raise FileNotFoundError or another OSError.

    `owner`: the uid to which a file must belong, unless all users may read it. None: any file, because this
    user names it, or this user's own job. `OwnerIo` adds the owner of another user's job or run.
    """

    def now(self) -> float: ...

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        """Run a command for at most `timeout_s`; None: the time limit of Slurm's clients."""
        ...

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes: ...

    def size(self, path: Path, owner: int | None = None) -> int: ...

    def modified_s(self, path: Path, owner: int | None = None) -> float: ...

    def owner_of(self, path: Path) -> int:
        """The uid of a file's or folder's owner."""
        ...

    def list_dir(self, path: Path) -> list[str]: ...

    def real_path(self, path: Path) -> Path:
        """The path with all symbolic links resolved."""
        ...


_ROOT = 0
"""The uid whose jobs and folders name what they like: root may do all that this user may."""


class PassingIo:
    """Passes the clock and all file operations on. A subclass defines how a command runs."""

    def __init__(self, io: Io) -> None:
        self._io = io

    def now(self) -> float:
        return self._io.now()

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        return self._io.read(path, offset, limit, owner)

    def size(self, path: Path, owner: int | None = None) -> int:
        return self._io.size(path, owner)

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        return self._io.modified_s(path, owner)

    def owner_of(self, path: Path) -> int:
        return self._io.owner_of(path)

    def list_dir(self, path: Path) -> list[str]:
        return self._io.list_dir(path)

    def real_path(self, path: Path) -> Path:
        return self._io.real_path(path)


class OwnerIo(PassingIo):
    """Opens the files that a job or a run names for its owner: another user may name a private file of this
    user, or of a third. `find_owner` is called until it knows the owner. Files in `named` are opened whoever
    owns them: this user names them."""

    def __init__(self, io: Io, find_owner: Callable[[], int | None], named: Collection[Path] = ()) -> None:
        super().__init__(io)
        self._find_owner = find_owner
        self._named = named
        self._owner: int | None = UNKNOWN_USER

    def for_whom(self, path: Path) -> int | None:
        """The owner for whom this file is opened; None if it may be anybody's."""
        if path in self._named:
            return None
        if self._owner == UNKNOWN_USER:
            found = self._find_owner()
            self._owner = None if found in (os.geteuid(), _ROOT) else found
        return self._owner

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        return self._io.run(query, timeout_s)

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        return self._io.read(path, offset, limit, self.for_whom(path))

    def size(self, path: Path, owner: int | None = None) -> int:
        return self._io.size(path, self.for_whom(path))

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        return self._io.modified_s(path, self.for_whom(path))


def for_folder(io: Io, folder: Path, named: Collection[Path] = ()) -> OwnerIo:
    """The Io for the files of a run: its directory's owner is its own. An OwnerIo stays as it is."""

    def find_owner() -> int:
        try:
            return io.owner_of(folder)
        except OSError:
            return UNKNOWN_USER

    return io if isinstance(io, OwnerIo) else OwnerIo(io, find_owner, named)


def for_user(io: Io, user: Callable[[], str], named: Collection[Path] = ()) -> OwnerIo:
    """The Io for the files of a job; `user` returns its user's name or uid, empty while it is unknown."""

    def find_owner() -> int:
        name = user()
        try:
            return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):
            return UNKNOWN_USER

    return OwnerIo(io, find_owner, named)


def new_separator() -> str:
    """A field separator or record end that no name can contain, by accident or on purpose.

    It does not begin with a digit, because `squeue -O field:7…` would read that as a column width. It is
    short, because it occurs thirty times in each of tens of thousands of rows.
    """
    return f"|{secrets.token_urlsafe(5)}"


def scrubbed_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for Slurm's clients: the C locale, without the variables that change their output."""
    kept = {key: value for key, value in env.items() if not key.startswith(_SCRUBBED_PREFIXES)}
    kept["LC_ALL"] = "C"
    kept["SLURM_BITSTR_LEN"] = "0"  # else squeue cuts a long list of array tasks, without a mark
    return kept


class SystemIo:
    """The real world. `env` is the environment of the commands, already scrubbed.

    `timeout_s` is the default time limit of a command. `before_command` is called with the RPCs of every
    command before it runs, and may wait; if it returns False, the command does not run. `on_file_op` is
    called with the path before every file operation, and with None after it.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        before_command: Callable[[int], bool] = lambda num_rpcs: True,
        on_file_op: Callable[[Path | None], object] = lambda path: None,
    ) -> None:
        self._env = dict(env)
        self._timeout_s = timeout_s
        self._before_command = before_command
        self._on_file_op = on_file_op
        self._kill: Callable[[], object] | None = None
        """Kills the command that runs; None if none runs."""
        self._stopping = threading.Lock()
        self.is_stopped = False

    def stop(self) -> None:
        """End the command that runs, and start no other: nobody waits for the answer. For an Io of one
        thread; may be called from any."""
        with self._stopping:
            self.is_stopped = True
            if self._kill is not None:
                self._kill()

    def _note_start(self, kill: Callable[[], object] | None) -> None:
        with self._stopping:
            self._kill = kill
            if kill is not None and self.is_stopped:
                kill()

    def now(self) -> float:
        return time.time()

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if self.is_stopped or not self._before_command(query.num_rpcs):
            return self._closing(query)
        return self._execute(query, self._timeout_s if timeout_s is None else timeout_s)

    def _closing(self, query: Query) -> CommandResult:
        return CommandResult(query, None, b"", "", time.time(), 0.0, f"{query.argv[0]}: coach is closing")

    def _execute(self, query: Query, timeout_s: float) -> CommandResult:
        start, reader = time.monotonic(), query.reader
        returncode: int | None = None
        stdout, stderr, error = b"", "", None
        try:
            on_output = reader.feed if reader is not None else None
            done = run_command(
                query.argv, self._env, timeout_s, on_output=on_output, on_start=self._note_start
            )
            returncode, stdout, stderr = done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")
        except FileNotFoundError:
            error = f"{query.argv[0]}: command not found"
        except subprocess.TimeoutExpired:
            error = f"{query.argv[0]}: no answer within {timeout_s:.0f} s"
        except OSError as problem:
            error = f"{query.argv[0]}: {problem.strerror or problem}"
        passed_s, is_read = time.monotonic() - start, reader is not None
        return CommandResult(query, returncode, stdout, stderr, time.time(), passed_s, error, is_read)

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        with self._asking(path), _opened(path, owner) as file:
            file.seek(offset)
            return file.read(limit)

    def size(self, path: Path, owner: int | None = None) -> int:
        found = self._look(path, owner)
        refuse_special(found.st_mode, path)
        return found.st_size

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        return self._look(path, owner).st_mtime

    def owner_of(self, path: Path) -> int:
        return self._look(path, None).st_uid

    def _look(self, path: Path, owner: int | None) -> os.stat_result:
        with self._asking(path):
            if owner is not None:
                with contextlib.suppress(IsADirectoryError), _opened(path, owner) as file:
                    return os.fstat(file.fileno())
            return path.stat()

    def list_dir(self, path: Path) -> list[str]:
        with self._asking(path):
            return sorted(os.listdir(path))  # noqa: PTH208 (names, not paths, are recorded)

    def real_path(self, path: Path) -> Path:
        with self._asking(path):
            return Path(os.path.realpath(path))

    @contextlib.contextmanager
    def _asking(self, path: Path) -> Iterator[None]:
        self._on_file_op(path)
        try:
            yield
        finally:
            self._on_file_op(None)


def _opened(path: Path, owner: int | None) -> BinaryIO:
    return open_trusted(path, owner=owner, or_public=True, follows_links=True)
