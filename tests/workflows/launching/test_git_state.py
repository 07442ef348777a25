"""A run's record names the commit of the code that it trains with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coach.sources.io import SystemIo
from coach.workflows.launching.prepare import read_git_state

GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(repository: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("models/net.py", "experiments/train.py", ".gitignore"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("scratch\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_a_program_in_a_folder_of_a_repository_has_its_commit(repository: Path) -> None:
    io, commit = SystemIo({}), git(repository, "rev-parse", "HEAD")
    for folder in (repository, repository / "experiments"):
        assert read_git_state(io, folder) == {"commit": commit, "is_dirty": False}
    (repository / "models/net.py").write_text("a change beside the program's folder\n")
    assert read_git_state(io, repository / "experiments") == {"commit": commit, "is_dirty": True}
    assert read_git_state(io, repository / "experiments", ["."]) == {"commit": commit, "is_dirty": False}


def test_a_folder_that_git_does_not_track_has_no_commit(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    untracked = repository / "scratch"
    untracked.mkdir()
    assert read_git_state(SystemIo({}), untracked) is None
    assert read_git_state(SystemIo({}), tmp_path_factory.mktemp("elsewhere")) is None
