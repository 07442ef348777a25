"""Another user's installation, on a machine without a network: all of coach works, and no file is written
beside it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.terminal.tmux import Terminal

pytestmark = pytest.mark.terminal

MAX_SIZE = 68 * 10**6
"""Of the core with everything it needs: a home with a small quota has room for it."""


def files_below(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def without_network(argv: list[str]) -> list[str]:
    return ["unshare", "--net", *argv]


def test_without_a_network_another_user_s_read_only_installation_works_and_stays_as_it_is(
    bare_python: Path, train_python: Path, user: User, open_terminal: Callable[..., Terminal]
) -> None:
    coach = InstalledCoach(bare_python, user)
    before = files_below(bare_python.parents[1])

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        argv = without_network(user.argv(coach.argv(*args)))
        return subprocess.run(
            argv, env=coach.env(), cwd=user.home, capture_output=True, text=True, timeout=60
        )

    recipes = run("recipes", "--format", "json")
    assert {"baseline", "ddp"} <= {recipe["name"] for recipe in json.loads(recipes.stdout)["recipes"]}
    script = run("launch", "baseline", "--dry-run", "--backend", "local", "--python", str(train_python))
    assert script.returncode == 0, script.stderr
    assert script.stdout.startswith("#!/bin/bash\n")
    checks = json.loads(run("doctor", "--backend", "local", "--format", "json").stdout)["checks"]
    assert next(check for check in checks if check["what"] == "runs")["state"] == "ok"

    screens = without_network(user.argv(coach.argv("--backend", "local")))
    terminal = open_terminal(screens, env=coach.env(), cwd=user.home)
    terminal.wait_for("local ·")
    terminal.send("d")
    terminal.wait_for("coach may launch and cancel")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0

    assert files_below(bare_python.parents[1]) == before


def test_the_core_and_all_that_it_needs_fit_into_a_small_quota(bare_python: Path) -> None:
    own = bare_python.parents[1]
    (pth,) = own.glob("lib/python3*/site-packages/dependencies.pth")
    needed = Path(pth.read_text().strip()).parents[2]
    size = sum(path.lstat().st_size for folder in (own, needed) for path in folder.rglob("*"))
    assert 10**7 < size <= MAX_SIZE, f"{size / 10**6:.0f} MB"
