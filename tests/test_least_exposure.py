"""Secrets planted in every place where a person puts them: they appear only in the person's own texts (the
submitted script, the log of the program), and only that person can read these files."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.ignored_signals import let_children_hear
from tests.installed import REPOSITORY

pytestmark = pytest.mark.real

ARGV, URL, ENVIRONMENT, REMOTE = (
    "s3cretArgv0001",
    "s3cretUrl0001",
    "s3cretEnvironment0001",
    "s3cretRemote0001",
)
LINE, ERROR = "hf_s3cretLine0001abcdef", "s3cretError0001"
PLANTED = (ARGV, URL, ENVIRONMENT, REMOTE, LINE, ERROR)
PROGRAM = f"""
print("step 1 loss 0.5 with {LINE}", flush=True)
raise RuntimeError("401 for https://bob:{ERROR}@hub.example.org api_key={ERROR} {LINE}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository whose remote holds a token, with a program that prints others and fails."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    for words in (
        ("init", "-q"),
        ("remote", "add", "origin", f"https://bob:{REMOTE}@git.example.org/x.git"),
        ("add", "-A"),
        ("-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, env=_environment(tmp_path))
    return folder


def _environment(home: Path) -> dict[str, str]:
    let_children_hear()
    return {
        **{name: os.environ[name] for name in ("PATH", "COACH_AS_ROOT") if name in os.environ},
        "HOME": str(home),
        "COACH_HOME": str(home / "coach"),
        "LC_ALL": "C.UTF-8",
        "WANDB_API_KEY": ENVIRONMENT,
        "MY_PASSWORD": ENVIRONMENT,
        "PYTHONPATH": str(REPOSITORY),
    }


def run_coach(project: Path, *words: object, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """`coach WORDS` in a project below the home; started by another program if one is named."""
    return subprocess.run(
        [*under, sys.executable, "-m", "coach", *map(str, words)],
        cwd=project,
        env=_environment(project.parent),
        capture_output=True,
        text=True,
        timeout=120,
    )


def _found(folder: Path) -> Mapping[str, set[str]]:
    """Planted secret → names of the files that hold it."""
    holders: dict[str, set[str]] = {secret: set() for secret in PLANTED}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
            for secret in PLANTED:
                if secret.encode() in data:
                    holders[secret].add(path.name)
    return holders


def _assert_private(home: Path, *names: str) -> None:
    for run in (home / "runs").glob("2*"):
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        for name in names:
            assert stat.S_IMODE((run / name).stat().st_mode) == 0o600, name
    for folder in (home, home / "runs", home / "cache"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_secrets_of_a_launch_stand_in_its_script_and_its_log_alone(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    said = run_coach(
        project,
        *(
            "launch",
            "train.py",
            "--backend",
            "local",
            "--wait",
            "--share",
            shared,
            "--python",
            sys.executable,
        ),
        *("--", "--api-key", ARGV, "--hub", f"https://u:{URL}@hub/x"),
    )
    assert "FAILED" in said.stdout, said.stderr
    verdict = run_coach(project, "why")
    assert "RuntimeError" in verdict.stdout, verdict.stderr
    home = tmp_path / "coach"
    found = _found(home)
    assert found[ARGV] | found[URL] == {"job.sh", "run.json"}
    assert found[ENVIRONMENT] == found[REMOTE] == set()
    assert found[LINE] | found[ERROR] <= {"stdout.log", "stderr.log"}
    assert found[LINE]
    assert not any(_found(shared).values())
    assert list(shared.glob("*.json"))
    _assert_private(home, "job.sh", "run.json", "exit.json", "verdict.json")


def test_coach_run_keeps_no_secret_of_its_command(project: Path, tmp_path: Path) -> None:
    ran = run_coach(
        project, "run", "--", sys.executable, "train.py", "--token", ARGV, "--hub", f"https://u:{URL}@hub/x"
    )
    assert ran.returncode == 1
    home = tmp_path / "coach"
    found = _found(home)
    assert found[ARGV] == found[URL] == found[ENVIRONMENT] == found[REMOTE] == set()
    assert found[LINE] | found[ERROR] <= {"stdout.log", "stderr.log"}
    _assert_private(home, "run.json", "exit.json", "verdict.json")


def test_an_anonymized_recording_of_the_run_is_free_of_them(project: Path, tmp_path: Path) -> None:
    run_coach(project, "run", "--", sys.executable, "train.py", "--token", ARGV)
    file = tmp_path / "kept.coach"
    (run,) = (tmp_path / "coach" / "runs").glob("2*")
    which = ("--run", run.name, "--for", "2", "--backend", "local")
    recorded = run_coach(project, "record", file, "--anonymize", *which)
    assert recorded.returncode == 0, recorded.stderr
    data = gzip.decompress(file.read_bytes())
    assert b"loss" in data
    assert [secret for secret in PLANTED if secret.encode() in data] == []
