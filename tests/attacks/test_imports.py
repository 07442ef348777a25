"""Modules that another user leaves in a directory: coach, started there, imports none of them, although an
empty entry of PYTHONPATH puts the current directory on the path."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.attacks.mallory import Mallory
from tests.installed import InstalledCoach
from tests.waiting import PATIENCE

pytestmark = pytest.mark.root

NAMES = ("json", "argparse", "subprocess", "logging", "tomllib", "pathlib", "struct")
"""Modules that coach imports."""


def plant(mallory: Mallory, mark: Path, *names: str) -> Path:
    """Her directory with modules of these names."""
    folder = mallory.make_folder("project")
    for name in names:
        mallory.write(folder / f"{name}.py", f"open({str(mark)!r}, 'a').write({name!r} + ' ')\n")
    return folder


def start(
    coach: InstalledCoach, folder: Path, *argv: str | Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """A command of the victim, in that directory."""
    return subprocess.run(
        coach.user.argv(argv),
        env=coach.env({"PYTHONPATH": ":", "COACH_HOME": str(coach.user.home / "coach"), **env}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )


@pytest.mark.parametrize("command", [("recipes",), ("jobs",), ("doctor",), ("check", "-")])
def test_a_command_imports_nothing_of_the_directory_that_it_is_typed_in(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path, command: tuple[str, ...]
) -> None:
    folder = plant(mallory, marks / "ran", *NAMES)
    start(local_coach, folder, *local_coach.argv(*command))
    assert not (marks / "ran").exists(), (marks / "ran").read_text()


def test_a_measured_program_that_is_no_python_imports_nothing(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    folder = plant(mallory, marks / "ran", *NAMES, "sitecustomize", "runpy", "ctypes")
    log = marks / "log"
    done = start(local_coach, local_coach.user.home, *local_coach.argv("run", "--", "true"))
    run_dir = done.stderr.split()[2]
    node = Path(
        start(
            local_coach, Path("/"), local_coach.python, "-c", "import coach.node as n; print(n.__path__[0])"
        ).stdout.strip()
    )
    words = ("-E", node, "run", "--run-dir", run_dir, "--", "sh", "-c", f"echo $PYTHONPATH > {log}; sleep 2")
    start(local_coach, folder, local_coach.python, *words)
    assert log.read_text().endswith(":\n"), "the program has the user's own path"
    assert not (marks / "ran").exists(), (marks / "ran").read_text()


def test_what_a_launch_asks_of_an_interpreter_imports_nothing(
    local_coach: InstalledCoach, mallory: Mallory, marks: Path
) -> None:
    folder = plant(mallory, marks / "ran", *NAMES, "sitecustomize", "email", "csv", "zipfile")
    script = local_coach.user.home / "train.py"
    script.write_text("import torch\n")
    words = (
        "launch",
        script,
        "--backend",
        "local",
        "--python",
        local_coach.python,
        "--dry-run",
        "--gpus",
        "0",
    )
    done = start(local_coach, folder, local_coach.python, "-I", "-m", "coach", *map(str, words))
    assert not (marks / "ran").exists(), (marks / "ran").read_text()
    assert done.returncode == 0, done.stderr
    assert '"$NAME" -E "$CODE/coach/node" run' in done.stdout


def test_an_absolute_entry_of_pythonpath_still_counts(local_coach: InstalledCoach, tmp_path: Path) -> None:
    code = "import coach, json, sys; print(json.dumps(sys.path))"
    done = start(
        local_coach, local_coach.user.home, local_coach.python, "-c", code, PYTHONPATH="/opt/lib::relative:"
    )
    path = json.loads(done.stdout)
    assert "/opt/lib" in path
    home = str(local_coach.user.home)
    assert not [entry for entry in path if entry.startswith(home)]
