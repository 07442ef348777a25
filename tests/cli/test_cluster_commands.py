"""`coach jobs`, `nodes` and `partitions` with clients that give captured answers: every word between them is
the real one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.queueing.arrays import group_id
from coach.cli import check, history, jobs, nodes, partitions, run_command, why
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.job_action import Verb
from coach.sources.io import SystemIo
from coach.sources.machine.user import user_name
from coach.workflows.jobs.job_actions import plan_action
from tests.json_documents import check_printed
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
    for name in ("sprio", "sshare", "sacctmgr", "sacct"):
        (programs / name).write_text("#!/bin/sh\necho 'not at this site' >&2; exit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def run(module: Any, settings: Settings, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    module.configure(parser)
    with redirect_stdout(StringIO()) as printed:
        status: int = module.run(parser.parse_args(arguments), settings)
    sys.stdout.write(printed.getvalue())
    check_printed([module.__name__.rpartition(".")[2], *arguments], printed.getvalue())
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


def test_unreadable_rows_are_reported_in_json_and_beside_the_table(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (clients / "partitions").write_text("garbage\n")
    assert run(partitions, settings, "--format", "json", "--backend", "slurm") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "partitions": [], "num_bad_rows": 1}
    assert run(partitions, settings, "--backend", "slurm") == 0
    assert "1 row" in capsys.readouterr().err


def test_a_failing_client_is_an_error_in_its_own_words(clients: Path, settings: Settings) -> None:
    (clients / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' "
        ">&2; exit 1\n"
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
        plan_action(Verb.CANCEL, (run_dir.name,), settings, {}, SystemIo({}))


def test_the_local_backend_lists_this_machine(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(nodes, settings, "--format", "json", "--backend", "local") == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["state"], node["partitions"], node["num_cpus_allocated"]) == ("idle", ["local"], 0)
    assert run(jobs, settings, "--format", "json", "--backend", "local") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "jobs": []}
    assert run(partitions, settings, "--backend", "local") == 0
    assert "local*" in capsys.readouterr().out


def run_recorded(clients: Path, module: Any, settings: Settings, *arguments: str) -> int:
    """With the recorded cluster of 24.11 instead: drained, reserved and planned nodes, arrays, jobs that wait
    for everything."""
    mine = captured("cluster-own-jobs-24.11.txt").replace(
        b"|SEPARATORroot|", f"|SEPARATOR{user_name()}|".encode()
    )
    (clients / "jobs").write_bytes(mine)
    (clients / "nodes").write_bytes(captured("cluster-nodes-24.11.txt"))
    (clients / "partitions").write_bytes(captured("cluster-partitions-24.11.txt"))
    return run(module, settings, *arguments, "--backend", "slurm")


def test_why_explains_in_plain_words_the_wait_of_each_job(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_recorded(clients, jobs, settings, "--why") == 0
    shown, said = capsys.readouterr()
    assert "not available here: fair share: not at this site" in said
    assert "you have as much as the QOS allows: running jobs" in shown
    assert "is longer than its partition allows: " in shown
    assert run_recorded(clients, jobs, settings, "--format", "json") == 0
    pending = [each for each in json.loads(capsys.readouterr().out)["jobs"] if each["state"] == "PENDING"]
    assert {each["pending"]["kind"] for each in pending} == {"wait", "limit", "never", "held"}


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize("module", [why, check])
@pytest.mark.parametrize(
    ("job_id", "status", "said"),
    [
        ("8", 1, "its time limit of 01:40:00 is longer than its partition allows: 00:05:00"),
        ("8", 1, "scontrol update JobId=8 TimeLimit=00:05:00 makes it shorter"),
        ("4", 1, "it will never start as it is: it requests more or fewer nodes"),
        ("34", 0, "waits: it is first in line"),
        ("34", 0, "starts: now, by Slurm's estimate"),
        ("24", 0, "scontrol release 24"),
    ],
)
def test_a_waiting_job_says_why_and_a_hopeless_one_is_a_failure(
    module: Any, job_id: str, status: int, said: str, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(module, settings, job_id, "--backend", "slurm") == status
    shown = capsys.readouterr().out
    assert said in shown
    assert "not measured" not in shown
    assert "no problem found" not in shown
    assert run(module, settings, job_id, "--backend", "slurm", "--format", "json") == status
    pending = json.loads(capsys.readouterr().out)["pending"]
    assert pending["kind"] in ("never" if status else "wait", "held")


def test_an_array_is_one_line_until_it_is_unfolded(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_recorded(clients, jobs, settings) == 0
    assert "31_[0-9%2]" in capsys.readouterr().out
    assert run_recorded(clients, jobs, settings, "--unfold") == 0
    unfolded = capsys.readouterr().out
    assert all(f"31_{task} " in unfolded for task in range(10))


def test_jobs_seen_in_the_queue_are_found_by_history_when_slurm_has_forgotten_them(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    (clients / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    (clients / "sacct").chmod(0o755)
    assert run_recorded(clients, jobs, settings) == 0
    (clients / "jobs").write_bytes(b"")
    capsys.readouterr()
    assert run(history, settings, "--days", "3650", "--format", "json", "--backend", "slurm") == 0
    said = capsys.readouterr()
    by_id = {each["job_id"]: each for each in json.loads(said.out)["jobs"]}
    assert (by_id["28"]["source"], by_id["28"]["is_ended"], by_id["28"]["work_dir"]) == (
        "seen",
        False,
        "/tmp",
    )
    assert (by_id["24"]["state"], by_id["24"]["exit_code"]) == ("FAILED", 42)
    assert "Slurm accounting storage is disabled" in said.err
    assert run(history, settings, "--days", "3650", "--backend", "slurm") == 0
    assert "– (last RUNNING" in capsys.readouterr().out


def test_nodes_shows_the_gpus_free_for_a_job_and_the_job_on_each_gpu(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_recorded(clients, nodes, settings, "--format", "json") == 0
    node1, node2, node3 = json.loads(capsys.readouterr().out)["nodes"]
    assert (node2["num_gpus"] - node2["num_gpus_allocated"], node2["num_gpus_free"]) == (3, 0)
    assert "reserved for a higher-priority job" in node2["gpus_not_free_because"]
    assert (node1["gpus_not_free_because"], node3["reason_user"], node3["takes_jobs"]) == (
        None,
        "root",
        False,
    )
    (clients / "jobs").write_bytes(captured("allocations-24.11.txt"))
    (clients / "scontrol").write_text(
        (clients / "scontrol")
        .read_text()
        .replace("nodes) exec", f"jobs) exec cat {clients}/jobs ;;\n    nodes) exec", 1)
    )
    assert run(nodes, settings, "--gpus", "--format", "json", "--backend", "slurm") == 0
    gpus = json.loads(capsys.readouterr().out)["gpus"]
    assert [each["job_id"] for each in gpus if each["is_used"]] == ["29", "29", "28", "28", "29"]
    assert len(gpus) == 12


def test_gpus_of_shards_and_gpus_of_an_unknown_type_are_not_offered_as_free(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first node is as Slurm 22.05 prints it with two shard jobs and one `--gres=gpu:1`."""
    line = "CPUAlloc=1 CPUTot=16 RealMemory=64000 AllocMem=1 State=MIXED Partitions=gpu Gres="
    shared = "gpu:a100:4,shard:a100:16 GresUsed=gpu:a100:1(IDX:1),shard:a100:2(IDX:0,2),mps:0"
    mixed = "gpu:a100:4,gpu:h200:4 GresUsed=gpu:3"
    (clients / "nodes").write_text(f"NodeName=n1 {line}{shared}\nNodeName=n2 {line}{mixed}\n")
    assert run(nodes, settings, "--backend", "slurm") == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert [row[5:8] for row in rows[1:]] == [["3/4", "1", "a100"], ["–/8", "–", "a100,h200"]]
    assert run(nodes, settings, "--format", "json", "--backend", "slurm") == 0
    answer = json.loads(capsys.readouterr().out)["nodes"]
    assert [(each["num_gpus"], each["num_gpus_allocated"], each["num_gpus_free"]) for each in answer] == [
        (4, 3, 1),
        (8, None, None),
    ]
    assert run(nodes, settings, "--gpus", "--backend", "slurm") == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["n1", str(gpu), "idle" if gpu == 3 else "–"] for gpu in range(4)] + [
        ["n2", str(gpu), "–"] for gpu in range(8)
    ]
    assert run(partitions, settings, "--format", "json", "--backend", "slurm") == 0
    (gpu,) = [p for p in json.loads(capsys.readouterr().out)["partitions"] if p["name"] == "gpu"]
    assert {each["type"]: each["free"] for each in gpu["free_gpus"]} == {"a100": None, "h200": None}


def test_partitions_tell_the_free_gpus_by_type(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_recorded(clients, partitions, settings, "--format", "json") == 0
    gpu = json.loads(capsys.readouterr().out)["partitions"][0]
    (a100,) = gpu["free_gpus"]
    assert (a100["type"], a100["total"], a100["allocated"], a100["free"]) == ("a100", 12, 5, 0)
    assert sum(a100["blocked"].values()) == 7


@pytest.mark.parametrize("module", [jobs, nodes, partitions])
def test_this_machine_is_not_shown_as_another_cluster(settings: Settings, module: Any) -> None:
    with pytest.raises(UserError, match="--clusters east,west: the local backend is this machine alone"):
        run(module, settings, "-M", "east,west", "--backend", "local")


def test_other_clusters_are_asked_by_name_and_odd_names_refused(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_recorded(clients, nodes, settings, "-M", "east,west", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["nodes"]
    assert [each["cluster"] for each in found] == ["east"] * 3 + ["west"] * 3
    assert run_recorded(clients, jobs, settings, "-M", "east", "--all", "--format", "json") == 0
    assert {each["cluster"] for each in json.loads(capsys.readouterr().out)["jobs"]} == {"east"}
    with pytest.raises(SystemExit):
        run(nodes, settings, "-M", "--evil")


def listed(
    capsys: pytest.CaptureFixture[str], clients: Path, module: Any, settings: Settings, *arguments: str
) -> list[dict[str, Any]]:
    """A command's JSON list about the recorded cluster."""
    capsys.readouterr()
    assert run_recorded(clients, module, settings, *arguments, "--format", "json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)[module.__name__.rpartition(".")[2]]
    return found


def test_jobs_are_filtered_sorted_and_cut_to_columns_by_the_same_words(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    all_ids = {each["job_id"] for each in listed(capsys, clients, jobs, settings)}
    waiting = listed(
        capsys, clients, jobs, settings, "state:pending gpu:>0", "--sort=-id", "--columns", "id,gpus,class"
    )
    assert 0 < len(waiting) < len(all_ids)
    assert all(set(each) == {"job_id", "num_gpus", "pending_class"} for each in waiting)
    assert all(each["num_gpus"] > 0 for each in waiting)
    numbers = [int(group_id(each["job_id"])) for each in waiting]
    assert numbers == sorted(numbers, reverse=True)
    rest = listed(capsys, clients, jobs, settings, "!state:pending")
    assert not {each["job_id"] for each in waiting} & {each["job_id"] for each in rest}
    assert run_recorded(clients, jobs, settings, "class:held", "--columns", "reason,id") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["REASON", "JOB"]
    assert rows
    assert all(row.startswith("JobHeld") for row in rows)


def test_a_filter_for_another_user_shows_everybodys_queue(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, settings, "user:nobody", "--format", "json", "--backend", "slurm") == 0
    assert {each["user"] for each in json.loads(capsys.readouterr().out)["jobs"]} == {"nobody"}
    assert run(jobs, settings, "!user:nobody", "--format", "json", "--backend", "slurm") == 0
    assert {each["user"] for each in json.loads(capsys.readouterr().out)["jobs"]} == {user_name()}


def test_nodes_and_history_take_the_same_words(
    clients: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [each["name"] for each in listed(capsys, clients, nodes, settings, "gpu:>0", "--sort=-node")]
    assert names == ["node3", "node2", "node1"]
    drained = listed(capsys, clients, nodes, settings, "state:drain", "--columns", "node,free,reason")
    assert [set(each) for each in drained] == [{"name", "num_gpus_free", "reason"}]
    assert run_recorded(clients, nodes, settings, "free:0", "--columns", "node,cpus,mem,since") == 0
    assert "/" in capsys.readouterr().out
    listed(capsys, clients, jobs, settings)
    assert run(history, settings, "state:failed", "--days", "3650", "--backend", "slurm") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["JOB", "STATE"]
    assert rows
    assert all("FAILED" in row for row in rows)


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        (jobs, ["stat:pending"], 'stat:pending: no key "stat"; did you mean state:?'),
        (jobs, ["--sort", "submitt"], 'sort: no field "submitt"; did you mean submit?'),
        (nodes, ["--columns", "node,fre"], 'columns: no field "fre"; did you mean free?'),
        (nodes, ["mem:>64"], "mem:>64: expected >=64G"),
        (history, ["gpu:x"], "gpu:x: expected 4, >0"),
        (jobs, ["--why", "--columns", "id"], "--why and --columns"),
    ],
)
def test_an_unknown_word_is_refused_before_any_query(
    settings: Settings, module: Any, words: list[str], said: str
) -> None:
    with pytest.raises(UserError) as error:
        run(module, settings, *words)
    assert said in error.value.message
    assert error.value.exit_status == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--sort", "-gpu", "--all"], ["--sort=-gpu", "--all"]),
        (["-state:running", "--why"], ["!state:running", "--why"]),
        (["-M", "east", "--sort"], ["-M", "east", "--sort"]),
        (["-dead", "-Meast", "-h"], ["!dead", "-Meast", "-h"]),
        (["-u", "root", "-p", "gpu", "resnet"], ["user:root", "part:gpu", "resnet"]),
    ],
)
def test_a_dash_of_the_language_is_not_taken_for_an_option(typed: list[str], meant: list[str]) -> None:
    assert jobs.unmistakable(typed) == meant


@pytest.mark.usefixtures("clients")
def test_words_of_a_filter_stand_before_and_after_the_options(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coach.cli.load_settings", lambda: settings)
    words = ["state:pending", "--backend", "slurm", "--format", "json", "gpu:>=0", "-surely-not-there"]
    assert run_command("jobs", words) == 0
    assert {job["state"] for job in json.loads(capsys.readouterr().out)["jobs"]} == {"PENDING"}


@pytest.mark.parametrize(
    ("words", "is_all"), [("-user:me", True), ("user:bob", True), ("user:me", False), ("gpu:0", False)]
)
def test_a_filter_that_names_other_users_includes_their_jobs_without_all(words: str, is_all: bool) -> None:
    query = job_vocabulary("ada", None, lambda _: ()).query(words)
    assert jobs._names_others(query, "ada") is is_all
