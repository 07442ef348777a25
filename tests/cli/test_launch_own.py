"""`coach launch` of a program that was not written for coach, on the local backend."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.forked import typed_coach

PROGRAM = """
import argparse, json, os, stat, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--fail", action="store_true")
arguments = parser.parse_args()
with open("result.json", "w") as file:
    json.dump({"argv": sys.argv, "cwd": os.getcwd(), "run": os.environ["COACH_RUN_DIR"]}, file)
print(f"loss 1.0 at batch size {arguments.batch_size}")
if arguments.fail:
    raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    return folder


def coach(home: Path, *words: str, status: int = 0) -> str:
    env = {**os.environ, "COACH_HOME": str(home.parent / "coach")}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = typed_coach(words, env, cwd=home, timeout_s=120)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def launch(home: Path, *words: str, status: int = 0) -> str:
    return coach(
        home, "launch", "--backend", "local", "--gpus", "0", "--format", "json", *words, status=status
    )


def test_a_script_runs_unchanged_from_its_own_directory_and_is_a_run_like_any_other(home: Path) -> None:
    answer = json.loads(launch(home, "train.py", "--wait", "--", "--lr", "1e-4"))
    assert answer["state"] == "COMPLETED"
    run_dir = Path(answer["run_dir"])
    told = json.loads((home / "result.json").read_text())
    assert told == {"argv": ["train.py", "--lr", "1e-4"], "cwd": str(home), "run": str(run_dir)}
    assert (home / "result.json").stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert "batch size 32" in (run_dir / "stdout.log").read_text()
    record = json.loads((run_dir / "run.json").read_text())
    assert record["recipe"] == "train"
    assert record["parameters"] == {"lr": 1e-4, "batch_size": 32, "fail": False}
    assert [run["run_id"] for run in json.loads(coach(home, "runs", "--format", "json"))["runs"]] == [
        answer["run_id"]
    ]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_command_that_fails_is_judged_like_a_recipe(home: Path) -> None:
    told = launch(home, "--wait", "--", sys.executable, "train.py", "--fail", status=1)
    answer = json.loads(told[: told.index("}\n  ]\n}") + 7])
    judged = coach(home, "check", answer["run_id"], "--format", "json", status=1)
    assert json.loads(judged)["findings"][0]["cause"] in ("cuda_oom", "host_oom", "code_error")
    assert json.loads((home / "result.json").read_text())["argv"][1:] == ["--fail"]


def test_a_parameter_of_the_script_is_set_by_the_rules_name_for_it(home: Path) -> None:
    script = coach(
        home,
        *("launch", "train.py", "--backend", "local", "--gpus", "0", "--dry-run", "--set", "batch_size=8"),
        *("--", "--lr", "0.5"),
    )
    assert "train.py --lr 0.5 --batch-size 8 &" in script
    refused = coach(home, "launch", "train.py", "--backend", "local", "--set", "width=1", status=2)
    assert "your program has no parameter 'width'" in refused
    assert "its parameters: lr, batch_size, fail" in refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ddp", "--", "--lr", "1"), "arguments after --: only for a script, a command or a batch file"),
        (("ddp", "--with", "torchrun"), "--with: only for a script"),
        (("--as-is",), "--as-is: the batch file is missing"),
        ((), "expected a recipe, a script, a batch file or `-- COMMAND`"),
        (("gone.sbatch",), "gone.sbatch: no such file"),
    ],
)
def test_an_impossible_launch_is_refused_in_one_clear_line(
    home: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in coach(home, "launch", *words, status=2)


def test_as_is_hands_the_file_to_sbatch(home: Path) -> None:
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --array=1-3\n")
    assert coach(home, "launch", "job.sh", "--as-is", "--dry-run", "--", "a b") == "sbatch job.sh 'a b'\n"


MEMORY = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=32)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
arguments = parser.parse_args()
print(f"trained with {arguments}")
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
if arguments.per_device_train_batch_size > 16:
    raise OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
        "which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.07 GiB memory in use. "
        "Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.01 GiB is reserved by PyTorch "
        "but unallocated."
    )
"""


def test_a_fix_changes_the_script_s_own_arguments_and_helps(home: Path) -> None:
    (home / "train.py").write_text(MEMORY)
    told = launch(home, "train.py", "--wait", status=1)
    parent, _ = json.JSONDecoder().raw_decode(told)
    fixed = coach(home, "fix", parent["run_id"], "--yes", "--change-learning", "--wait")
    child = next(
        run
        for run in json.loads(coach(home, "runs", "--format", "json"))["runs"]
        if run["run_id"] != parent["run_id"]
    )
    assert child["state"] == "COMPLETED", fixed
    run_dir = Path(parent["run_dir"]).parent / child["run_id"]
    said = "Namespace(per_device_train_batch_size=16, gradient_accumulation_steps=2)"
    assert said in (run_dir / "stdout.log").read_text()
    assert json.loads((run_dir / "run.json").read_text())["parent_run_id"] == parent["run_id"]


CONFIGURED = """
import json, sys
config = json.load(open(sys.argv[-1]))
batch_size = config["data"]["BATCH"]
print(f"loss 1.0 at batch size {batch_size}")
if batch_size > 16:
    raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


def test_a_fix_of_values_in_a_config_file_shows_the_lines_and_writes_nothing(home: Path) -> None:
    (home / "train.py").write_text(CONFIGURED.replace("BATCH", "batch_size"))
    text = '{"data": {"batch_size": 32},\n"grad_accum_steps": 2}\n'
    (home / "conf.json").write_text(text)
    launch(home, "train.py", "--wait", "--", "--config", "conf.json", status=1)
    run_id = json.loads(coach(home, "runs", "--format", "json"))["runs"][0]["run_id"]
    told = coach(home, "fix", run_id, "--yes", "--change-learning", status=2).splitlines()
    assert f"{home}/conf.json:1: data.batch_size: 32 → 16" in told
    assert f"{home}/conf.json:2: grad_accum_steps: 2 → 4" in told
    assert (home / "conf.json").read_text() == text
    assert len(json.loads(coach(home, "runs", "--format", "json"))["runs"]) == 1
