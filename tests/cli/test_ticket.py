"""`coach ticket`: the facts for a help desk, without a secret, shown before they are saved."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coach.sources.machine.user import user_name
from coach.sources.runs.cohort_directory import read_shared
from tests.forked import forked_coach

RECORDINGS = Path(__file__).parents[1] / "recordings"
RUN = "20261121-142233-baseline-4f2a"
CHILD = "20261121-152233-baseline-5e3b"
KEY_LINES = ("-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXkt", "-----END OPENSSH PRIVATE KEY-----")

Coach = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def coach(tmp_path: Path) -> Coach:
    """`coach ticket ARGUMENT…` on a machine without Slurm."""

    def call(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        env = {"COACH_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
        words = ["ticket", *map(str, arguments), "--backend", "local"]
        done = forked_coach(words, env | {"LC_ALL": "C.UTF-8", "COACH_AS_ROOT": "1"}, stdin)
        assert b"Traceback" not in done.stderr, done.stderr
        return done

    return call


def a_run(tmp_path: Path, source: str = "nan", run_id: str = RUN, **record: Any) -> Path:
    """A run of this user, by a recording."""
    run_dir = tmp_path / "home" / "runs" / run_id
    shutil.copytree(RECORDINGS / source, run_dir)
    known = json.loads((run_dir / "run.json").read_text())
    known |= {"run_id": run_id, "job_id": run_id, "user": user_name(), **record}
    (run_dir / "run.json").write_text(json.dumps(known))
    return run_dir


def test_a_ticket_holds_all_facts_that_a_help_desk_asks_for(coach: Coach, tmp_path: Path) -> None:
    run_dir = a_run(tmp_path, environment={"python": "/opt/python3", "modules": ["cuda/12.4"], "setup": []})
    (run_dir / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpus=1\ntorchrun train.py\n")
    with (run_dir / "stderr.log").open("a") as log:
        log.write('Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: 11 classes\n')
    done = coach(RUN)
    told = done.stdout.decode()
    assert done.returncode == 0
    assert told.startswith(f"# Run {RUN}: COMPLETED\n")
    for words in (
        *("critical NUM001 on rank 0: The loss is NaN", "submitted:  2026-11-21", "## Modules", "cuda/12.4"),
        *("#SBATCH --gpus=1", "/opt/python3", "ValueError: 11 classes", f"{run_dir}/stdout.log"),
        *("lr = 1e+20", "version of torch:      2.13.0+cpu", "commit of the program: 36bee3e9", "ran for:"),
        "no other run or job of the same program is known here",
    ):
        assert words in told, words
    assert b"nothing is sent" in done.stderr


SECRETS = {
    "argv": "hunter2-argv",
    "option": "hf_ArgvArgvArgvArgvArgv",
    "variable": "aws-secret-variable/x",
    "wandb": "0123456789abcdef0123456789abcdef01234567",
    "parameter": "hunter2-parameter",
    "setup": "hunter2-setup",
    "path": "ghp_PathPathPathPathPathPathPath",
    "script": "correct horse battery",
    "remote": "glpat-RemoteRemoteRemote",
    "url": "hunter2-url",
    "bearer": "bearerbearer0123",
    "header": "s3cr",
    "aws": "AKIAABCDEFGHIJKLMNOP",
    "error": "hunter2-error",
    "key": KEY_LINES[1],
    "cut key": "Y3V0Y3V0Y3V0",
}


def planted(tmp_path: Path) -> Path:
    """A run with a secret in each part of a ticket."""
    run_dir = a_run(
        *(tmp_path, "nan", RUN),
        launch={
            "own": {
                "words": ["train.py", f"--password={SECRETS['argv']}", "--key", SECRETS["option"]],
                "kind": "script",
                "directory": f"/data/{SECRETS['path']}/code",
            },
            "env": {"AWS_SECRET_ACCESS_KEY": SECRETS["variable"], "WANDB_API_KEY": SECRETS["wandb"]},
        },
        parameters={"lr": 0.1, "hub_token": SECRETS["parameter"]},
        environment={"python": f"/data/{SECRETS['path']}/bin/python", "modules": [], "setup": []},
        git={"commit": "36bee3e9", "is_dirty": False},
    )
    record = json.loads((run_dir / "run.json").read_text())
    record["environment"]["setup"] = [f"export DB_PASSWORD={SECRETS['setup']}"]
    (run_dir / "run.json").write_text(json.dumps(record))
    script = (
        f'#!/bin/bash\nexport PASSPHRASE="{SECRETS["script"]}"\n'
        f"git clone https://oauth2:{SECRETS['remote']}@git.example.org/me/x.git\n"
        f"curl -H 'Authorization: Bearer {SECRETS['header']}' https://me:{SECRETS['url']}@h/x\n"
    )
    (run_dir / "job.sh").write_text(script + "cat <<E\n" + "\n".join(KEY_LINES) + "\nE\n")
    log = (
        f"\x1b[1morigin\x1b[0m https://me:{SECRETS['url']}@h/x (fetch)\nAuthorization: Bearer "
        f"{SECRETS['bearer']}\nAWS_ACCESS_KEY_ID={SECRETS['aws']}\nloading {SECRETS['path']}\n"
    )
    log += "\n".join(KEY_LINES) + f"\n{SECRETS['cut key']}\n-----END RSA PRIVATE KEY-----\n"
    log += 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    login()\n'
    (run_dir / "stderr.log").write_text(log + f"ValueError: password: {SECRETS['error']}\n")
    return run_dir


def test_every_planted_secret_is_struck_wherever_it_stands(coach: Coach, tmp_path: Path) -> None:
    planted(tmp_path)
    file = tmp_path / "ticket.md"
    saved = coach(RUN, "--save", file, "--yes")
    assert saved.returncode == 0
    as_json = coach(RUN, "--format", "json")
    told = (saved.stdout, file.read_bytes(), as_json.stdout, saved.stderr)
    for where, secret in SECRETS.items():
        assert all(secret.encode() not in text for text in told), where
    for words in ("train.py", "--password=***", "lr = 0.1", "git.example.org/me/x.git", "a.py", "36bee3e9"):
        assert words in told[0].decode(), words
    number = json.loads(as_json.stdout)["num_struck"]
    assert number >= 10
    assert f"{number} secrets were struck" in saved.stderr.decode()


def test_a_ticket_is_shown_asked_for_and_never_saved_over_another(coach: Coach, tmp_path: Path) -> None:
    a_run(tmp_path)
    file = tmp_path / "ticket.md"
    unasked = coach(RUN, "-o", file)
    assert (unasked.returncode, file.exists()) == (2, False)
    assert b"--yes confirms it" in unasked.stderr
    assert unasked.stdout.startswith(b"# Run"), "shown before it is asked for"
    done = coach(RUN, "-o", file, "--yes")
    assert (done.returncode, file.stat().st_mode & 0o777) == (0, 0o600)
    assert file.read_bytes() == done.stdout
    file.write_text("mine")
    assert coach(RUN, "-o", file, "--yes").returncode == 2
    assert file.read_text() == "mine"
    link = tmp_path / "link.md"
    link.symlink_to(tmp_path / "elsewhere")
    assert coach(RUN, "-o", link, "--yes").returncode == 2
    assert not (tmp_path / "elsewhere").exists()


def test_at_a_terminal_a_ticket_is_asked_for_and_not_saved_by_another_word(tmp_path: Path) -> None:
    a_run(tmp_path)
    file = tmp_path / "ticket.md"
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}
    master, slave = pty.openpty()
    os.write(master, b"n\n")
    words = ["ticket", RUN, "--backend", "local", "-o", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "coach", *words], env=env, stdin=slave, capture_output=True, text=True
    )
    os.close(slave)
    os.close(master)
    assert "y does it, anything else does not" in done.stderr
    assert (done.returncode, file.exists()) == (1, False)


def test_a_ticket_lists_each_tried_fix_with_its_result(coach: Coach, tmp_path: Path) -> None:
    a_run(tmp_path)
    fix = {"rule": "NUM001", "title": "Learning rate 1e+20 → 0.05", "changes": {"lr": 0.05}}
    a_run(tmp_path, "healthy", CHILD, parent_run_id=RUN, fix=fix, created_time_s=1795300000.0)
    told = json.loads(coach(CHILD, "--format", "json").stdout)["tried"]
    assert [each["target"] for each in told] == [RUN, CHILD]
    assert told[0]["found"].startswith("NUM001 The loss is NaN")
    assert told[1]["how"][0] == f"made from {RUN} by the fix of NUM001: Learning rate 1e+20 → 0.05"
    assert "lr = 0.05" in told[1]["how"]
    assert any(words.startswith("loss: ") for words in told[1]["measured"]), told[1]
    shown = coach(RUN).stdout.decode()
    assert f"{CHILD}: COMPLETED" in shown
    assert "  made from" in shown
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home")}
    done = forked_coach(["compare", CHILD, "--backend", "local", "--format", "json"], env)
    assert [link["run_id"] for link in json.loads(done.stdout)["chain"]] == [RUN, CHILD], done.stderr


def test_an_open_drill_is_no_matter_for_a_help_desk(coach: Coach, tmp_path: Path) -> None:
    a_run(tmp_path, drill="typo", recipe="typo")
    done = coach(RUN)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"an open drill" in done.stderr


def test_a_log_alone_makes_a_ticket_that_lists_the_unknown_facts(coach: Coach, tmp_path: Path) -> None:
    log = tmp_path / "a```b.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: 11 classes\n'
    )
    told = coach(log).stdout.decode()
    assert told.startswith("# A job\n")
    assert "not known: this is no job and no run" in told
    assert "Slurm does not know it as a job" in told
    assert "ValueError: 11 classes" in told
    assert coach(tmp_path / "nothing").returncode == 2


def test_a_shared_ticket_lies_where_the_instructor_can_read_it(coach: Coach, tmp_path: Path) -> None:
    a_run(tmp_path)
    refused = coach(RUN, "--share", "--yes")
    assert refused.returncode == 2
    assert b"no shared directory is known" in refused.stderr
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    (tmp_path / "home" / "config.toml").write_text(f'[launch]\nshare = "{place}"\n')
    assert coach(RUN, "--share").returncode == 2  # without a terminal nobody can confirm it
    assert [*place.iterdir()] == []
    assert coach(RUN, "--share", "--yes").returncode == 0
    [file] = place.iterdir()
    assert file.name == f"{os.geteuid()}-{RUN}.ticket.md"
    assert file.stat().st_mode & 0o777 == 0o644
    assert "NUM001" in file.read_text()
    [told] = read_shared(place).tickets
    assert told == (os.geteuid(), RUN)
    place.chmod(0o777)
    assert b"could replace" in coach(RUN, "--share", "--yes").stderr


def test_the_ticket_of_a_drill_is_not_shared(coach: Coach, tmp_path: Path) -> None:
    a_run(tmp_path, drill="typo")
    (tmp_path / "home" / "config.toml").write_text(f'[launch]\nshare = "{tmp_path}"\n')
    done = coach(RUN, "--share", "--yes")
    assert done.returncode == 2
    assert b"others have still to find its fault" in done.stderr
