from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coach.config.load import load
from coach.model.judging.verdict import PastRun
from coach.recorder import open_recording
from coach.sources.runs.verdicts import Verdicts
from tests.forked import typed_coach
from tests.waiting import wait_until

RUN = "20261121-142233-ddp-4f2a"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "runs").mkdir()
    return {**os.environ, "COACH_HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())}


def coach(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return typed_coach(args, env)


def make_run(env: dict[str, str], run_id: str, text: str) -> None:
    path = Path(env["COACH_HOME"]) / "runs" / run_id
    path.mkdir()
    (path / "run.json").write_text(text)


def test_no_runs_is_an_empty_list(env: dict[str, str]) -> None:
    done = coach(env, "runs", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"schema": 1, "runs": [], "problems": []})


def test_runs_are_one_json_object_and_a_torn_one_is_a_problem_in_it(env: dict[str, str]) -> None:
    make_run(
        env, RUN, '{"recipe": "ddp", "state": "COMPLETED", "job_id": "17", "loss": 1, "created_time_s": 1}'
    )
    make_run(env, "20261121-150000-ddp-0001", '{"recipe"')
    done = coach(env, "runs", "--format", "json")
    value = json.loads(done.stdout)
    (run,) = value["runs"]
    assert done.returncode == 0
    assert (run["run_id"], run["recipe"], run["state"], run["job_id"]) == (RUN, "ddp", "COMPLETED", "17")
    assert (run["parent_run_id"], run["ended_time_s"]) == (None, None)
    assert ["0001/run.json: not valid JSON" in problem for problem in value["problems"]] == [True]


def test_runs_as_text_show_the_cause_or_the_word_for_no_finding(env: dict[str, str]) -> None:
    names = ("lost", "well", "dull", "new", "live")
    ids = {name: f"20261121-15000{number}-ddp-000{number}" for number, name in enumerate(names)}
    for name, run_id in ids.items():
        state = {"lost": "FAILED", "live": "RUNNING"}.get(name, "COMPLETED")
        make_run(env, run_id, json.dumps({"recipe": "ddp", "state": state, "backend": "local"}))
    lost = PastRun(ids["lost"], "recipe ddp", "FAILED", rule="MEM001", cause="cuda_oom")
    well = PastRun(ids["well"], "recipe ddp", "COMPLETED", has_gone_well=True)
    dull = PastRun(ids["dull"], "recipe ddp", "COMPLETED")
    verdicts = Verdicts(load(env).cache_dir)
    verdicts.keep(lost, well, dull)
    rows = {line.split()[0]: line for line in coach(env, "runs").stdout.splitlines()[1:]}
    for name, word in (("lost", "MEM001 cuda_oom"), ("well", "healthy"), ("dull", "unknown")):
        assert f"  {word}  " in rows[ids[name]], rows
    assert "  not checked  " in rows[ids["new"]]
    assert "  not checked  " in rows[ids["live"]]


def test_runs_as_text_are_harmless_and_problems_go_to_stderr(env: dict[str, str]) -> None:
    make_run(env, RUN, json.dumps({"recipe": "\x1b]0;pwn\x07", "state": "RUNNING"}))
    make_run(env, "20261121-150000-ddp-0001", "torn")
    done = coach(env, "runs")
    assert RUN in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr.startswith("coach: ")
    assert "Traceback" not in done.stderr


def test_a_recording_ends_at_ctrl_c_and_sums_itself_up_in_one_line(
    env: dict[str, str], tmp_path: Path
) -> None:
    make_run(env, RUN, '{"recipe": "ddp", "state": "COMPLETED", "backend": "local"}')
    file = tmp_path / "x.gz"
    command = [sys.executable, "-m", "coach", "record", str(file), "--backend", "local", "--run", RUN]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "coach: recording until Ctrl-C\n"
        wait_until(file.exists, 20, "the recording was begun")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, stderr) == (0, "")
    assert stdout.startswith("kept ")
    assert stdout.count("\n") == 1
    assert "of 1 run" in stdout
    assert open_recording(file).header.targets == (RUN,)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("/no/such/directory/x.gz",), "there is no directory"),
        (("x.gz", "--run", "nothing"), "no run, job or file of that name"),
        (("x.gz", "--for", "soon"), "--for"),
        (("x.gz", "--for", "-1"), "--for"),
        (("runs",), "exists already"),
    ],
)
def test_a_recording_that_cannot_be_made_is_refused_without_a_traceback(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = coach(env, "record", *args, "--backend", "local")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
