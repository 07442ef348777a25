"""The verdict at a job's end: in the run and in its log, bounded, and silent where all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coach import runs
from coach.node import judge

RUN = "20261121-142233-train-4f2a"
FAILING = """
import sys
print("step 1 loss 2.3", flush=True)
raise ValueError("11 classes, 10 expected")
"""


def coach_run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COACH_HOME": str(home)}
    env = {key: value for key, value in env.items() if not key.startswith("SLURM_")}
    argv = [sys.executable, "-m", "coach", "run", "--recipe", "train", "--", *command]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50)


def only_run(home: Path) -> Path:
    (found,) = (path for path in (home / "runs").iterdir() if runs.RUN_ID.match(path.name))
    return found


def said(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith(runs.SAID_OF_END)]


def test_the_cause_of_a_failure_follows_the_program_s_own_output(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILING)
    done = coach_run(tmp_path / "home", sys.executable, str(tmp_path / "train.py"))
    lines = said(done.stderr)
    assert done.returncode == 1
    assert 2 <= len(lines) <= 6
    assert done.stderr.splitlines()[-len(lines) :] == lines
    assert "it ended with ValueError" in lines[0]
    assert any(f"{tmp_path}/train.py:4" in line for line in lines)
    verdict = json.loads((only_run(tmp_path / "home") / "verdict.json").read_text())
    assert {"schema", "target", "state", "verdict", "findings", "not_measured"} <= set(verdict)
    assert verdict["findings"][0]["primary"]


def test_a_healthy_program_gets_no_message_and_its_verdict_is_kept(tmp_path: Path) -> None:
    done = coach_run(tmp_path / "home", "true")
    assert (done.returncode, said(done.stderr)) == (0, [])
    verdict = json.loads((only_run(tmp_path / "home") / "verdict.json").read_text())
    assert (verdict["state"], verdict["findings"]) == ("COMPLETED", [])


def test_a_program_s_own_variables_and_files_do_not_stand_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coach.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "train.py").write_text(FAILING)
    (tmp_path / "coach").mkdir()
    run_dir = tmp_path / "runs" / RUN
    write_ended(run_dir, "FAILED")
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere", "COACH_HOME": str(tmp_path)}
    assert judge.judge(run_dir, sys.executable, env)
    assert (run_dir / "verdict.json").exists()


def write_ended(run_dir: Path, state: str) -> runs.RunPaths:
    paths = runs.create_run_dir(run_dir.parent, run_dir.name)
    record = {"schema": 1, "run_id": run_dir.name, "recipe": "train", "backend": "slurm", "job_id": "17"}
    runs.write_json(paths.run_json, {**record, "state": state})
    ended = {"schema": 1, "state": state, "exit_code": 0 if state == "COMPLETED" else 1, "ended_time_s": 1.0}
    runs.write_json(paths.exit_json, ended)
    paths.stderr_log.write_text('Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n')
    return paths


def test_an_open_drill_shows_the_question_and_not_the_cause(tmp_path: Path) -> None:
    paths = write_ended(tmp_path / "runs" / RUN, "FAILED")
    runs.update_json(paths.run_json, {"drill": "idle_hands"})
    lines = judge.judge(paths.run_dir, sys.executable, {**os.environ, "COACH_HOME": str(tmp_path)})
    assert lines == [b"coach: why: ended badly; `coach drill` asks you why"]
    assert "ValueError" not in (paths.run_dir / "verdict.json").read_text()


def test_a_cancelled_run_and_one_without_an_end_are_left_to_the_next_coach(tmp_path: Path) -> None:
    paths = write_ended(tmp_path / "runs" / RUN, "CANCELLED")
    reader, writer = os.pipe()
    judge.say(paths, sys.executable, os.environ, writer)
    paths.exit_json.unlink()
    judge.say(paths, sys.executable, os.environ, writer)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b""
    assert not (paths.run_dir / "verdict.json").exists()


def test_a_python_that_cannot_judge_costs_only_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    assert judge.judge(run_dir, "/nowhere/python", os.environ) == []
    assert judge.judge(run_dir, "/bin/false", os.environ) == []
    busy = tmp_path / "busy"
    busy.write_text("#!/bin/bash\nwhile :; do :; done\n")
    busy.chmod(0o755)
    monkeypatch.setattr(judge, "MAX_CPU_S", 1)
    start_s = time.monotonic()
    assert judge.judge(run_dir, str(busy), os.environ) == []
    assert time.monotonic() - start_s < judge.PATIENCE_S
    lying = tmp_path / "lying"
    lying.write_text("#!/bin/bash\nyes 'coach: why: too much' | head -n 40\necho something else\n")
    lying.chmod(0o755)
    assert judge.judge(run_dir, str(lying), os.environ) == [b"coach: why: too much"] * 6


def test_where_memory_is_short_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    asked.write_text('#!/bin/bash\ntouch "$0.started"\n')
    asked.chmod(0o755)
    monkeypatch.setattr(judge, "memory_left_mib", lambda pid, env: 79.0)
    judge.judge(tmp_path, str(asked), os.environ)
    assert not Path(f"{asked}.started").exists()
    monkeypatch.setattr(judge, "memory_left_mib", lambda pid, env: None)
    judge.judge(tmp_path, str(asked), os.environ)
    assert Path(f"{asked}.started").exists()
