"""Node code runs under the site's Python, whichever it is: every version at hand looks first, and runs a
training beside the sampler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.node.conftest import Start, telemetry
from tests.waiting import wait_until


@pytest.fixture(params=[f"3.{minor}" for minor in range(9, 15)])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter of each version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(pyenv.glob(f"versions/{request.param}.*/bin/python3"))
    path = str(found[-1]) if found else shutil.which(f"python{request.param}")
    if path is None:
        pytest.skip(f"Python {request.param} is not on this machine")
    return path


def test_a_training_runs_beside_the_sampler_without_any_package(
    start: Start, tmp_path: Path, python: str
) -> None:
    release = tmp_path / "go"
    for package in ("pynvml", "psutil"):
        (tmp_path / f"{package}.py").write_text("raise ImportError\n")
    wait = f"while [ ! -e {release} ]; do sleep 0.05; done; exit 6"
    training = start(
        "run",
        "--run-dir",
        str(tmp_path / "run"),
        "--interval",
        "0.1",
        "--",
        "sh",
        "-c",
        wait,
        python=python,
        env={"PYTHONPATH": str(tmp_path)},
    )
    hosts = wait_until(lambda: [r for r in telemetry(tmp_path / "run") if r["kind"] == "host"][1:])
    records = telemetry(tmp_path / "run")
    release.touch()
    _, stderr = training.communicate(timeout=30)
    assert (training.returncode, stderr) == (6, "")
    assert hosts[0]["num_processes"] >= 1
    assert hosts[0]["memory_used_mib"] > 0
    assert "sh" in {record["name"] for record in records if record["kind"] == "process"}
    because = [record["because"] for record in records if record.get("what") == "gpu.utilization"]
    assert because, "what is not measured is said"
    assert all(text.startswith(f"pynvml missing in {python}") for text in because)


def test_an_interpreter_without_torch_is_named_in_the_first_second(
    start: Start, tmp_path: Path, python: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"schema": 1, "requires": {"torch": ">=2.6"}}')
    command = ["--run-dir", str(tmp_path / "run"), "--", python, "-m", "torch.distributed.run", "train.py"]
    job = start("run", *command, python=python, env={"PYTHONNOUSERSITE": "1"})
    _, stderr = job.communicate(timeout=30)
    assert job.returncode == 78
    assert stderr.startswith(f"coach: module_not_found: torch is not installed in {python} on node1")
