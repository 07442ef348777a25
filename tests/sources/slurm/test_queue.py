from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields

import pytest

from coach.model.slurm.cluster import Job, JobDraft, as_job
from coach.sources.slurm.queue import JobsReader, jobs_query, parse_jobs
from tests.sources.scripted_io import captured


def jobs_of(version: str) -> dict[str, Job]:
    text = captured(f"squeue-{version}.txt").decode("utf-8", "surrogateescape")
    jobs, num_bad = parse_jobs(text, "|SEPARATOR", "|RECORDEND")
    assert num_bad == 0
    return {job.job_id: job for job in jobs}


def test_a_list_of_tasks_that_squeue_cut_at_its_31st_character_is_a_row() -> None:
    """As printed by 22.05.8 for `--array=100,103,201,204,305,308,411,414`."""
    cut = captured("squeue-22.05.txt").decode("utf-8", "surrogateescape")
    cut = re.sub(r"7_\[[^]]*\]", "5711_[100,103,201,204,305,308,4", cut)
    jobs, num_bad = parse_jobs(cut, "|SEPARATOR", "|RECORDEND")
    assert num_bad == 0
    assert "5711_[100,103,201,204,305,308,4" in {job.job_id for job in jobs}


def test_hostile_names_arrive_whole_and_spoil_no_row() -> None:
    jobs = jobs_of("22.05")
    assert len(jobs) == 34
    assert jobs["9"].name == "a|b"
    assert jobs["10"].name == "new\nJobId=99 JobState=FAILED"
    assert jobs["11"].name.startswith("red\x1b[31m")
    assert jobs["12"].name == "[bold red]x[/]"
    assert jobs["13"].name == "caf\udce9"
    assert jobs["14"].name == ""
    assert {job.state for number, job in jobs.items() if number in ("9", "10", "11", "12", "13")} == {
        "PENDING"
    }


def test_gpu_counts_are_right_without_accounting_for_every_kind_of_request() -> None:
    old, new = jobs_of("22.05"), jobs_of("24.11")
    by_gres_on_two_nodes, by_gpus, by_gpus_per_node, by_task = old["1"], old["2"], old["3"], old["15"]
    assert [by_gres_on_two_nodes.num_gpus, by_gpus.num_gpus, by_gpus_per_node.num_gpus] == [4, 1, 2]
    assert by_task.num_gpus == 4
    assert old["17"].num_gpus == 0
    assert [new[number].num_gpus for number in ("1", "2", "3", "4_0", "6")] == [4, 2, 3, 0, 4]


@pytest.mark.parametrize(("sockets", "expected"), [("2", 4), ("*", None), ("", None)])
def test_gpus_requested_per_socket_are_counted(sockets: str, expected: int | None) -> None:
    """As printed by 22.05.8 for `-N2 --gpus-per-socket=1 --sockets-per-node=2`."""
    said = "jobarrayid=7 username=ada state=PENDING numnodes=2 numcpus=4 numtasks=4 name=wrap"
    values = dict(word.split("=") for word in said.split())
    values |= {"tres-per-socket": "gres:gpu:1", "sockets": sockets}
    for query in (jobs_query(None), jobs_query("ada")):
        names = [column.partition(":")[0] for column in query.argv[-1].split(",")]
        row = query.separator.join(values.get(name, "N/A") for name in names) + query.record_end
        jobs, num_bad = parse_jobs(row, query.separator, query.record_end)
        assert (num_bad, jobs[0].num_gpus, jobs[0].name, jobs[0].stdout) == (0, expected, "wrap", None)


def test_allocated_gpus_override_requested_gpus_if_the_site_accounts_for_them() -> None:
    query = jobs_query(None)
    text = captured("squeue-22.05.txt").decode("utf-8", "surrogateescape")
    line = next(row for row in text.split("|RECORDEND") if row.startswith("\n31|"))
    with_accounting = line.replace("billing=1", "billing=1,gres/gpu=2,gres/gpu:a100=2") + "|RECORDEND"
    jobs, _ = parse_jobs(with_accounting, "|SEPARATOR", "|RECORDEND")
    assert jobs[0].num_gpus == 2
    assert query.separator != query.record_end


def test_arrays_and_heterogeneous_jobs_keep_their_ids() -> None:
    jobs = jobs_of("22.05")
    assert {"7_0", "18+0", "18+1"} <= set(jobs)
    assert any(job_id.startswith("7_[") for job_id in jobs)
    assert jobs["18+0"].num_gpus == 1
    assert jobs["18+1"].num_gpus == 0


def test_a_pending_job_has_its_full_reason() -> None:
    jobs = jobs_of("22.05")
    assert jobs["23"].reason == "ReqNodeNotAvail, UnavailableNodes:node1"
    assert jobs["33"].reason == "PartitionDown"
    assert jobs["6"].reason == "BeginTime"
    assert jobs["6"].nodes is None
    assert jobs["6"].time_limit_s is None
    assert jobs["6"].account is None


def test_a_running_job_has_nodes_and_times() -> None:
    job = jobs_of("24.11")["3"]
    assert (job.state, job.nodes, job.num_nodes, job.time_limit_s) == ("RUNNING", "node[1-2]", 2, 600)
    assert job.reason is None
    assert job.time_used_s is not None
    assert job.time_left_s == 600 - job.time_used_s
    assert job.start_time_s is not None
    assert job.end_time_s == job.start_time_s + 600


@pytest.mark.parametrize(
    ("version", "job_id", "state", "exit_code"),
    [
        ("22.05", "27", "COMPLETED", 0),
        ("22.05", "28", "FAILED", 42),
        ("22.05", "29", "FAILED", 139),
        ("22.05", "30", "CANCELLED", None),
        ("22.05", "31", "RUNNING", None),
        ("24.11", "10", "FAILED", 42),
        ("24.11", "11", "FAILED", 137),
    ],
)
def test_an_ended_job_has_its_exit_code(version: str, job_id: str, state: str, exit_code: int | None) -> None:
    job = jobs_of(version)[job_id]
    assert (job.state, job.exit_code) == (state, exit_code)
    assert state == "RUNNING" or job.time_left_s is None


def test_malformed_rows_are_counted_and_the_others_are_kept() -> None:
    text = captured("squeue-22.05.txt").decode("utf-8", "surrogateescape")
    torn = text + "17|SEPARATORroot|RECORDEND\nnot a job" + "|SEPARATOR" * 23 + "|RECORDEND\n"
    jobs, num_bad = parse_jobs(torn, "|SEPARATOR", "|RECORDEND")
    assert (len(jobs), num_bad) == (34, 2)


def test_separators_are_new_for_each_call_and_never_taken_for_a_column_width() -> None:
    queries = [jobs_query(None) for _ in range(50)]
    separators = {query.separator for query in queries} | {query.record_end for query in queries}
    assert len(separators) == 100
    # A suffix that begins with a digit makes squeue pad or cut the column to that many bytes.
    assert not any(separator[0].isdigit() for separator in separators)


def test_own_jobs_are_filtered_by_the_controller() -> None:
    argv = jobs_query("ada").argv
    assert argv[argv.index("-u") + 1] == "ada"
    assert "-u" not in jobs_query(None).argv


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_queue_read_in_pieces_equals_the_queue_read_whole(size: int) -> None:
    out = captured("squeue-22.05.txt")
    whole, _ = parse_jobs(out.decode("utf-8", "surrogateescape"), "|SEPARATOR", "|RECORDEND")
    reader = JobsReader("|SEPARATOR", "|RECORDEND")
    for start in range(0, len(out), size):
        reader.feed(out[start : start + size])
    assert (tuple(reader.jobs), reader.num_bad, reader.is_torn) == (whole, 0, False)
    again = JobsReader("|SEPARATOR", "|RECORDEND", {job.job_id: job for job in whole})
    again.feed(out[:-40])
    assert again.is_torn
    assert again.jobs == list(whole[:-1])
    assert all(one is other for one, other in zip(again.jobs, whole, strict=False)), "rows are shared"


def test_a_row_that_has_changed_since_the_last_look_is_a_new_one() -> None:
    out = captured("squeue-22.05.txt")
    before = jobs_of("22.05")
    reader = JobsReader("|SEPARATOR", "|RECORDEND", before)
    reader.feed(out.replace(b"|SEPARATORPENDING|", b"|SEPARATORRUNNING|"))
    changed = [job for job in reader.jobs if job is not before[job.job_id]]
    assert {before[job.job_id].state for job in changed} == {"PENDING"}
    assert {job.state for job in changed} == {"RUNNING"}


def test_a_parsed_job_is_frozen_and_equals_a_constructed_one() -> None:
    named = {each.name: f"{each.name}'s" for each in fields(Job)}
    read, made = as_job(JobDraft(**named)), Job(**named)  # type: ignore[arg-type]  # any value will do
    assert type(read) is Job
    assert (read, hash(read), repr(read)) == (made, hash(made), repr(made))
    assert as_job(JobDraft(*[None] * 16)) == Job(*[None] * 16)  # type: ignore[arg-type]  # the same defaults
    with pytest.raises(FrozenInstanceError):
        read.name = "other"  # type: ignore[misc]
