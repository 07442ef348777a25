"""The built wheel in an empty environment, as `pip install cluster-coach` leaves it: it trains and judges
with no source tree in sight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

SMALL = (
    *("--set", "max_steps=3", "--set", "width=8", "--set", "num_workers=0"),
    *("--set", "num_train_samples=64", "--set", "batch_size=16", "--set", "eval_every_epoch=false"),
)


@pytest.mark.train
def test_the_built_wheel_trains_on_this_machine_and_judges_the_run(bare_python: Path, tmp_path: Path) -> None:
    """Only the packages that coach needs are shared, by a .pth file; torch is the suite's own."""
    names = ("PATH", "TMPDIR", "LANG")
    env = {name: os.environ[name] for name in names if name in os.environ}
    env |= {"HOME": str(tmp_path), "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1"}

    def python(*words: str, status: int = 0) -> str:
        argv = [str(bare_python), *words]
        done = subprocess.run(
            argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120 * PATIENCE
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    where = python("-c", "import coach; print(coach.__file__)")
    assert Path(where.strip()).is_relative_to(bare_python.parents[1])

    torch = ("--backend", "local", "--python", sys.executable)
    run = json.loads(
        python("-m", "coach", "launch", "baseline", *torch, *SMALL, "--wait", "--format", "json")
    )
    assert run["state"] == "COMPLETED"
    judged = json.loads(python("-m", "coach", "check", run["run_id"], "--format", "json"))
    assert judged["state"] == "COMPLETED"
    python("-m", "coach", "check", "no-such-run", status=2)
