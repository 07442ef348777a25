"""An ordinary user of a cluster; tests that start coach for real run it as this user.

The suite runs as root (Slurm's daemons need that), but root sees other things than a user and may do more. So
a program that a person would start runs as `nobody`, with a private home.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PASSED_ON = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE")
"""Prefixes of what a site sets so that pip finds its packages; everything else in our environment stays with
us."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a command, and the user's home."""

    uid: int
    gid: int
    name: str
    home: Path

    def argv(self, argv: Iterable[str | os.PathLike[str]]) -> list[str]:
        """`argv`, to be run as this user when root starts it."""
        drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        return [*drop, *(os.fspath(word) for word in argv)]

    def env(self, *more: Mapping[str, str]) -> dict[str, str]:
        """A fresh login's environment, and `more` on top of it. Nothing of the suite's own environment leaks
        in."""
        env = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        env |= {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/bash"}
        env |= {"PATH": _PATH, "LANG": "C.UTF-8", "TERM": "xterm-256color", "TMPDIR": "/tmp"}
        for part in more:
            env |= part
        return env


def make_user(home: Path) -> User:
    """The user `nobody`, with a new private home at `home`."""
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    return User(NOBODY, NOBODY, pwd.getpwuid(NOBODY).pw_name, home)


def make_open_directory(prefix: str) -> Path:
    """A new temporary directory that every user can enter and read. pytest's own are closed to others."""
    candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    parent = next(path for path in candidates if is_reachable(path))
    directory = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))
    directory.chmod(0o755)
    return directory


def is_reachable(path: Path) -> bool:
    """Whether an ordinary user can get at `path`: readable, executable if a program, every folder above it
    open to him."""
    resolved = path.resolve()
    try:
        modes = [folder.stat().st_mode for folder in (resolved, *resolved.parents)]
    except OSError:
        return False
    needed = stat.S_IROTH | stat.S_IXOTH
    return modes[0] & needed == needed and all(mode & stat.S_IXOTH for mode in modes[1:])


def shown(argv: Sequence[str]) -> str:
    """A command as a failed test's message names it."""
    return " ".join(argv)
