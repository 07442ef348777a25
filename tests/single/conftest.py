"""`coach.pyz` as a user copies it to a cluster: one file in another user's folder, no installed coach, and no
source tree in reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.installed import REPOSITORY, reachable_python
from tests.ordinary_user import User
from tests.waiting import PATIENCE

HIDE = 'for folder in coach trainers recipes single; do mount -t tmpfs none "$0/$folder"; done; exec "$@"'


@dataclass(frozen=True, slots=True)
class OneFile:
    """The file, and the interpreter that starts it: one without any package of the suite."""

    path: Path
    python: Path

    def argv(self, user: User, *words: str | os.PathLike[str]) -> list[str]:
        """The command line by which the user starts it, with the source tree hidden."""
        command = user.argv([self.python, self.path, *words])
        return ["unshare", "--mount", "sh", "-c", HIDE, str(REPOSITORY), *command]

    def run(
        self, user: User, env: Mapping[str, str], *words: str | os.PathLike[str], timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in the user's home. The caller looks at the exit status."""
        return subprocess.run(
            self.argv(user, *words),
            env=user.env(env),
            cwd=user.home,
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )


@pytest.fixture(scope="session")
def one_file(open_directory: Path) -> OneFile:
    """Made from this checkout, as `make single` does, for one interpreter that every user can start."""
    python = reachable_python()
    assert python is not None, "no Python that every user can start"
    folder = open_directory / "single"
    folder.mkdir()
    file = folder / "coach.pyz"
    argv = [sys.executable, REPOSITORY / "single" / "build.py", "--out", file, python]
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "with byte code for Python 3." in done.stdout
    return OneFile(file, python)
