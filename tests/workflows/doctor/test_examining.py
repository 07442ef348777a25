"""The whole report: on a cluster that hangs, on one that is down, and on a machine without one."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import LaunchDefaults, Settings, Switch
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Check, CheckState, Report
from coach.sources.io import Query, SystemIo
from coach.sources.machine.terminal import Terminal
from coach.workflows.doctor import AREAS, examine
from coach.workflows.doctor.probes import HurriedIo, side_by_side
from tests.forked import typed_coach
from tests.sources.fake_io import FakeIo

TERMINAL = Terminal("xterm-256color", 256, "UTF-8", 120, 40, None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runs_root=tmp_path / "runs",
        cache_dir=tmp_path / "cache",
        config_dir=tmp_path,
        launch=LaunchDefaults(backend="slurm"),
    )


def states(report: Report, area: str) -> dict[str, CheckState]:
    return {check.what: check.state for check in report.checks if check.area == area}


def test_clients_that_hang_cost_their_limit_together_and_are_left_behind_nowhere(
    settings: Settings, tmp_path: Path
) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name in ("scontrol", "squeue", "sacct", "sbatch"):
        (bin_dir / name).write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 60\n")
        (bin_dir / name).chmod(0o755)
    env = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    report = examine(settings, env, SystemIo(env), TERMINAL, limit_s=0.5, within_s=2.0)
    assert report.duration_s < 2.5
    assert report.exit_status == 1
    assert states(report, "slurm")["controller"] is CheckState.WRONG
    reasons = " ".join(check.because or "" for check in report.checks)
    assert re.search(r"scontrol: no answer within 0\.[5-9] s", reasons), reasons
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) <= 7
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_machine_without_slurm_s_clients_says_where_they_would_come_from(
    settings: Settings, tmp_path: Path
) -> None:
    report = examine(settings, {"HOME": str(tmp_path)}, FakeIo(), TERMINAL)
    (controller,) = [check for check in report.checks if check.what == "controller"]
    assert (controller.state, controller.because) == (CheckState.WRONG, "scontrol: command not found")
    assert "on the PATH" in (controller.todo or "")
    assert report.exit_status == 1


def test_the_areas_are_in_the_order_to_be_read_and_nothing_is_written(
    settings: Settings, tmp_path: Path
) -> None:
    report = examine(settings, {"HOME": str(tmp_path)}, FakeIo(), TERMINAL)
    areas = list(dict.fromkeys(check.area for check in report.checks))
    assert areas == [area for area in AREAS if area in areas]
    assert {"slurm", "launch", "environments", "roots", "config", "python", "terminal"} <= set(areas)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_coach_launches_nothing_and_the_doctor_says_so(
    settings: Settings, tmp_path: Path
) -> None:
    report = examine(replace(settings, is_readonly=True), {"HOME": str(tmp_path)}, FakeIo(), TERMINAL)
    assert states(report, "launch")["permission"] is CheckState.WRONG


def test_a_config_file_that_names_what_is_not_there_is_wrong(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[keys]\n6 = "basline"\n7 = "ddp"\n')
    report = examine(settings, {"HOME": str(tmp_path), "COACH_HOME": str(tmp_path)}, FakeIo(), TERMINAL)
    (names,) = [check for check in report.checks if check.what == "names"]
    assert (names.state, names.todo) == (CheckState.WRONG, f"coach config --check {tmp_path}/config.toml")
    assert "config.toml:2: keys.6: unknown recipe 'basline'" in (names.because or "")


def test_the_doctor_does_not_promise_a_cancel_that_the_site_switched_off(
    settings: Settings, tmp_path: Path
) -> None:
    report = examine(
        replace(settings, switched_off=frozenset({Switch.CANCEL})),
        {"HOME": str(tmp_path)},
        FakeIo(),
        TERMINAL,
    )
    (permission,) = [check for check in report.checks if check.what == "permission"]
    assert permission.value == "coach may launch, and cancels nothing"


def test_a_look_that_hangs_or_breaks_down_never_passes_for_well() -> None:
    forever = threading.Event()

    def hang() -> list[Check]:
        forever.wait()
        return []

    def refuse() -> list[Check]:
        raise UserError("no", "do this")

    def break_down() -> list[Check]:
        raise ZeroDivisionError("a bug")

    def fail() -> list[Check]:
        raise PermissionError(13, "Permission denied", "/x")

    fine = Check("slurm", "fine", CheckState.OK)
    checks = side_by_side(
        {
            ("roots", "hang"): hang,
            ("slurm", "fine"): lambda: [fine],
            ("launch", "refuse"): refuse,
            ("launch", "bug"): break_down,
            ("roots", "fail"): fail,
        },
        time.monotonic() + 1.0,
    )
    forever.set()
    hung, good, refused, broken, failed = checks
    assert (hung.state, hung.because) == (CheckState.UNKNOWN, "no answer in time")
    assert good is fine
    assert (refused.state, refused.because, refused.todo) == (CheckState.WRONG, "no", "do this")
    assert (broken.state, broken.because) == (
        CheckState.UNKNOWN,
        "coach failed to look: ZeroDivisionError: a bug",
    )
    assert (failed.state, failed.because) == (CheckState.UNKNOWN, "/x: Permission denied")
    assert Report(tuple(checks[:2]), 0.2).exit_status == 2


def test_no_question_is_begun_when_the_time_is_up() -> None:
    io = HurriedIo(FakeIo(), 3.0, time.monotonic() - 1.0)
    assert io.run(Query("x", ("scontrol", "ping"))).error == "scontrol: not run, no time was left"


def test_the_command_prints_one_object_and_its_exit_status_agrees_with_it(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path)}
    words = ("doctor", "--backend", "local")
    done = typed_coach((*words, "--format", "json"), env)
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1
    assert {"area", "what", "state", "value", "because", "todo"} <= set(answer["checks"][0])
    said = [check["state"] for check in answer["checks"]]
    assert set(said) <= {"ok", "warning", "wrong", "unknown"}
    assert (done.returncode == 1) == ("wrong" in said)
    text = typed_coach(words, env)
    assert text.returncode == done.returncode
    assert "permission" in text.stdout


def test_a_broken_config_is_a_finding_and_the_rest_is_examined(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("launc = 3\n")
    env = {**os.environ, "COACH_HOME": str(tmp_path)}
    done = typed_coach(("doctor", "--backend", "local", "--format", "json"), env)
    assert done.returncode == 1, done.stderr
    checks = {(check["area"], check["what"]): check for check in json.loads(done.stdout)["checks"]}
    config = checks["config", "files"]
    assert config["state"] == "wrong"
    assert f"{tmp_path}/config.toml:1: unknown key launc" in config["because"]
    assert "coach config --check" in config["todo"]
    assert checks["roots", "runs"]["state"] == "ok"
