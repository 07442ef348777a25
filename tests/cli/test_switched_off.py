"""A site that lets nobody train on its login node: a local launch is refused with the site's reason, in
commands and on the screens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.tmux import Terminal

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
    command = [sys.executable, "-m", "coach", *args]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_local_launch_is_refused_with_the_site_s_reason_and_leaves_nothing(
    env: dict[str, str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = coach(env, "launch", "baseline", "--backend", "local", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"coach: --backend local: locked by the site ({tmp_path}/site.toml:5): {REASON}" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_this_machine_has_can_still_be_looked_at(env: dict[str, str]) -> None:
    assert coach(env, "jobs", "--backend", "local").returncode == 0


@pytest.mark.terminal
def test_on_the_screens_the_launch_key_says_why(
    env: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal([sys.executable, "-m", "coach", "--backend", "local"], env=env)
    terminal.wait_for("1-5 launch")
    terminal.send("1")
    terminal.wait_for(re.compile(r"nothing trains on login\s+nodes"))
