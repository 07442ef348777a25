"""`coach trace`: a trace as text and as JSON, found by its file, by its folder or by its run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tests.forked import typed_coach

TESTS = Path(__file__).parents[1]
FIXTURE = TESTS / "fixtures" / "trace" / "ddp-rank-0.json.gz"


def test_a_trace_in_any_directory_is_read_in_the_terminal(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path)}
    run = tmp_path / "runs" / "20261121-043902-baseline-bca6"
    shutil.copytree(TESTS / "recordings" / "healthy", run)
    (run / "profile").mkdir(exist_ok=True)
    shutil.copy(FIXTURE, run / "profile" / "step-00000012.json.gz")
    for named in (FIXTURE, FIXTURE.parent, run.name):
        done = typed_coach(("trace", named, "--backend", "local"), env)
        assert done.returncode == 0, done.stderr
        assert "3 steps of 55.2 ms on the CPU, rank 0 of 2" in done.stdout
        assert "46.3%  communicating: 6 collectives, 13% of their time overlaps with computing" in done.stdout
    told = json.loads(typed_coach(("trace", FIXTURE, "--format", "json"), env).stdout)
    assert (told["schema"], told["num_steps"], told["top"][0]["name"]) == (1, 3, "aten::mm")
