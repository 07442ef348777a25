"""Node code runs under the site's Python, whichever it is: every version at hand runs a training beside the sampler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.node.conftest import Start, telemetry
from tests.waiting import wait_until

_VERSIONS = [f"3.{minor}" for minor in range(9, 15)]


def _interpreter(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(pyenv.glob(f"versions/{version}.*/bin/python3"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_training_runs_beside_the_sampler(start: Start, tmp_path: Path, version: str) -> None:
    python = _interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    release = tmp_path / "go"
    wait = f"while [ ! -e {release} ]; do sleep 0.05; done; exit 6"
    training = start(
        "run", "--run-dir", str(tmp_path / "run"), "--interval", "0.1", "--", "sh", "-c", wait, python=python
    )
    hosts = wait_until(lambda: [r for r in telemetry(tmp_path / "run") if r["kind"] == "host"][1:])
    release.touch()
    _, stderr = training.communicate(timeout=30)
    assert (training.returncode, stderr) == (6, "")
    assert hosts[0]["num_processes"] >= 1
