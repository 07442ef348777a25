"""A program started from the process with torch behaves like a cold start, only faster."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainers.conftest import Trainer

pytestmark = pytest.mark.train

TELLING = """
import os, sys
print(__name__, sys.argv[1:], sys.path[0] == os.path.dirname(__file__), os.getcwd(), os.environ.get("RANK"))
print(sorted(os.environ), sys.modules["__main__"].__dict__ is globals())
sys.stderr.write("beside\\n")
"""
ENDS = {
    "status": "import sys; sys.exit(7)",
    "words": "import sys; sys.exit('no data')",
    "error": "def f():\n    raise ValueError('é')\nf()",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at-exit": "import atexit; atexit.register(print, 'left')",
}


def both(trainer: Trainer, path: Path, *words: str) -> list[subprocess.CompletedProcess[str]]:
    assert trainer.warm is not None
    cold = dataclasses.replace(trainer, warm=None)
    return [each.call([sys.executable, str(path), *words], trainer.env) for each in (trainer, cold)]


@pytest.mark.parametrize("code", [TELLING, *ENDS.values()], ids=["surroundings", *ENDS])
def test_a_warm_program_behaves_and_ends_like_a_cold_one(trainer: Trainer, tmp_path: Path, code: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(code)
    warm, cold = both(trainer, path, "--a", "b c")
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_a_program_starts_cold_if_its_environment_changes_torch(trainer: Trainer) -> None:
    assert trainer.warm is not None
    assert trainer.warm.is_as_warm({**trainer.env, "RANK": "0", "PYTHONPATH": "/x"})
    assert trainer.warm.is_as_warm({**trainer.env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    assert not trainer.warm.is_as_warm({**trainer.env, "CUDA_VISIBLE_DEVICES": "31"})
    assert not trainer.warm.is_as_warm({**trainer.env, "OMP_NUM_THREADS": "2"})


def test_a_warm_command_that_takes_too_long_is_ended(trainer: Trainer) -> None:
    assert trainer.warm is not None
    command = [sys.executable, "-c", "import time; time.sleep(300)"]
    with pytest.raises(subprocess.TimeoutExpired):
        trainer.warm.run(command, trainer.env, 0.2)
