"""The record of ended runs: each one once, with the values of all looks at it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.judging.verdict import PastRun
from coach.sources.runs import verdicts
from coach.sources.runs.verdicts import FILE_NAME, Verdicts

PAST = PastRun(
    target="17",
    work="train.sh",
    state="FAILED",
    submitted_s=1000.0,
    started_s=1001.0,
    ended_s=1002.5,
    nodes=("node1", "node2"),
    rule="MEM001",
    cause="cuda_oom",
    summary="out of memory",
    confidence=0.95,
    node="node2",
    parameters={"lr": 0.1, "amp": True},
    resources={"num_nodes": 2},
    versions={"torch": "2.6"},
    device="H100",
    world_size=8,
    memory_asked_mib=4000.0,
    memory_used_mib=3000.0,
    samples_per_s=12.5,
    samples_per_s_noise=0.5,
    others_cpu_pct=7.0,
    has_gone_well=True,
)
KEY = ("17", 1000.0)


def test_the_next_coach_reads_the_stored_verdicts_unchanged(tmp_path: Path) -> None:
    Verdicts(tmp_path).keep(PAST, replace(PAST, target="18", is_judged=False, has_gone_well=False))
    read = Verdicts(tmp_path).read()
    assert read[KEY] == PAST
    assert (read["18", 1000.0].is_judged, read["18", 1000.0].has_gone_well) == (False, False)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_run_that_still_runs_is_not_remembered_and_one_that_is_known_is_not_written_again(
    tmp_path: Path,
) -> None:
    memory = Verdicts(tmp_path)
    memory.keep(replace(PAST, state="RUNNING"))
    assert not (tmp_path / FILE_NAME).exists()
    memory.keep(PAST)
    size = (tmp_path / FILE_NAME).stat().st_size
    memory.keep(PAST)
    Verdicts(tmp_path).keep(PAST)
    assert (tmp_path / FILE_NAME).stat().st_size == size


def test_a_later_look_completes_an_earlier_one_and_never_forgets_the_cause(tmp_path: Path) -> None:
    read_log = replace(PAST, memory_asked_mib=None, memory_used_mib=None)
    from_accounting = replace(PAST, rule=None, cause=None, is_judged=False, has_gone_well=False)
    for first, then in ((read_log, from_accounting), (from_accounting, read_log)):
        memory = Verdicts(tmp_path / str(first.is_judged))
        memory.keep(first)
        memory.keep(then)
        assert memory.read()[KEY] == PAST


def test_two_coaches_write_into_one_memory_and_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    one, other = Verdicts(tmp_path), Verdicts(tmp_path)
    one.keep(PAST)
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"target": "torn')
    other.keep(replace(PAST, target="18"))
    one.keep(replace(PAST, target="19"))
    assert [target for target, _ in one.read()] == ["17", "18", "19"]
    assert {**one.read()} == {**other.read()} == {**Verdicts(tmp_path).read()}


def test_only_the_last_of_very_many_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MAX_RUNS", 5)
    memory = Verdicts(tmp_path)
    memory.keep(*(replace(PAST, target=str(number)) for number in range(8)))
    again = Verdicts(tmp_path).read()
    assert len(again) == 5
    assert (("2", 1000.0) in again, ("3", 1000.0) in again) == (False, True)
