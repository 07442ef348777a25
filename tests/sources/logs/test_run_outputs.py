"""The places in which a run's output is searched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coach.sources.io import SystemIo
from coach.sources.logs.run_outputs import RunLogs


def logs_of(run_dir: Path, **run_json: Any) -> RunLogs:
    (run_dir / "run.json").write_text(json.dumps(run_json))
    return RunLogs(SystemIo({}), run_dir)


def own(run_dir: Path) -> tuple[Path, ...]:
    return run_dir / "stdout.log", run_dir / "stderr.log"


def test_a_launched_run_has_its_logs_in_its_directory(tmp_path: Path) -> None:
    assert logs_of(tmp_path, recipe="ddp").paths() == own(tmp_path)


def test_two_streams_in_one_file_are_one_log_without_its_earlier_content(tmp_path: Path) -> None:
    output = {"stdout": "/data/my.log", "stderr": "/data/my.log", "stdout_start_bytes": 7}
    logs = logs_of(tmp_path, command=["x"], output=output)
    assert logs.paths() == (Path("/data/my.log"),)
    assert logs.start_of(Path("/data/my.log")) == 7


def test_run_json_is_read_again_until_the_command_has_started(tmp_path: Path) -> None:
    logs = logs_of(tmp_path, command=["x"])
    assert logs.paths() == own(tmp_path)
    logs_of(tmp_path, command=["x"], output={"stdout": "/data/my.log", "stderr": "stderr.log"})
    assert logs.paths() == (Path("/data/my.log"), tmp_path / "stderr.log")


@pytest.mark.parametrize(
    "output", [{"stdout": "../other/run.json"}, {"stdout": 7}, {"stdout": None}, [], "x"]
)
def test_an_unexpected_name_or_value_in_run_json_is_no_log(tmp_path: Path, output: Any) -> None:
    assert logs_of(tmp_path, output=output).paths() == own(tmp_path)


def test_a_step_of_a_job_leaves_its_output_to_slurm(tmp_path: Path) -> None:
    value = {"command": ["x"], "output": {}, "backend": "slurm", "job_id": "17"}
    (tmp_path / "run.json").write_text(json.dumps(value))
    logs = RunLogs(SystemIo({}), tmp_path, lambda job_id: (Path(f"/home/ada/slurm-{job_id}.out"),))
    assert logs.paths() == (Path("/home/ada/slurm-17.out"),)


def test_only_an_own_program_s_log_may_lie_elsewhere(tmp_path: Path) -> None:
    assert logs_of(tmp_path, command=["x"]).is_own_program() is True
    assert logs_of(tmp_path, launch={"own": {"words": ["x"]}}).is_own_program() is True
    assert logs_of(tmp_path, launch={"recipe": "ddp"}).is_own_program() is False


@pytest.mark.parametrize("start", [-5, "7", None, 2.5])
def test_a_malformed_start_offset_skips_no_line(tmp_path: Path, start: Any) -> None:
    logs = logs_of(tmp_path, command=["x"], output={"stdout": "/data/my.log", "stdout_start_bytes": start})
    assert logs.paths() == (Path("/data/my.log"),)
    assert logs.start_of(Path("/data/my.log")) == 0
