"""The facts that a session learns from each answer of the queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.config import Settings
from coach.model.reading import JobList, Reading
from coach.model.slurm.cluster import Job
from coach.sources.io import SystemIo
from coach.sources.runs.run_files import parse_run
from coach.workflows.sharing import Aside
from coach.workflows.watching.queue_facts import QueueFacts, RunRecords
from coach.workflows.watching.world import World
from tests.analysis.made_jobs import job

RUNNING = job("17", "RUNNING", user="ada", nodes="node1")
WAITING = job("18", "PENDING", user="ada", nodes=None)


@pytest.fixture
def facts(tmp_path: Path) -> QueueFacts:
    settings = Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path)
    return QueueFacts(World("slurm", SystemIo({}), "ada"), settings, None)


def told(*jobs: Job) -> Reading:
    return Reading("jobs", 1000.0, 0.1, JobList(jobs, is_all=False))


def test_nodes_look_otherwise_once_an_own_job_starts_moves_or_ends(facts: QueueFacts) -> None:
    assert not facts.learn(told(WAITING)), "the first answer is compared with nothing"
    assert not facts.learn(told(WAITING))
    assert facts.learn(told(WAITING, RUNNING))
    assert not facts.learn(told(WAITING, RUNNING))
    assert facts.learn(told(WAITING, job("17", "RUNNING", user="ada", nodes="node2")))
    assert facts.learn(told(WAITING, job("17", "COMPLETED", user="ada", nodes="node2")))


def test_jobs_of_others_and_answers_of_other_sources_change_nothing(facts: QueueFacts) -> None:
    facts.learn(told(WAITING))
    assert not facts.learn(told(WAITING, job("19", "RUNNING", user="bob", nodes="node1")))
    assert not facts.learn(Reading("nodes", 1000.0, 0.1, None, "no answer"))


def test_a_fact_that_could_not_be_written_is_written_with_a_later_answer(tmp_path: Path) -> None:
    settings = Settings(runs_root=tmp_path, cache_dir=tmp_path / "cache", config_dir=tmp_path)
    paths = runs.RunPaths(tmp_path / "one")
    paths.run_dir.mkdir()
    run, aside = replace(parse_run({}, str(paths.run_dir)), why_not_mine=None), Aside()
    records = RunRecords(None, aside)
    ended = job("17", "TIMEOUT", user="ada", nodes="node1", end_time_s=9.0)
    for text in ("torn", "{}"):
        paths.run_json.write_text(text)
        records.keep_job(run, "17", settings)
        records.keep_end(run, ended)
        aside.wait(60)
    written = runs.read_json(paths.run_json)
    assert (written["job_id"], written["state"], written["ended_time_s"]) == ("17", "TIMEOUT", 9.0)
