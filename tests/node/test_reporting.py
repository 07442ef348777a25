"""`coach_report`: exact numbers from an own program, and silence outside of coach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coach import node

FOLDER = Path(node.__file__ or "").parent / "reporting"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(FOLDER), **environment}
    return subprocess.run(
        [sys.executable, "-c", f"import coach_report\n{code}"], env=env, capture_output=True, text=True
    )


def records(run_dir: Path, rank: int = 0) -> list[dict[str, Any]]:
    path = run_dir / "metrics" / f"rank-{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_and_evaluations_are_written_with_samples_of_all_ranks(tmp_path: Path) -> None:
    code = "for n in range(3): coach_report.step(loss=1.0 / (n + 1), samples=8, lr=0.1)\n"
    done = run(
        f"{code}coach_report.evaluation(accuracy=0.5)",
        COACH_RUN_DIR=str(tmp_path),
        RANK="1",
        WORLD_SIZE="2",
    )
    start, *steps, evaluation = records(tmp_path, rank=1)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (start["event"], start["world_size"], start["loss_of"]) == ("start", 2, "rank")
    assert [(each["step"], each["loss"], each["num_samples_global"]) for each in steps] == [
        *((0, 1.0, 16), (1, 0.5, 16), (2, 1 / 3, 16))
    ]
    assert "step_time_s" not in steps[0]
    assert steps[1]["step_time_s"] > 0
    assert (evaluation["event"], evaluation["step"], evaluation["accuracy"]) == ("eval", 2, 0.5)


@pytest.mark.train
def test_a_tensor_is_kept_without_its_graph_and_a_nan_is_a_word(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "import torch\nw = torch.ones(1, requires_grad=True)\n"
        "coach_report.step(loss=(w * 2).sum())\ncoach_report.step(loss=w.sum() * float('nan'))\n"
        "assert not coach_report._REPORT._records[0]['loss'].requires_grad"
    )
    done = run(code, COACH_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [each.get("loss") for each in records(tmp_path)] == [None, 2.0, "NaN"]


def test_outside_of_coach_nothing_happens(tmp_path: Path) -> None:
    done = run("coach_report.step(loss=1.0)\ncoach_report.evaluation(loss=1.0)", COACH_RUN_DIR="")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_an_unwritable_run_directory_is_reported_once_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("a file, and no folder")
    done = run(
        "for n in range(40): coach_report.step(loss=1.0)\nprint('trained')", COACH_RUN_DIR=str(tmp_path)
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("coach_report: ") == 1
    assert "rank 0 are not recorded" in done.stderr


def test_a_value_that_is_no_number_ends_the_reports_and_not_the_training(tmp_path: Path) -> None:
    for call in ("step(samples='many')", "step(step='first')", "evaluation(step=[1])"):
        run_dir = tmp_path / call
        done = run(
            f"coach_report.step(loss=1.0)\nfor n in range(3): coach_report.{call}\nprint('trained')",
            COACH_RUN_DIR=str(run_dir),
        )
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert done.stderr.count("coach_report: ") == 1
        assert [each.get("loss") for each in records(run_dir)] == [None, 1.0]


def test_a_forked_worker_reports_nothing_of_its_parent_s(tmp_path: Path) -> None:
    code = (
        "import os\ncoach_report.step(loss=1.0)\nchild = os.fork()\n"
        "coach_report.step(loss=2.0)\n"
        "if child: os.waitpid(child, 0)"
    )
    assert run(code, COACH_RUN_DIR=str(tmp_path)).returncode == 0
    assert [each["loss"] for each in records(tmp_path) if "loss" in each] == [1.0, 2.0]


def test_a_run_that_is_begun_again_goes_on_in_the_same_file_behind_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "rank-0.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"step": 1, "lo')
    run("coach_report.step(step=7, loss=1.0)", COACH_RUN_DIR=str(tmp_path))
    torn, start, step = path.read_text().splitlines()
    assert torn == '{"step": 1, "lo'
    assert json.loads(start)["event"] == "start"
    assert json.loads(step)["step"] == 7
