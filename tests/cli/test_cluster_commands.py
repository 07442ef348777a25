"""`coach jobs`, `nodes` and `partitions` with clients that give captured answers: every word between them is the real one."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from coach.cli import jobs, nodes, partitions
from coach.config import Settings
from coach.model.errors import UserError
from coach.sources.io import SystemIo
from coach.sources.user import user_name
from coach.workflows.cancel import plan_cancel
from tests.sources.scripted_io import captured

CLIENT = """#!/bin/sh
for argument; do case $argument in
    nodes) exec cat {answers}/nodes ;;
    partitions) exec cat {answers}/partitions ;;
    *:*) separator=${{argument#jobarrayid:}}; end=${{argument##*name:}} ;;
esac; done
exec sed "s/|SEPARATOR/${{separator%%,*}}/g; s/|RECORDEND/$end/g" {answers}/jobs
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """squeue and scontrol on the PATH that print captured answers; the captured `root` is the caller."""
    programs = tmp_path / "bin"
    programs.mkdir()
    queue = captured("squeue-22.05.txt").replace(b"|SEPARATORroot|", f"|SEPARATOR{user_name()}|".encode())
    (programs / "jobs").write_bytes(queue)
    (programs / "nodes").write_bytes(captured("scontrol-nodes-22.05.txt"))
    (programs / "partitions").write_bytes(captured("scontrol-partitions-22.05.txt"))
    for name in ("squeue", "scontrol"):
        (programs / name).write_text(CLIENT.format(answers=programs))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def run(module: Any, settings: Settings, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    module.configure(parser)
    status: int = module.run(parser.parse_args(arguments), settings)
    return status


@pytest.mark.usefixtures("clients")
def test_jobs_as_json_are_the_callers_own_with_names_verbatim(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, settings, "--format", "json", "--backend", "slurm") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"schema", "jobs"}
    by_id = {job["job_id"]: job for job in answer["jobs"]}
    assert {job["user"] for job in answer["jobs"]} == {user_name()}
    assert by_id["10"]["name"] == "new\nJobId=99 JobState=FAILED"
    assert by_id["13"]["name"] == "caf\udce9"
    assert by_id["28"]["exit_code"] == 42
    assert set(by_id["1"]) >= {
        "job_id",
        "name",
        "user",
        "state",
        "reason",
        "partition",
        "nodes",
        "num_nodes",
        "num_cpus",
        "num_gpus",
        "time_used_s",
        "time_left_s",
        "time_limit_s",
        "submit_time_s",
        "start_time_s",
        "end_time_s",
        "account",
        "qos",
    }


@pytest.mark.usefixtures("clients")
def test_everybodys_jobs_include_those_of_hidden_partitions(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, settings, "--all", "--format", "json", "--backend", "slurm") == 0
    answer = json.loads(capsys.readouterr().out)
    assert "nobody" in {job["user"] for job in answer["jobs"]}
    assert "hidden" in {job["partition"] for job in answer["jobs"]}


@pytest.mark.usefixtures("clients")
def test_a_table_has_a_line_per_job_and_no_control_characters(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, settings, "--backend", "slurm") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["JOB", "USER", "STATE"]
    assert lines[0].endswith("NAME")
    assert all(line.isprintable() for line in lines)
    assert sum("new␊JobId=99" in line for line in lines) == 1


@pytest.mark.usefixtures("clients")
def test_nodes_tell_gpus_by_type_and_in_all(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(nodes, settings, "--format", "json", "--backend", "slurm") == 0
    answer = json.loads(capsys.readouterr().out)["nodes"]
    assert [node["name"] for node in answer] == ["node1", "node2", "node3"]
    assert answer[2]["gpus"] == [{"type": "a100", "total": 2, "allocated": 2}]
    assert (answer[2]["num_gpus"], answer[2]["num_gpus_allocated"]) == (2, 2)
    assert answer[0]["reason"].startswith("bad State=IDLE")
    assert run(nodes, settings, "--backend", "slurm") == 0
    assert "2/2" in capsys.readouterr().out


def test_rows_that_cannot_be_read_are_told_in_json_and_beside_the_table(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (clients / "partitions").write_text("garbage\n")
    assert run(partitions, settings, "--format", "json", "--backend", "slurm") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "partitions": [], "num_bad_rows": 1}
    assert run(partitions, settings, "--backend", "slurm") == 0
    assert "1 row" in capsys.readouterr().err


def test_a_failing_client_is_an_error_in_its_own_words(clients: Path, settings: Settings) -> None:
    (clients / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1\n"
    )
    with pytest.raises(UserError) as error:
        run(jobs, settings, "--backend", "slurm")
    assert error.value.message == "Unable to contact slurm controller (connect failure)"
    assert error.value.exit_status == 2


def test_without_a_client_the_missing_command_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="squeue: command not found"):
        run(jobs, settings, "--backend", "slurm")


def test_a_local_run_of_another_login_node_keeps_slurm_s_word_in_json_and_says_where_it_is(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = settings.runs_root / "20261121-142233-ddp-4f2a"
    run_dir.mkdir(parents=True)
    supervisor = {"pid": 7, "create_time_s": 1.0, "node": "login2"}
    record = {"backend": "local", "user": user_name(), "state": "RUNNING", "supervisor": supervisor}
    (run_dir / "run.json").write_text(json.dumps(record))
    assert run(jobs, settings, "--backend", "local", "--format", "json") == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["state"], job["host"], job["is_visible"]) == ("RUNNING", "login2", False)
    assert run(jobs, settings, "--backend", "local") == 0
    shown = capsys.readouterr().out
    assert "on login2" in shown
    assert ", not visible from here" in shown
    with pytest.raises(UserError, match="it is on login2, not visible from here"):
        plan_cancel(run_dir.name, settings, {}, SystemIo({}))


def test_the_local_backend_lists_this_machine(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(nodes, settings, "--format", "json", "--backend", "local") == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["state"], node["partitions"], node["num_cpus_allocated"]) == ("idle", ["local"], 0)
    assert run(jobs, settings, "--format", "json", "--backend", "local") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "jobs": []}
    assert run(partitions, settings, "--backend", "local") == 0
    assert "local*" in capsys.readouterr().out
