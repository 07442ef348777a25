"""`coach --version` names the running commit: of a checkout by git's own files, else the one written at the
build. If neither is known, it prints only the version."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import coach
from coach import installed
from coach.__main__ import main
from coach.recorder.recording import Header
from tests.installed import REPOSITORY

FIRST = "1234567890abcdef1234567890abcdef12345678"


def git(folder: Path, *words: str) -> str:
    """git's output, without the settings of the user who runs the suite."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git: not installed")
def test_a_checkout_s_commit_is_read_from_every_form_of_git_s_files(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "-q", "-b", "side/one+two")
    assert installed.commit_of_checkout(checkout) is None  # nothing is committed yet
    git(checkout, "commit", "-q", "--allow-empty", "-m", "one")
    commit = git(checkout, "rev-parse", "HEAD")
    assert installed.commit_of_checkout(checkout) == commit
    git(checkout, "worktree", "add", "-q", "-b", "linked", "../linked")
    assert installed.commit_of_checkout(tmp_path / "linked") == commit
    git(checkout, "pack-refs", "--all")
    assert installed.commit_of_checkout(checkout) == commit
    assert installed.commit_of_checkout(tmp_path / "linked") == commit
    git(checkout, "checkout", "-q", "--detach")
    assert installed.commit_of_checkout(checkout) == commit


@pytest.mark.parametrize(
    "head", ["", "\x1b[31m", "ref: ../../secret", "ref: refs/../../secret", "ref: refs/heads/none", FIRST[1:]]
)
def test_a_head_that_names_no_commit_is_no_commit(tmp_path: Path, head: str) -> None:
    (tmp_path / "secret").write_text(f"{FIRST}\n")
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    (tmp_path / "checkout" / ".git" / "HEAD").write_text(head)
    assert installed.commit_of_checkout(tmp_path / "checkout") is None


def test_a_built_coach_shows_the_commit_written_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "package", lambda: tmp_path)
    assert installed.version() == coach.__version__
    (tmp_path / installed.COMMIT_FILE).write_text(f"{FIRST}\n")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"coach {coach.__version__} (1234567)\n"
    assert Header(0.0, "slurm", "me", "/runs").coach == f"{coach.__version__} (1234567)"
    (tmp_path / installed.COMMIT_FILE).write_text("\x1b]0;no commit\n")
    assert installed.version() == coach.__version__


def test_a_wheel_carries_the_commit_that_it_was_built_from(coach_wheel: Path) -> None:
    with zipfile.ZipFile(coach_wheel) as wheel:
        name = f"coach/{installed.COMMIT_FILE}"
        written = wheel.read(name).decode().strip() if name in wheel.namelist() else None
    assert written == installed.commit_of_checkout(REPOSITORY)
