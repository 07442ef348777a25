"""Fixtures of the attacks: `mallory`, the other user, and `marks`, a folder where her programs tell that they
ran. The victim is `local_coach` or `user_coach`."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.attacks.mallory import Mallory


@pytest.fixture
def mallory(open_directory: Path) -> Mallory:
    """The other user, with a new folder that everybody can enter and read."""
    folder = open_directory / f"mallory-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    other = Mallory(folder)
    other.own(folder)
    return other


@pytest.fixture
def marks(open_directory: Path) -> Path:
    """A folder that everybody can write."""
    folder = open_directory / f"marks-{secrets.token_hex(4)}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder
