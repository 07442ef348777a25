"""The site's locks, limits, switches and advice apply however a launch begins."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from coach.analysis.judging.verdict_object import diagnosis_object
from coach.config import Advice, LaunchDefaults, Limits, Lock, Settings, Switch
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Fix, Severity, Subject
from coach.model.launching.launch import AppliedFix, LaunchRequest, OwnKind, OwnProgram
from coach.render.why import MAX_LINES, why_lines
from coach.sources.io import SystemIo
from coach.sources.runs.run_files import read_run
from coach.workflows import backend
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.judge import rules_of, with_advice
from coach.workflows.launching.defaults import locked_fields, with_defaults
from coach.workflows.launching.prepare import plan_for
from coach.workflows.launching.relaunch import ParentChoice, relaunch
from tests.launch.examples import CLUSTER

LOCK = Lock("one for the course", "site.toml:9")
PLACES = Settings(Path("/runs"), Path("/cache"), Path("/config"))


def locked(*keys: str, **launch: Any) -> Settings:
    locks = MappingProxyType({f"launch.{key}": LOCK for key in keys})
    return replace(PLACES, launch=LaunchDefaults(**launch), locks=locks)


@pytest.mark.parametrize(
    ("key", "launch", "said", "words"),
    [
        ("partition", {"partition": "gpu"}, {"partition": "gpu2"}, "--partition gpu2"),
        ("account", {}, {"account": "mine"}, "--account mine"),
        ("time", {"time": "10:00"}, {"time_limit_s": 3600}, "--time 01:00:00"),
        ("gpus", {"gpus_per_node": 1}, {"gpus_per_node": 4}, "--gpus 4"),
        ("nodes", {"num_nodes": 1}, {"num_nodes": 2}, "--nodes 2"),
        ("cpus_per_task", {}, {"cpus_per_task": 64}, "--cpus-per-task 64"),
        ("environment", {"environment": "pt"}, {"environment": "venv=/mine"}, "--env venv=/mine"),
        ("gpm", {"has_gpm": False}, {"has_gpm": True}, "--gpm on"),
        ("setup", {}, {"setup": ("ulimit -c 0", "x")}, "setup ulimit -c 0; x"),
        ("sbatch", {}, {"sbatch": {"nice": "1"}}, "--sbatch nice=1"),
        ("sbatch.nice", {"sbatch": {"nice": "0"}}, {"sbatch": {"nice": "1"}}, "--sbatch nice=1"),
    ],
)
def test_a_flag_or_the_plan_cannot_change_a_locked_key(
    key: str, launch: dict[str, Any], said: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as caught:
        with_defaults(LaunchRequest("ddp", **said), locked(key, **launch))
    assert caught.value.message == f"{words}: locked by the site (site.toml:9): one for the course"
    assert (caught.value.hint or "").startswith("leave it out: the site")


def test_a_launch_that_leaves_or_repeats_the_site_s_value_takes_it() -> None:
    settings = locked("partition", "time", "sbatch.nice", partition="gpu", time="10:00", sbatch={"nice": "0"})
    plain = with_defaults(LaunchRequest("ddp"), settings)
    assert (plain.partition, plain.time_limit_s, plain.sbatch) == ("gpu", 600, {"nice": "0"})
    assert with_defaults(LaunchRequest("ddp", partition="gpu", time_limit_s=600), settings).partition == "gpu"
    other = LaunchRequest("ddp", sbatch={"comment": "x"})
    assert with_defaults(other, settings).sbatch == {"nice": "0", "comment": "x"}


def test_values_inherited_from_an_earlier_launch_give_way_to_the_lock() -> None:
    settings = locked("partition", "mem", "sbatch", partition="gpu")
    fix = AppliedFix("MEM001", "smaller batch", {"batch_size": 16})
    inherited = LaunchRequest("ddp", partition="old", sbatch={"nice": "9"}, parent_run_id="p", fix=fix)
    again = with_defaults(inherited, settings)
    assert (again.partition, again.sbatch) == ("gpu", {})
    changing = replace(inherited, mem="64G", fix=replace(fix, changes={"mem": "64G"}))
    with pytest.raises(UserError, match="--mem 64G: locked by the site"):
        with_defaults(changing, settings)


def test_a_default_that_was_filled_in_before_the_lock_came_gives_way_too() -> None:
    before = with_defaults(LaunchRequest("ddp"), replace(PLACES, launch=LaunchDefaults(qos="old")))
    assert with_defaults(before, locked("qos", qos="new")).qos == "new"


def test_locked_fields_are_named_with_the_reason_for_the_form() -> None:
    assert locked_fields(locked("time", "partition")) == {
        "time_limit_s": "one for the course (site.toml:9)",
        "partition": "one for the course (site.toml:9)",
    }


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(backend, "_CONFIGURATIONS", ())
    return {"PATH": "/nowhere", "SLURM_CONF": "/etc/slurm.conf"}


def test_a_local_backend_that_is_switched_off_launches_nothing(slurm: dict[str, str]) -> None:
    off = replace(
        PLACES,
        switched_off=frozenset({Switch.LOCAL_BACKEND}),
        origins={"switches.local_backend": "site.toml:4"},
    )
    with pytest.raises(
        UserError, match=r"--backend local: switched off by the site: switches\.local_backend in site\.toml:4"
    ):
        resolve_backend("local", slurm, off)
    with pytest.raises(UserError, match="there is no Slurm here, and a local launch: switched off"):
        resolve_backend("auto", {"PATH": "/nowhere"}, off)
    assert resolve_backend("auto", slurm, off) == "slurm"
    assert resolve_backend("local", slurm) == "local"  # without settings it is not for a launch


def test_a_locked_backend_is_the_one_that_counts(slurm: dict[str, str]) -> None:
    with pytest.raises(UserError, match="--backend local: locked by the site"):
        resolve_backend("local", slurm, locked("backend", backend="slurm"))
    with pytest.raises(UserError, match="--backend local: locked by the site"):
        resolve_backend("local", slurm, locked("backend"))
    assert resolve_backend("slurm", slurm, locked("backend")) == "slurm"


def test_a_plan_beyond_the_limits_is_refused_and_the_notes_of_the_config_stand_in_it(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path, notes=("qos is ignored",))
    io = SystemIo({})

    def plan(limits: Limits, time_limit_s: int | None = 600) -> tuple[str, ...]:
        request = LaunchRequest("baseline", python=sys.executable, time_limit_s=time_limit_s)
        said = replace(settings, limits=limits, origins={"limits.max_time": "site.toml:4"})
        return plan_for(with_defaults(request, said), said, {}, io, CLUSTER, 1795271000.0).notes

    assert "qos is ignored" in plan(Limits(max_running=1))
    with pytest.raises(UserError, match="the site allows at most 00:05:00"):
        plan(Limits(max_time_s=300))
    assert "time limit 00:05:00: the most that the site allows (site.toml:4)" in plan(
        Limits(max_time_s=300), None
    )
    alive = tmp_path / "runs" / "20261121-142233-ddp-4f2a"
    alive.mkdir(parents=True)
    (alive / "run.json").write_text('{"schema": 1, "run_id": "20261121-142233-ddp-4f2a", "state": "PENDING"}')
    with pytest.raises(UserError, match="1 of your runs are pending or running"):
        plan(Limits(max_running=1))


def batch(tmp_path: Path, *lines: str) -> LaunchRequest:
    script = tmp_path / "own.sh"
    script.write_text("\n".join(["#!/bin/bash", *lines, "srun hostname", ""]))
    return LaunchRequest("own.sh", own=OwnProgram(OwnKind.BATCH, ("own.sh",), str(tmp_path)))


def test_a_locked_partition_also_holds_for_the_lines_of_a_batch_file(tmp_path: Path) -> None:
    settings = locked("partition", partition="gpu")
    with pytest.raises(UserError, match="#SBATCH --partition cpu: locked by the site") as refused:
        with_defaults(batch(tmp_path, "#SBATCH -p cpu"), settings)
    assert refused.value.hint == "leave it out: the site's is gpu"
    for lines in ((), ("#SBATCH --partition=gpu",)):
        assert with_defaults(batch(tmp_path, *lines), settings).partition == "gpu"
    assert with_defaults(batch(tmp_path, "#SBATCH -p cpu"), PLACES).partition is None


def finding(rule: str) -> Finding:
    fix = Fix("halve the batch", {"batch_size": 32})
    return Finding(rule, "n", "c", Severity.CRITICAL, 1.0, True, None, Subject(), "summary", (), (fix,), None)


def test_the_site_s_advice_stands_last_and_changes_nothing() -> None:
    diagnosis = Diagnosis("17", "FAILED", (finding("MEM001"), finding("NUM001")), ())
    advised = with_advice(diagnosis, {"MEM001": Advice("ask us", "https://hpc.example/oom")})
    memory, numerics = advised.findings
    assert [fix.title for fix in memory.fixes] == [
        "halve the batch",
        "your site: ask us (https://hpc.example/oom)",
    ]
    assert (memory.fixes[-1].changes, memory.fixes[-1].command) == ({}, None)
    assert numerics == diagnosis.findings[1]
    assert with_advice(diagnosis, {}) == diagnosis


def test_the_site_s_advice_stands_below_the_fix_in_the_lines_of_why() -> None:
    advised = with_advice(Diagnosis("17", "FAILED", (finding("MEM001"),), ()), {"MEM001": Advice("ask us")})
    lines = why_lines(diagnosis_object(advised))
    assert lines[-1] == "  your site: ask us"
    assert len(lines) <= MAX_LINES


def test_advice_on_a_rule_that_does_not_exist_is_refused_with_the_nearest() -> None:
    settings = replace(PLACES, advice={"MEM01": Advice("x")}, origins={"advice.MEM01": "site.toml:7"})
    with pytest.raises(UserError, match=r"site\.toml:7: advice\.MEM01: there is no rule 'MEM01'") as caught:
        rules_of(settings)
    assert caught.value.hint == "did you mean MEM001?"


def test_a_parent_that_stays_counts_when_its_child_is_launched(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path, limits=Limits(max_running=1))
    io = SystemIo({})
    parent_dir = tmp_path / "runs" / "20261121-142233-ddp-4f2a"
    parent_dir.mkdir(parents=True)
    (parent_dir / "run.json").write_text(
        '{"schema": 1, "run_id": "20261121-142233-ddp-4f2a", "recipe": "baseline", "state": "RUNNING"}'
    )
    parent = read_run(io, parent_dir)
    fix = AppliedFix("NUM001", "lower the learning rate", {"lr": 0.001})
    request = LaunchRequest("baseline", python=sys.executable, parent_run_id=parent.run_id, fix=fix)
    plan = plan_for(with_defaults(request, settings), settings, {}, io, CLUSTER, 1795271000.0)
    for choice in (ParentChoice.KEEP, ParentChoice.WAIT):
        with pytest.raises(UserError, match="1 of your runs are pending or running"):
            relaunch(plan, parent, choice, settings, {}, io)
    assert not Path(plan.run_dir).exists()
