"""`coach launch`, `recipes` and `cancel` as a user types them, on the local backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.cli.reading_io import TellingIo
from coach.sources.io import Query
from tests.forked import forked_coach, typed_coach
from tests.generated import lent_images

SMALL = ("max_steps=4", "width=8", "num_workers=0", "num_train_samples=256", "eval_every_epoch=false")


class Coach:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "COACH_HOME": str(home)}

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        return typed_coach(args, self.env, timeout_s=200)

    def launch(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self("launch", *args, "--backend", "local", "--python", sys.executable)


@pytest.fixture
def coach(tmp_path: Path) -> Coach:
    return Coach(tmp_path)


@pytest.fixture
def images(tmp_path: Path) -> Iterator[None]:
    """The trainings' data are in coach's home already."""
    with lent_images(tmp_path):
        yield


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("dpp",), ("unknown recipe 'dpp'", "did you mean ddp or ddp_amp?")),
        (("lonely_rnk",), ("unknown recipe 'lonely_rnk'", "did you mean `coach drill lonely_rank`?")),
        (("/no/such.toml",), ("/no/such.toml: No such file",)),
        (("ddp", "--set", "learning_rat=1"), ("--set learning_rat: recipe ddp has no parameter",)),
        (("ddp", "--set", "lr=fast"), ("--set lr = 'fast': expected a number",)),
        (("ddp", "--set", "lr"), ("--set 'lr': expected KEY=VALUE",)),
        (("ddp", "--nodes", "two"), ("--nodes 'two': expected a whole number",)),
        (("ddp", "--nodes", "2"), ("--nodes 2: the local backend is one machine",)),
        (("ddp", "--time", "soon"), ("--time 'soon': not a time limit",)),
        (("ddp", "--sbatch", "x\ny=1"), ("not an option of sbatch",)),
    ],
)
def test_a_mistake_is_one_clear_line_and_nothing_is_launched(
    coach: Coach, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = forked_coach(("launch", *args, "--backend", "local", "--python", sys.executable), coach.env)
    stderr = done.stderr.decode()
    assert done.returncode == 2
    assert done.stdout == b""
    assert all(word in stderr for word in words)
    assert len(stderr.splitlines()) <= 2
    assert not (coach.home / "runs").exists()


def test_a_dry_run_prints_the_script_alone_and_fails_where_a_launch_would(coach: Coach) -> None:
    done = coach.launch("ddp", "--dry-run", "--set", "lr=0.1")
    assert done.returncode == 0
    assert done.stdout.startswith("#!/bin/bash\n")
    assert "--lr=0.1" in done.stdout
    assert "over gloo" in done.stderr or "GPU" not in done.stderr
    assert [path.name for path in (coach.home / "runs").iterdir()] == [".code"]  # no run, nor a part of one
    assert coach.launch("ddp", "--dry-run", "--set", "lr=0").returncode == 2


def test_recipes_lists_them_and_shows_the_parameters_of_one(coach: Coach) -> None:
    listed = json.loads(coach("recipes", "--format", "json").stdout)
    assert listed["schema"] == 1
    assert {"baseline", "ddp"} <= {recipe["name"] for recipe in listed["recipes"]}
    shown = coach("recipes", "ddp")
    assert shown.returncode == 0
    assert "above 0" in next(line for line in shown.stdout.splitlines() if line.startswith("lr "))


def test_cancel_asks_and_without_a_terminal_needs_yes(coach: Coach) -> None:
    done = coach("cancel", "20261121-142233-ddp-4f2a")
    assert done.returncode == 2
    assert "neither a run in" in done.stderr


@pytest.mark.train
@pytest.mark.long  # `make test` asks the same of a sweep (test_own_recipe.py) and of a launch that fails
@pytest.mark.usefixtures("images")
def test_a_launch_that_waits_answers_once_when_the_run_has_completed(coach: Coach) -> None:
    sets = [word for pair in SMALL for word in ("--set", pair)]
    done = coach.launch("baseline", *sets, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["runs"] == [{key: answer[key] for key in ("run_id", "run_dir", "job_id", "state")}]
    assert answer["state"] == "COMPLETED"
    run_dir = Path(answer["run_dir"])
    assert json.loads((run_dir / "exit.json").read_text())["state"] == "COMPLETED"
    assert len((run_dir / "metrics" / "rank-0.jsonl").read_text().splitlines()) >= 4


def test_a_launch_that_waits_says_why_the_run_failed(coach: Coach) -> None:
    done = coach.launch("baseline", "--env", "modules=no-such-module/1.0", "--wait", "--format", "json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["runs"] == [{key: answer[key] for key in ("run_id", "run_dir", "job_id", "state")}]
    assert "coach: ENV023 module-not-loaded" in done.stderr
    assert "coach check" in done.stderr


@pytest.mark.train
@pytest.mark.long  # short, on Slurm: tests/cluster/test_story.py
@pytest.mark.usefixtures("images")
def test_a_printed_script_started_by_hand_makes_the_same_run(coach: Coach) -> None:
    sets = [word for pair in SMALL for word in ("--set", pair)]
    script = coach.launch("baseline", *sets, "--dry-run").stdout
    by_hand = subprocess.run(["bash", "-s"], input=script, env=coach.env, capture_output=True, text=True)
    assert by_hand.returncode == 0, by_hand.stderr
    (run_dir,) = [path for path in (coach.home / "runs").iterdir() if path.name != ".code"]
    assert json.loads((run_dir / "run.json").read_text())["recipe"] == "baseline"
    assert json.loads((run_dir / "exit.json").read_text())["state"] == "COMPLETED"


def test_a_launch_that_waits_for_the_controller_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    client = tmp_path / "scontrol"
    client.write_text('#!/bin/sh\nwhile [ ! -e "$0.may" ]; do sleep 0.02; done\n')
    client.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def tell(line: str) -> None:
        told.append(line)
        (tmp_path / "scontrol.may").touch()

    io = TellingIo(env, timeout_s=20.0, tell=tell, waiting_after_s=0.1)
    assert io.run(Query("nodes", ("scontrol",))).returncode == 0
    assert told == ["Slurm has not answered for 0 s; scontrol may take up to 20 s"]
    assert io.run(Query("git", ("sleep", "0.3"))).returncode == 0  # not a client of Slurm's
    assert io.run(Query("nodes", ("scontrol",))).returncode == 0
    assert len(told) == 1
