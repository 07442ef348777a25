"""The tutorial, done as it says, by an ordinary user on the real Slurm."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.docs.markdown import Block, blocks
from tests.installed import REPOSITORY, InstalledCoach
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.train]

TUTORIAL = REPOSITORY / "docs" / "tutorial.md"


def test_the_tutorial_does_what_it_says(user_coach: InstalledCoach) -> None:
    for block in blocks(TUTORIAL.read_text()):
        if block.language == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            (user_coach.user.home / name).write_text(block.text)
        elif block.language == "console":
            _follow(user_coach, block)


def _follow(coach: InstalledCoach, block: Block) -> None:
    """Type the commands of a block in order; the output of the last one has the lines below. `…` stands for
    any text of a line, and columns may be wider."""
    lines = block.text.splitlines()
    answer = ""
    for command in (line.removeprefix("$ ") for line in lines if line.startswith("$ ")):
        answer = _type(coach, command)
    for line in (line for line in lines if not line.startswith("$ ")):
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        pattern = re.sub(r"(?:\\ ){2,}", r"\\s+", pattern)
        assert re.search(pattern, answer), f"{lines}: no {line!r} in\n{answer}"


def _type(coach: InstalledCoach, command: str) -> str:
    """The output of a command, both streams."""
    if " RUN" in command:
        command = command.replace(" RUN", f" {_newest_run(coach)}")
    path = f"{coach.python.parent}:/usr/bin:/bin"
    done = subprocess.run(
        coach.user.argv(["/bin/sh", "-c", command]),
        cwd=coach.user.home,
        env=coach.env({"PATH": path}),
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def _newest_run(coach: InstalledCoach) -> str:
    return str(json.loads(coach("runs", "--format", "json").stdout)["runs"][0]["run_id"])
