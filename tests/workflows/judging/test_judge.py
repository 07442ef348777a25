"""One judge: the commands, the screens and the job itself say the same of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.launch.recipe import drill_names
from coach.model.judging.finding import Diagnosis
from coach.rules.registry import build
from coach.sources.io import SystemIo
from coach.sources.machine.disk import Space
from coach.workflows.judging.check import Checker
from coach.workflows.judging.judge import Context
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind
from coach.workflows.launching.sweep import read_group
from tests.workflows.judging.test_earlier_runs import BEGIN_S, Machine

SUMMARY = "ranks 0-1 wait in barrier; rank 2 is in train.py\nnot where the others are: rank 2 (train.py:7)\n"
Look = Callable[[Machine, str], Diagnosis]


def by_check(machine: Machine, run_id: str) -> Diagnosis:
    return Checker(machine.settings, SystemIo({}), "local").target(run_id).diagnosis


def among_own_jobs(machine: Machine, run_id: str) -> Diagnosis:
    io = SystemIo({})
    io.now = lambda: BEGIN_S + 2 * 3600.0  # type: ignore[method-assign]
    (judged,), _ = Checker(machine.settings, io, "local").own_jobs()
    return judged.diagnosis


def by_the_job_itself(machine: Machine, run_id: str) -> Diagnosis:
    run_dir = machine.settings.runs_root / run_id
    return Checker(machine.settings, SystemIo({}), "local").ended_run(run_dir).diagnosis


def on_the_screens(machine: Machine, run_id: str) -> Diagnosis:
    io = SystemIo({})
    context = Context(machine.settings, io)
    target = Target(run_id, TargetKind.RUN, machine.settings.runs_root / run_id)
    seen = read_once(target, machine.settings, io, "local", "ada", context.signatures(), is_queue_asked=False)
    return context.diagnose(*seen)


everywhere = pytest.mark.parametrize("look", [by_check, among_own_jobs, by_the_job_itself, on_the_screens])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@everywhere
def test_stacks_that_were_taken_before_the_time_limit_are_evidence(machine: Machine, look: Look) -> None:
    run_id = machine.run(1, b"step 1 loss 2.3\n", "TIMEOUT")
    summary = runs.RunPaths(machine.settings.runs_root / run_id).stacks_dir / "one" / "summary.txt"
    summary.parent.mkdir(parents=True)
    summary.write_text(SUMMARY)
    taken_s = BEGIN_S + 3600.0 + 500.0
    os.utime(summary, (taken_s, taken_s))
    first = look(machine, run_id).findings[0]
    assert first.cause == "slurm_timeout"
    assert "taken 100 s before its end: ranks 0-1 wait in barrier" in first.evidence[-1].text


@everywhere
def test_a_full_disk_is_evidence_beside_an_end_without_a_cause(
    machine: Machine, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coach.workflows.judging.full_disk.read_space", lambda path: Space(0, 9, None, None))
    run_id = machine.run(1, b"step 1 loss 2.3\n")
    first = look(machine, run_id).findings[0]
    assert (first.rule, "only 0 B were free" in first.summary) == ("END001", True)


@everywhere
def test_the_lines_of_a_muted_rule_are_told_as_the_exception_that_they_are(
    machine: Machine, look: Look
) -> None:
    machine.settings = replace(machine.settings, muted_rules=frozenset({"MEM001"}))
    first = look(machine, machine.run(1)).findings[0]
    assert first.rule == "COD001"
    assert "OutOfMemoryError: CUDA out of memory" in first.summary


def test_a_recording_shows_nothing_of_this_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coach.workflows.judging.full_disk.read_space", lambda path: Space(0, 9, None, None))
    run_id = machine.run(1, b"step 1 loss 2.3\n")
    target = Target(run_id, TargetKind.RUN, machine.settings.runs_root / run_id)
    alone = Checker(machine.settings, SystemIo({}), "local", is_alone=True).read_and_judge(target)
    assert "were free" not in alone.diagnosis.findings[0].summary
    assert not machine.settings.cache_dir.exists()


def test_the_quota_of_a_file_system_is_asked_once_for_all_failed_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("coach.workflows.judging.full_disk.read_quota", lambda *query: asked.append(query))
    for number in (1, 2, 3):
        machine.run(number, b"step 1 loss 2.3\n")
    io = SystemIo({})
    monkeypatch.setattr(io, "now", lambda: BEGIN_S + 6 * 3600.0)
    judged, _ = Checker(machine.settings, io, "local", rules=build()).own_jobs()
    assert [each.diagnosis.findings[0].rule for each in judged] == ["END001"] * 3
    assert len(asked) == 1


def test_the_table_of_a_group_keeps_the_answer_of_an_open_drill(machine: Machine) -> None:
    run_id = machine.run(1)
    record = machine.settings.runs_root / run_id / "run.json"
    sweep = {"group_id": run_id, "parameter": "lr", "value": 0.1, "index": 0, "size": 1}
    found = json.loads(record.read_text())
    record.write_text(json.dumps({**found, "sweep": sweep}))
    (point,) = read_group(run_id, machine.settings, SystemIo({}), "local").points
    assert point.found == "MEM001"
    record.write_text(json.dumps({**found, "sweep": sweep, "drill": min(drill_names())}))
    (point,) = read_group(run_id, machine.settings, SystemIo({}), "local").points
    assert point.found is None
