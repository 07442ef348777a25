"""A capture of a site contains no names, and the parsers read it as they read the site itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coach.model.errors import UserError
from coach.recorder.struck_answers import Strikes, shape, strike_config, strike_pairs, strike_records
from coach.sources.machine.new_file import save_new
from coach.sources.slurm.configuration import parse_config, parse_version
from coach.sources.slurm.ended_jobs import history_query, parse_history
from coach.sources.slurm.nodes import parse_nodes, parse_partitions
from coach.sources.slurm.queue import jobs_query, parse_jobs
from coach.sources.slurm.reservations import parse_reservations
from coach.workflows.doctor import capture
from tests.sources.fake_io import FakeIo
from tests.sources.scripted_io import captured

STRIKES = Strikes(b"a key")
QUEUES = ("squeue-22.05.txt", "squeue-24.11.txt", "cluster-jobs-22.05.txt", "cluster-own-jobs-24.11.txt")


def answer_of(kind: str) -> dict[str, Any]:
    """One answer of the capture that was sent."""
    told = json.loads(captured("capture-22.05.8.json"))
    assert (told["schema"], told["kind"]) == (capture.SCHEMA, capture.KIND)
    found: dict[str, Any] = told["answers"][kind]
    return found


def columns(kind: str) -> list[str]:
    """The columns of the captured queues, which are older than the columns for GPUs per socket."""
    query = jobs_query("me" if "own" in kind else None)
    names = [word.partition(":")[0] for word in query.argv[query.argv.index("-O") + 1].split(",")]
    return [name for name in names if name not in ("tres-per-socket", "sockets")]


def test_a_capture_that_was_sent_is_read_by_the_parsers() -> None:
    nodes, bad_nodes = parse_nodes(answer_of("nodes")["stdout"])
    assert [(node.state, node.num_cpus, node.gpus[0].total) for node in nodes] == [
        ("mixed", 16, 2),
        ("idle+drain", 16, 2),
    ]
    assert nodes[1].reason is not None
    assert nodes[1].reason.startswith("xxxxx'x xxx xxxxx, xxxxxx 9999")
    assert nodes[1].reason_user == "root"
    partitions, bad_partitions = parse_partitions(answer_of("partitions")["stdout"], nodes)
    assert [(each.num_nodes, each.is_hidden, each.num_gpus_per_node) for each in partitions] == [
        (2, False, 0),
        (2, False, 2),
        (2, True, 2),
        (2, False, 2),
    ]
    assert {name for node in nodes for name in node.partitions} == {each.name for each in partitions}
    queue, own = answer_of("jobs"), answer_of("own-jobs")
    jobs, bad_jobs = parse_jobs(queue["stdout"], queue["separator"], queue["record_end"])
    own_jobs, bad_own = parse_jobs(own["stdout"], own["separator"], own["record_end"])
    assert (len(jobs), len(own_jobs)) == (6, 5)
    assert {job.nodes for job in jobs if job.nodes} == {nodes[0].name}
    array = [job.name for job in own_jobs if job.job_id.startswith("2913_")]
    assert len(array) == 2
    assert len(set(array)) == 1
    (reservation,) = parse_reservations(answer_of("reservations")["stdout"])[0]
    assert (reservation.nodes, reservation.is_maintenance) == (nodes[1].name, True)
    config = parse_config(answer_of("config")["stdout"])
    assert parse_version(config["SLURM_VERSION"]) == (22, 5)
    assert config["JobRequeue"] == "0"
    assert (bad_nodes, bad_partitions, bad_jobs, bad_own) == (0, 0, 0, 0)
    history = answer_of("history")
    assert (history["returncode"], history["stderr"].strip()) == (1, "xxxxx accounting storage is disabled")


@pytest.mark.parametrize("name", QUEUES)
def test_hostile_queues_keep_their_rows_and_states_and_lose_their_names(name: str) -> None:
    raw = captured(name).decode("utf-8", "surrogateescape")
    before, bad_before = parse_jobs(raw, "|SEPARATOR", "|RECORDEND")
    num_fields = raw.partition("|RECORDEND")[0].count("|SEPARATOR") + 1
    fields = next(
        (each for each in (columns("jobs"), columns("own-jobs")) if len(each) == num_fields),
        [*columns("jobs")[: num_fields - 1], "name"],
    )
    text = strike_records(raw, fields, "|SEPARATOR", "|RECORDEND", STRIKES)
    after, bad_after = parse_jobs(text, "|SEPARATOR", "|RECORDEND")
    assert bad_after == bad_before
    assert [(job.job_id, job.state, job.num_gpus) for job in after] == [
        (job.job_id, job.state, job.num_gpus) for job in before
    ]
    for job in before:
        for said in (job.name, job.work_dir, job.command):
            if said and len(said) > 3:
                assert said not in text
    assert "\x1b" not in text


def test_captured_nodes_keep_parsed_fields_and_lose_people_s_text() -> None:
    raw = captured("scontrol-nodes-22.05.txt").decode()
    before, _ = parse_nodes(raw)
    text = strike_pairs(raw, STRIKES)
    after, num_bad = parse_nodes(text)
    assert num_bad == 0
    assert [(node.state, node.num_cpus, node.gpus, len(node.partitions)) for node in after] == [
        (node.state, node.num_cpus, node.gpus, len(node.partitions)) for node in before
    ]
    assert "bad State=IDLE" not in text
    assert [node.name[-1] for node in after] == ["1", "2", "3"]
    assert len({node.name[:-1] for node in after}) == 1


def test_the_nodes_that_may_submit_to_a_partition_lose_their_names() -> None:
    text = strike_pairs("PartitionName=gpu AllocNodes=login1.alice-lab.org,hub[2-3] State=UP", STRIKES)
    assert "login" not in text
    assert "hub[" not in text
    assert strike_pairs("PartitionName=gpu AllocNodes=ALL", STRIKES) == "PartitionName=gpu AllocNodes=ALL"


def test_ended_jobs_are_read_from_a_capture() -> None:
    raw = captured("history-24.11.txt").decode("utf-8", "surrogateescape")
    query = history_query("root", 3600.0)
    fields = query.argv[-1].split(",")
    before, bad_before = parse_history(raw, "|SEPARATOR")
    text = strike_records(raw, fields, "|SEPARATOR", "", STRIKES)
    after, bad_after = parse_history(text, "|SEPARATOR")
    assert bad_after == bad_before
    assert before
    assert [(past.job.job_id, past.job.state, past.efficiency) for past in after] == [
        (past.job.job_id, past.job.state, past.efficiency) for past in before
    ]


def test_a_capture_shows_the_values_only_of_keys_that_coach_reads() -> None:
    text = strike_config(
        "AccountingStoragePass   = hunter22\nSlurmctldHost[0]        = ctl.alice-lab.org(10.0.0.7)\n"
        "SLURM_VERSION           = 23.11.4\nPrivateData             = jobs,usage\n",
        STRIKES,
    )
    assert text == (
        "AccountingStoragePass   = xxxxxx99\nSlurmctldHost[0]        = xxx.xxxxx-xxx.xxx(99.9.9.9)\n"
        "SLURM_VERSION           = 23.11.4\nPrivateData             = jobs,usage\n"
    )


def test_the_same_name_is_the_same_word_and_another_capture_has_another() -> None:
    assert STRIKES.field("username", "alice") == STRIKES.field("Users", "alice(1000)")
    assert STRIKES.field("username", "alice") != Strikes(b"another").field("username", "alice")
    assert STRIKES.field("nodelist", "gpu[001-004],login1") == "{}[001-004],{}1".format(
        STRIKES.word("host", "gpu"), STRIKES.word("host", "login")
    )
    assert "alice" not in STRIKES.field("workdir", "/home/alice/my run")
    assert STRIKES.field("reason", "ReqNodeNotAvail, UnavailableNodes:gpu1").startswith("ReqNodeNotAvail, Un")
    assert STRIKES.field("state", "\x1b[31m") == shape("\x1b[31m")


def test_an_unanswered_question_is_captured_as_such_and_no_file_is_overwritten(tmp_path: Path) -> None:
    taken = capture.take(FakeIo(), "alice")
    assert {answer["returncode"] for answer in taken["answers"].values()} == {None}
    assert "alice" not in capture.as_text(taken)
    assert any("command not found" in line for line in capture.shown_lines(taken))
    file = tmp_path / "capture.json"
    save_new(file, capture.as_text(taken))
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UserError, match="exists already"):
        save_new(file, capture.as_text(taken))
