"""The other user of the machine, who leaves files for the victim to meet."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE

UID = 64999
"""A uid without an account: the victim is `nobody` (`tests/ordinary_user.py`)."""


@dataclass(frozen=True, slots=True)
class Mallory:
    """Owns a folder that everybody can enter, and runs programs as herself."""

    folder: Path

    def own(self, path: Path, mode: int | None = None) -> Path:
        """Make a file, folder or link hers."""
        os.chown(path, UID, UID, follow_symlinks=False)
        if mode is not None:
            path.chmod(mode)
        return path

    def make_folder(self, name: str, mode: int = 0o755) -> Path:
        path = self.folder / name
        path.mkdir()
        return self.own(path, mode)

    def write(self, path: Path, text: str | bytes, mode: int = 0o644) -> Path:
        """Write a file of hers; a relative path lies in her folder."""
        path = self.folder / path
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.own(path, mode)

    def link(self, path: Path, target: Path) -> Path:
        """Make a symbolic link of hers."""
        path = self.folder / path
        path.symlink_to(target)
        return self.own(path)

    def program_that_marks(self, name: str, mark: Path) -> Path:
        """A program of hers that makes the file `mark`, in a folder that everybody can write: so a test sees
        that somebody ran it."""
        return self.write(Path(name), f"#!/bin/sh\nid -u >> '{mark}'\nexit 1\n", 0o755)

    def run(self, argv: list[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as her, in her folder."""
        drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        return subprocess.run(
            [*drop, *argv],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
        )
