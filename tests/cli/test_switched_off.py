"""Commands and screens refuse actions that a site has switched off, with the key, the file and the site's
reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.__main__ import main
from coach.config import Switch
from tests.forked import typed_coach
from tests.terminal.tmux import Terminal
from tests.workflows.known import World

REASON = "nothing trains on login nodes: https://hpc.example.org/login"
SITE = f"""\
[switches]
local_backend = false

[locked]
"switches.local_backend" = "{REASON}"
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "site.toml").write_text(SITE)
    return {"COACH_HOME": str(tmp_path), "COACH_SITE": str(tmp_path / "site.toml"), "COACH_AS_ROOT": "1"}


def coach(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return typed_coach(args, {**os.environ, **env})


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_local_launch_is_refused_with_the_site_s_reason_and_leaves_nothing(
    env: dict[str, str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = coach(env, "launch", "baseline", "--backend", "local", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"{REASON} (switched off by the site: switches.local_backend in {tmp_path}/site.toml:2)"
        in done.stderr
    )
    assert not (tmp_path / "runs").exists()


def test_reading_commands_still_work_where_launching_is_switched_off(env: dict[str, str]) -> None:
    assert coach(env, "jobs", "--backend", "local").returncode == 0


@pytest.mark.terminal
def test_on_the_screens_the_launch_key_says_why(
    env: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal([sys.executable, "-m", "coach", "--backend", "local"], env=env)
    terminal.wait_for("1-5 launch")
    terminal.send("1")
    terminal.wait_for(re.compile(r"nothing trains on login\s+nodes"))


RUN = "20261121-142230-ddp-0000"
COMMANDS = {
    Switch.LOCAL_BACKEND: ("launch", "baseline", "--backend", "local"),
    Switch.LAUNCH: ("launch", "baseline", "--backend", "local", "--dry-run"),
    Switch.RESUBMIT: ("resubmit", "17", "--yes"),
    Switch.CANCEL: ("cancel", "17", "--yes"),
    Switch.HOLD: ("release", "17", "--dry-run"),
    Switch.REQUEUE: ("requeue", "17", "--yes"),
    Switch.TIMELIMIT: ("timelimit", "17", "10:00", "--yes"),
    Switch.ATTACH: ("attach", "17", "--yes"),
    Switch.SHELL: ("shell", "17", "--dry-run"),
    Switch.STACKS: ("stacks", "17"),
    Switch.DRILLS: ("drill",),
    Switch.FETCH: ("data", "fetch"),
    Switch.CLEAN: ("runs", "clean", RUN, "--yes"),
}
"""Switch → a command that it takes away. The history, the verdict and the screens go on without what is
switched off: the tests below."""
GOES_ON = {Switch.HISTORY, Switch.JOB_VERDICT}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's file, and clients that note each call and know no job."""
    clients = tmp_path / "bin"
    clients.mkdir()
    for name in ("squeue", "scontrol", "sbatch", "scancel", "srun", "sacct", "sinfo"):
        (clients / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\nexit 0\n')
        (clients / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{clients}:{os.environ['PATH']}")
    monkeypatch.setenv("COACH_HOME", str(tmp_path))
    monkeypatch.setenv("COACH_SITE", str(tmp_path / "site.toml"))
    monkeypatch.setenv("COACH_AS_ROOT", "1")
    return tmp_path / "site.toml"


def changes(site: Path) -> list[str]:
    """The calls of Slurm that change something."""
    calls = site.with_name("calls")
    told = calls.read_text().splitlines() if calls.exists() else []
    changing = ("sbatch", "scancel", "srun", "scontrol hold", "scontrol release", "scontrol requeue")
    return [call for call in told if call.startswith((*changing, "scontrol update"))]


@pytest.mark.parametrize("switch", COMMANDS)
def test_a_command_that_the_site_switched_off_is_refused_by_key_and_file(
    switch: Switch, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(f"[switches]\n{switch} = false\n")
    if switch is Switch.CLEAN:
        World(site.parent).make(RUN)
    assert main(COMMANDS[switch]) == 2
    said = capsys.readouterr().err
    assert f"switched off by the site: switches.{switch} in {site}:2\n" in said
    assert changes(site) == []


@pytest.mark.parametrize("switch", [*COMMANDS, *GOES_ON])
def test_every_switch_is_shown_with_its_line_by_the_config(
    switch: Switch, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(f"[switches]\n{switch} = false\n")
    assert main(["config", "--explain"]) == 0
    (row,) = [
        row for row in capsys.readouterr().out.splitlines() if row.split()[:1] == [f"switches.{switch}"]
    ]
    assert "false" in row
    assert f"{site}:2" in row


def test_each_switch_has_a_command_that_meets_it() -> None:
    assert COMMANDS.keys() | GOES_ON == set(Switch)


def test_a_user_cannot_switch_anything_on_or_off(
    site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    site.write_text("")
    (tmp_path / "config.toml").write_text("[switches]\ncancel = true\n")
    assert main(["jobs", "--backend", "local"]) == 2
    assert "switches" in capsys.readouterr().err


def test_a_history_without_accounting_does_not_call_sacct_and_says_so(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text("[switches]\nhistory = false\n")
    World(site.parent).make(RUN)
    assert main(["history", "--backend", "slurm", "--days", "3650"]) == 0
    told = capsys.readouterr()
    assert f"accounting gives no answer: switched off by the site: switches.history in {site}:2" in told.err
    assert "COMPLETED" in told.out
    assert "sacct" not in site.with_name("calls").read_text()


def test_a_job_of_a_site_without_verdicts_judges_nothing_at_its_end(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = ["launch", "baseline", "--backend", "local", "--python", sys.executable, "--dry-run"]
    site.write_text("")
    assert main(launch) == 0
    assert f"OWN_PYTHON={sys.executable}" in capsys.readouterr().out
    site.write_text("[switches]\njob_verdict = false\n")
    assert main(launch) == 0
    assert "OWN_PYTHON=''\n" in capsys.readouterr().out


@pytest.mark.terminal
def test_on_the_screens_a_key_that_is_switched_off_names_the_switch(
    site: Path, open_terminal: Callable[..., Terminal]
) -> None:
    site.write_text("[switches]\nlaunch = false\ndrills = false\n")
    env = {name: os.environ[name] for name in ("COACH_HOME", "COACH_SITE", "COACH_AS_ROOT")}
    terminal = open_terminal([sys.executable, "-m", "coach", "--backend", "local"], env=env)
    shown = terminal.wait_for("x cancel", "nodes · 1")
    assert "launch" not in shown.splitlines()[-1]
    terminal.send("1")
    terminal.wait_for("switches.launch")
    terminal.send("Escape")  # before the recipes are read, a page says so
    terminal.wait_for("x cancel")
    terminal.send("P")
    terminal.wait_for("switches.drills")
