"""`coach check` on a run that is not the first of its kind: from run directories, and from stored
verdicts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.config import Settings
from coach.model.judging.finding import Finding
from coach.model.slurm.accounting import Efficiency, PastJob
from coach.rules.registry import build
from coach.sources.io import SystemIo
from coach.sources.machine.user import user_name
from coach.sources.runs.verdicts import FILE_NAME, MAX_RUNS, Verdicts
from coach.workflows.judging.check import Checker
from coach.workflows.judging.earlier_runs import note_accounting
from coach.workflows.judging.judge import Context
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import resolve_target
from tests.analysis.comparing.test_earlier_runs import past
from tests.analysis.made_jobs import job as make_job

OOM = (Path(__file__).parents[2] / "recordings" / "typed" / "cuda-oom.log").read_bytes()
BEGIN_S = 1_795_000_000.0


class Machine:
    """One user's runs on one machine, and `coach check` there."""

    def __init__(self, root: Path) -> None:
        self.settings = Settings(root / "runs", root / "cache", root / "config")

    def run(
        self, number: int, log: bytes = OOM, state: str = "FAILED", user: str | None = None, **parameters: Any
    ) -> str:
        """The run of this hour. No GPU was measured: its log is all that it has."""
        run_id = f"20261121-{number:02}0000-ddp-{number:04}"
        paths = runs.create_run_dir(self.settings.runs_root, run_id)
        start_s = BEGIN_S + 3600.0 * number
        told = {
            "run_id": run_id,
            "recipe": "ddp",
            "backend": "local",
            "state": state,
            "user": user,
            "parameters": parameters,
        }
        times = {"created_time_s": start_s - 5, "started_time_s": start_s, "ended_time_s": start_s + 600}
        paths.run_json.write_text(json.dumps({**told, **times}))
        paths.exit_json.write_text(
            json.dumps({"state": state, "ended_time_s": start_s + 600, "exit_code": 1})
        )
        paths.stderr_log.write_bytes(log)
        return run_id

    def forget_directory(self, run_id: str) -> None:
        shutil.rmtree(self.settings.runs_root / run_id)

    def check(self, run_id: str) -> tuple[Finding, ...]:
        checker = Checker(self.settings, SystemIo({}), "local", rules=build())
        return checker.target(run_id).diagnosis.findings


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_fifth_failure_is_counted_as_the_fifth_without_verdicts_of_the_others(machine: Machine) -> None:
    names = [machine.run(number, batch_size=512 // number) for number in range(1, 6)]
    first, again = machine.check(names[-1])[0], machine.check(names[-1])[-1]
    assert (first.rule, first.is_primary) == ("MEM001", True)
    assert (again.rule, again.is_primary) == ("HIS001", False)
    assert again.summary.startswith("5 times in a row it ended with cuda_oom")
    assert "batch_size: 512 → 256" in again.summary


def test_the_result_of_a_run_is_known_after_its_directory_is_gone(machine: Machine) -> None:
    names = [machine.run(number) for number in range(1, 4)]
    for name in names[:2]:
        assert [finding.rule for finding in machine.check(name)] == ["MEM001"]
        machine.forget_directory(name)
    assert [finding.rule for finding in machine.check(names[2])] == ["MEM001", "HIS001"]


def test_runs_of_other_users_are_not_part_of_ones_own_past(machine: Machine) -> None:
    for number in range(1, 4):
        assert [finding.rule for finding in machine.check(machine.run(number, user="ada"))] == ["MEM001"]
    own = machine.run(4, user=user_name())
    (finding,) = machine.check(own)
    (kept,) = Verdicts(machine.settings.cache_dir).read().values()
    assert (kept.target, kept.rule, kept.confidence) == (own, "MEM001", finding.confidence)


def test_a_past_run_is_judged_by_the_runs_before_it(machine: Machine) -> None:
    names = [machine.run(number) for number in range(1, 6)]
    machine.check(names[-1])
    assert [finding.rule for finding in machine.check(names[1])] == ["MEM001"]


def test_the_log_of_an_earlier_run_is_read_only_once(machine: Machine) -> None:
    names = [machine.run(number) for number in range(1, 4)]
    assert len(machine.check(names[-1])) == 2
    kept = (machine.settings.cache_dir / FILE_NAME).read_bytes()
    for name in names[:-1]:
        (machine.settings.runs_root / name / "stderr.log").write_bytes(b"all is well\n")
    assert len(machine.check(names[-1])) == 2
    assert (machine.settings.cache_dir / FILE_NAME).read_bytes() == kept


def test_all_own_jobs_are_judged_before_they_are_compared(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [machine.run(number) for number in range(1, 4)]
    io = SystemIo({})
    monkeypatch.setattr(io, "now", lambda: BEGIN_S + 6 * 3600.0)
    judged, _ = Checker(machine.settings, io, "local", rules=build()).own_jobs()
    found = {each.diagnosis.target: [finding.rule for finding in each.diagnosis.findings] for each in judged}
    assert found == {names[0]: ["MEM001"], names[1]: ["MEM001"], names[2]: ["MEM001", "HIS001"]}


def screens(machine: Machine) -> Callable[[str, Context], list[str]]:
    def look(name: str, context: Context) -> list[str]:
        io = SystemIo({})
        target = resolve_target(name, machine.settings, io, "local", "ada")
        seen = read_once(
            target, machine.settings, io, "local", "ada", context.signatures(), is_queue_asked=False
        )
        return [finding.rule for finding in context.diagnose(*seen).findings]

    return look


def test_the_screens_say_the_same_and_a_recording_nothing_of_the_users_own_past(machine: Machine) -> None:
    names, look = [machine.run(number) for number in range(1, 4)], screens(machine)
    io = SystemIo({})
    live, replay = Context(machine.settings, io), Context(machine.settings, io, is_alone=True)
    assert [look(name, replay) for name in names] == [["MEM001"]] * 3
    assert not (machine.settings.cache_dir / FILE_NAME).exists()
    assert [look(name, live) for name in names] == [["MEM001"], ["MEM001"], ["MEM001", "HIS001"]]
    assert look(names[2], live) == ["MEM001", "HIS001"]


def test_a_muted_rule_about_the_past_is_silent(machine: Machine) -> None:
    names = [machine.run(number) for number in range(1, 4)]
    checker = Checker(machine.settings, SystemIo({}), "local", rules=build(muted=["HIS001"]))
    assert [finding.rule for finding in checker.target(names[-1]).diagnosis.findings] == ["MEM001"]


def test_kept_verdicts_survive_torn_lines_strange_values_and_another_coach(tmp_path: Path) -> None:
    one, other = Verdicts(tmp_path), Verdicts(tmp_path)
    strange = past(
        1, parameters={"lr": float("nan"), "deep": {"x": 1}, "name": "caf\udce9"}, summary="x" * 9999
    )
    one.keep(strange)
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"target": 17, "work": ["x"]}\n{"torn\n\xff\xfe')
    other.keep(past(2))
    one.keep(past(3, state="RUNNING"))
    one.keep(strange)
    kept = list(Verdicts(tmp_path).read().values())
    assert [each.target for each in kept] == ["run-1", "run-2"]
    assert kept[0].parameters == {"name": "caf\udce9"}
    assert len(kept[0].summary or "") < 9999
    assert one.read() == other.read()


def test_accounting_and_log_are_kept_together_in_either_order(
    tmp_path: Path,
) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    job = make_job("17", "OUT_OF_MEMORY", nodes="n[1-2]", num_nodes=2, work_dir="/w", end_time_s=2000.0)
    told = PastJob(job, Efficiency(memory_asked_mib=65536.0, memory_used_mib=65000.0))
    judged = replace(past(1), target="17", submitted_s=job.submit_time_s, cause="host_oom")
    note_accounting(settings, [told, replace(told, run_id="a run, which tells more itself")])
    verdicts = Verdicts(settings.cache_dir)
    (known,) = verdicts.read().values()
    assert (known.cause, known.is_judged, known.nodes) == ("host_oom", False, ("n1", "n2"))
    for _ in range(2):
        verdicts.keep(judged)
        note_accounting(settings, [told])
        (known,) = Verdicts(settings.cache_dir).read().values()
        assert (known.memory_asked_mib, known.is_judged, known.work) == (32768.0, True, judged.work)


def test_an_unwritable_cache_does_not_stop_the_diagnosis(machine: Machine) -> None:
    machine.settings.cache_dir.write_text("a file where the folder would be")
    name = machine.run(1)
    assert [finding.rule for finding in machine.check(name)] == ["MEM001"]


def test_the_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coach.sources.runs.verdicts._MAX_FILE_BYTES", 4000)
    verdicts = Verdicts(tmp_path)
    for number in range(200):
        verdicts.keep(past(number))
    assert (tmp_path / FILE_NAME).stat().st_size < 4000
    assert "run-199" in {target for target, _ in Verdicts(tmp_path).read()}
    assert len(verdicts.read()) <= MAX_RUNS


def test_a_coach_reads_only_the_verdicts_that_another_coach_wrote(tmp_path: Path) -> None:
    one, other = Verdicts(tmp_path), Verdicts(tmp_path)
    for number in range(3):
        one.keep(past(number))
        other.keep(past(number + 10))
    assert one.read().keys() == other.read().keys() == Verdicts(tmp_path).read().keys()
    assert len(one.read()) == 6
