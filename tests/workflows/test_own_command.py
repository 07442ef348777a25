"""A user's own command under `coach run`, on this machine: its output is diagnosed, wherever it was sent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.judging.finding import Diagnosis
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.io import SystemIo
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import resolve_target

NODE = Path(__file__).parents[2] / "coach" / "node"
NAN = "for step in range(1, 40): print(f'step {step} loss {2.3 if step < 2 else float(\"nan\")}')"
CRASH = "import torch_of_nobody"
TORN = (
    "raise RuntimeError('PytorchStreamReader failed reading zip archive: failed finding central directory')"
)


def run(tmp_path: Path, program: str, redirection: str) -> Diagnosis:
    """Start the program as a user does, in a shell, and judge its run."""
    script = f'"$PYTHON" "$NODE" run --run-dir run -- "$PYTHON" -c "$PROGRAM" {redirection}'
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    env |= {"PYTHON": sys.executable, "NODE": str(NODE), "PROGRAM": program}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60)
    settings, io = Settings(tmp_path, tmp_path / "cache", tmp_path / "config"), SystemIo({})
    target = resolve_target(str(tmp_path / "run"), settings, io, "local", "ada")
    engine = Engine(build())
    return engine.diagnose(
        *read_once(target, settings, io, "local", "ada", signatures(build()), is_queue_asked=False)
    )


@pytest.mark.parametrize("redirection", ["", "> my.log 2>&1", "2>&1 | cat", "> /dev/null 2>&1"])
@pytest.mark.parametrize(
    ("program", "cause"),
    [(NAN, "nan_loss"), (CRASH, "module_not_found"), (TORN, "checkpoint_corrupt")],
)
def test_an_own_command_is_diagnosed_from_its_output(
    tmp_path: Path, program: str, cause: str, redirection: str
) -> None:
    assert cause in [finding.cause for finding in run(tmp_path, program, redirection).findings]


@pytest.mark.parametrize("redirection", [">> my.log 2>&1", "2>&1 | cat"])
def test_an_earlier_command_s_error_in_the_same_log_is_not_blamed_on_this_one(
    tmp_path: Path, redirection: str
) -> None:
    assert [finding.cause for finding in run(tmp_path, CRASH, redirection).findings] == ["module_not_found"]
    assert run(tmp_path, "print('fine')", redirection).findings == ()
    assert [finding.cause for finding in run(tmp_path, CRASH, "> other.log 2>&1").findings] == [
        "module_not_found"
    ]
