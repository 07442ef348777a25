"""The verdict at a job's end: in the run and in its log, bounded, and silent where all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
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
RUN_ID = "20261121-142233-train-4f2a"
SQUEUE = '#!/bin/sh\necho "squeue $*" >> "$ASKED"\ncat "$COMMENT"\n'
SCONTROL = '#!/bin/sh\necho "scontrol $*" >> "$ASKED"\n'
READ = "squeue --noheader --jobs 17 --format %k"


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


class Job:
    """A failed run, and Slurm clients that record their calls."""

    def __init__(self, folder: Path) -> None:
        self.paths = runs.RunPaths(folder / RUN_ID)
        self.paths.run_dir.mkdir()
        self.asked = folder / "asked"
        self.before = folder / "comment"
        for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ASKED": str(self.asked),
            "COMMENT": str(self.before),
            "SLURM_JOB_ID": "17",
        }
        self.write({"backend": "slurm", "squeue_comment": True}, "FAILED", "MEM001")

    def write(self, run: Mapping[str, object], state: str | None, rule: object) -> None:
        runs.write_json(self.paths.run_json, dict(run))
        runs.write_json(self.paths.exit_json, {"state": state})
        runs.write_json(self.paths.verdict_json, {"findings": [{"rule": rule}] if rule else []})

    def appends(self, before: str = "(null)\n") -> list[str]:
        """The calls to Slurm."""
        self.before.write_text(before)
        judge.append_comment(self.paths, self.env)
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(null)\n", f"coach {RUN_ID} MEM001"),
        ("\n", f"coach {RUN_ID} MEM001"),
        ("for $(id) 'Ada'\n", f"for $(id) 'Ada'; coach {RUN_ID} MEM001"),
    ],
)
def test_the_finding_is_appended_to_the_existing_comment(job: Job, before: str, after: str) -> None:
    assert job.appends(before) == [READ, f"scontrol update JobId=17 Comment={after}"]


def test_an_array_s_task_changes_its_own_comment_alone(job: Job) -> None:
    job.env |= {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    read = READ.replace("17", "17_3")
    assert job.appends() == [read, f"scontrol update JobId=17_3 Comment=coach {RUN_ID} MEM001"]


@pytest.mark.parametrize("before", [f"for Ada; coach {RUN_ID} MEM001\n", "two\nlines\n", "x" * 1020 + "\n"])
def test_a_comment_that_is_full_or_already_has_the_finding_stays_unchanged(job: Job, before: str) -> None:
    assert job.appends(before) == [READ]


@pytest.mark.parametrize(
    ("run", "state", "rule"),
    [
        ({"backend": "slurm"}, "FAILED", "MEM001"),
        ({"backend": "local", "squeue_comment": True}, "FAILED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "COMPLETED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "CANCELLED", "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, None, "MEM001"),
        ({"backend": "slurm", "squeue_comment": True}, "FAILED", None),
        ({"backend": "slurm", "squeue_comment": True}, "FAILED", "x Comment=y"),
    ],
    ids=["not asked", "local", "healthy", "cancelled", "no end", "open drill", "damaged"],
)
def test_slurm_is_not_asked_without_a_reason(
    job: Job, run: Mapping[str, object], state: str | None, rule: object
) -> None:
    job.write(run, state, rule)
    assert job.appends() == []


def test_a_missing_answer_or_verdict_leaves_the_comment_unchanged(job: Job) -> None:
    assert not judge.append_comment(job.paths, {**job.env, "SLURM_JOB_ID": "17; id"})
    job.before.unlink(missing_ok=True)
    assert not judge.append_comment(job.paths, job.env)
    job.paths.verdict_json.unlink()
    assert not judge.append_comment(job.paths, job.env)
