from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.judging.finding import Severity, Verdict
from coach.model.judging.verdict import PastRun
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdicts import Verdicts
from coach.sources.slurm.text import parse_time
from coach.workflows.jobs.ended_jobs import PastJobs, measure_run, read_past_jobs
from coach.workflows.jobs.remembered import remembered
from tests.analysis.made_jobs import job
from tests.sources.scripted_io import ScriptedIo, captured, make_run
from tests.sources.squeue import squeue

NO_ACCOUNTING = (1, "Slurm accounting storage is disabled\n")
RUN_ID = "20261121-080000-ddp-4f2a"


def now_s() -> float:
    """A minute after the recorded cluster was asked."""
    ended_s = parse_time("2026-11-21T08:25:00")
    assert ended_s is not None
    return ended_s


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")


def look(
    settings: Settings, history: bytes | tuple[int, str], queue: bytes | tuple[int, str] = b""
) -> PastJobs:
    io = ScriptedIo({"history": history, "jobs": queue, "ping": b"is UP"}, now_s())
    past = read_past_jobs(settings, io, "root", "slurm", past_s=86400.0, limit=100)
    assert io.asked.count("history") == 1
    assert io.asked.count("jobs") == 1
    return past


def finished_run(settings: Settings, job_id: str | None, **more: object) -> Path:
    record = {
        "run_id": RUN_ID,
        "recipe": "ddp",
        "backend": "slurm",
        "job_id": job_id,
        "user": "root",
        "state": "COMPLETED",
        "created_time_s": now_s() - 3600,
        "started_time_s": now_s() - 3500,
        "ended_time_s": now_s() - 3000,
        "resources": {"num_nodes": 2, "gpus_per_node": 2, "time_limit_s": 1000},
        **more,
    }
    return make_run(settings.runs_root, RUN_ID, json.dumps(record))


def test_the_history_comes_from_accounting_if_that_works(settings: Settings) -> None:
    past = look(settings, captured("history-24.11.txt"))
    assert past.notes == ()
    by_id = {each.job.job_id: each for each in past.jobs}
    assert (by_id["24"].job.exit_code, by_id["24"].source) == (42, "sacct")
    assert by_id["23"].efficiency.memory_pct == pytest.approx(15.1, abs=0.1)


def test_without_accounting_a_job_that_ended_an_hour_ago_is_found(settings: Settings) -> None:
    finished_run(settings, "77")
    ended = job(
        "78",
        "FAILED",
        user="root",
        command="/x/train.sh",
        end_time_s=now_s() - 3600,
        start_time_s=now_s() - 4200,
    )
    unseen = job("79", "RUNNING", user="root", start_time_s=now_s() - 7200)
    SeenJobs(settings.cache_dir).remember([ended, unseen], "root", now_s() - 3600)
    past = look(settings, NO_ACCOUNTING)
    assert "Slurm accounting storage is disabled" in past.notes[0]
    by_id = {each.job.job_id: each for each in past.jobs}
    assert (by_id["77"].source, by_id["77"].run_id, by_id["77"].job.num_gpus) == ("run", RUN_ID, 4)
    assert by_id["77"].efficiency.time_pct == pytest.approx(50.0)
    assert (by_id["78"].source, by_id["78"].job.command) == ("seen", "/x/train.sh")
    # It left the queue while no coach ran: its end is not known, and not invented.
    assert (by_id["79"].job.state, by_id["79"].last_seen_s) == ("RUNNING", now_s() - 3600)


def test_a_job_that_still_runs_is_no_history(settings: Settings) -> None:
    row = {"job_id": "80", "user": "root", "submit": "2026-11-21T08:00:00"}
    from coach.sources.io import Query

    queue = squeue(row)(Query("jobs", (), "|SEPARATOR", "|RECORDEND"))
    past = look(settings, NO_ACCOUNTING, queue)
    assert past.jobs == ()
    ((remembered,), _) = SeenJobs(settings.cache_dir).read()
    assert remembered.job.job_id == "80"


def test_an_array_seen_task_by_task_is_listed_task_by_task(settings: Settings) -> None:
    seen = SeenJobs(settings.cache_dir)
    waiting = [job("81_[0-1]", user="root"), job("82_[0-1]", user="root")]
    seen.remember(waiting, "root", now_s() - 900)
    seen.remember([job("81_0", "COMPLETED", user="root", end_time_s=now_s() - 600)], "root", now_s() - 600)
    past = look(settings, NO_ACCOUNTING)
    assert {each.job.job_id for each in past.jobs} == {"81_0", "82_[0-1]"}


def test_a_requeued_job_is_one_row(settings: Settings) -> None:
    seen = SeenJobs(settings.cache_dir)
    for number, state in enumerate(("RUNNING", "RUNNING", "COMPLETED")):
        attempt = job("83", state, user="root", num_requeues=number, submit_time_s=now_s() - 900 + number)
        seen.remember([replace(attempt, end_time_s=now_s() - 600)], "root", now_s() - 600)
    (past,) = look(settings, NO_ACCOUNTING).jobs
    assert (past.job.num_requeues, past.job.state) == (2, "COMPLETED")


def test_a_list_that_is_cut_says_how_many_jobs_it_lacks(settings: Settings) -> None:
    seen = SeenJobs(settings.cache_dir)
    ended = [job(str(number), "FAILED", user="root", end_time_s=now_s() - 600) for number in range(100, 201)]
    seen.remember(ended[1:], "root", now_s() - 600)
    assert len(look(settings, NO_ACCOUNTING).notes) == 1  # that of accounting
    seen.remember(ended, "root", now_s() - 600)
    past = look(settings, NO_ACCOUNTING)
    assert len(past.jobs) == 100
    assert past.notes[-1] == "the newest 100 of 101 jobs: coach history --limit 101 has all"


def test_a_run_and_its_job_are_one_row_and_the_run_says_how_a_forgotten_job_ended(settings: Settings) -> None:
    finished_run(settings, "23", created_time_s=parse_time("2026-11-21T08:22:00"))
    (known,) = [
        each for each in look(settings, captured("history-24.11.txt")).jobs if each.job.job_id == "23"
    ]
    assert (known.source, known.run_id) == ("sacct", RUN_ID)
    forgotten = job("23", "RUNNING", user="root", submit_time_s=parse_time("2026-11-21T08:22:01"))
    SeenJobs(settings.cache_dir).remember([forgotten], "root", now_s() - 60)
    (told,) = look(settings, NO_ACCOUNTING).jobs
    assert (told.job.state, told.source, told.run_id) == ("COMPLETED", "run", RUN_ID)


def test_without_controller_and_accounting_the_facts_of_the_files_remain(settings: Settings) -> None:
    finished_run(settings, "77")
    past = look(settings, NO_ACCOUNTING, (1, "slurm_load_jobs error: Unable to contact slurm controller\n"))
    assert [each.job.job_id for each in past.jobs] == ["77"]
    assert any("queue does not answer" in note for note in past.notes)


def test_jobs_older_than_requested_are_left_out(settings: Settings) -> None:
    finished_run(settings, "77", ended_time_s=now_s() - 5 * 86400)
    assert look(settings, NO_ACCOUNTING).jobs == ()


def test_the_sampler_s_last_words_fill_in_the_efficiency(settings: Settings) -> None:
    run_dir = finished_run(settings, "77")
    (run_dir / "telemetry").mkdir()
    records = [
        {"kind": "gpu", "time_s": 1.0, "node": "node1", "gpu": 0, "utilization_pct": 80.0},
        {"kind": "gpu", "time_s": 1.0, "node": "node1", "gpu": 1, "utilization_pct": 40.0},
        {"kind": "host", "time_s": 1.0, "node": "node1", "cpu_pct": 50.0, "memory_used_mib": 512.0, "memory_limit_mib": 2048.0},
    ]  # fmt: skip
    (run_dir / "telemetry" / "node1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (told,) = look(settings, NO_ACCOUNTING).jobs
    used = told.efficiency
    assert (used.gpu_pct, used.cpu_pct, used.memory_pct) == (60.0, 50.0, 25.0)
    assert measure_run(ScriptedIo({}), settings.runs_root / "none").gpu_pct is None


@pytest.mark.parametrize("files", [("node1", "node2"), ("packed",), ("node1",)])
def test_the_memory_of_a_job_is_the_sum_of_all_its_nodes_also_in_thinned_records(
    settings: Settings, files: tuple[str, ...]
) -> None:
    """Thinning puts all nodes into one file. The sampler of a node may have failed: then no sum is known."""
    run_dir = finished_run(settings, "77")
    (run_dir / "telemetry").mkdir()
    lines = {
        node: f'{{"kind":"host","time_s":1.0,"node":"{node}",'
        '"memory_used_mib":512.0,"memory_limit_mib":2048.0}\n'
        for node in ("node1", "node2")
    }
    lines["packed"] = lines["node1"] + lines["node2"]
    for name in files:
        (run_dir / "telemetry" / f"{name}.jsonl").write_text(lines[name])
    (told,) = look(settings, NO_ACCOUNTING).jobs
    used = told.efficiency
    sums = (None, None) if files == ("node1",) else (1024.0, 4096.0)
    assert (used.memory_pct, used.memory_used_mib, used.memory_asked_mib) == (25.0, *sums)


def recall(settings: Settings, user: str = "root", limit: int = 200) -> PastJobs:
    return remembered(settings, user, now_s(), 86400.0, limit)


def test_todays_ended_jobs_are_remembered_unless_the_job_was_requeued(settings: Settings) -> None:
    seen, ago = SeenJobs(settings.cache_dir), now_s() - 600
    seen.remember(
        [
            job("90", "FAILED", user="root", end_time_s=ago),
            job("91", "TIMEOUT", user="root", end_time_s=ago + 60),
            job("92", "COMPLETED", user="root", end_time_s=ago),
            job("93", "FAILED", user="root", end_time_s=now_s() - 2 * 86400),
            job("94", "FAILED", user="root", end_time_s=ago, submit_time_s=900.0),
            job("95", "RUNNING", user="root"),
        ],
        "root",
        ago,
    )
    seen.remember([job("94", "RUNNING", user="root", submit_time_s=1000.0)], "root", now_s())
    assert [each.job.job_id for each in recall(settings).jobs] == ["91", "90", "92"]
    assert recall(settings, "ada").jobs == ()
    assert [each.job.job_id for each in recall(settings, limit=1).jobs] == ["91"]


def test_kept_verdicts_of_todays_jobs_are_told_and_those_in_doubt_are_not(settings: Settings) -> None:
    ended = {"user": "root", "end_time_s": now_s() - 60, "submit_time_s": 900.0}
    SeenJobs(settings.cache_dir).remember(
        [job(str(number), "COMPLETED", **ended) for number in range(96, 103)], "root", now_s()
    )
    nan = PastRun(
        *("96", "train.sh", "COMPLETED", 900.0),
        rule="NUM001",
        cause="nan_loss",
        summary="The loss is NaN since step 2",
        severity="critical",
        name="loss-not-finite",
    )
    Verdicts(settings.cache_dir).keep(
        nan,
        PastRun("97", "train.sh", "COMPLETED", 900.0, has_gone_well=True),
        PastRun("98", "train.sh", "COMPLETED", 900.0),
        replace(nan, target="99", severity=None),
        replace(nan, target="100", cause="unknown_failure"),
        replace(nan, target="101", submitted_s=800.0),
        replace(nan, target="102", confidence=0.75),
    )
    kept = recall(settings).verdicts
    assert sorted(kept) == ["102", "96", "97"]
    (finding,) = kept["96"].findings
    assert (finding.rule, finding.severity, finding.is_primary) == ("NUM001", Severity.CRITICAL, True)
    assert finding.doubt == "", "an older version kept no confidence"
    assert kept["102"].findings[0].doubt == "likely"
    assert (kept["97"].findings, kept["97"].verdict) == ((), Verdict.HEALTHY)
