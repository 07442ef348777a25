"""A drill as a learner launches it on this machine, and its run judged from a copy in which nothing says
which drill it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coach.launch.recipe import get_recipe
from coach.model.teaching.drill import Drill
from tests.waiting import PATIENCE

LONGEST_S = 200
"""On an idle machine, with what a slow start takes."""
_HIDDEN = b"x"


@dataclass(frozen=True, slots=True)
class Conductor:
    """One learner's coach on the local backend."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def coach(self, *words: object, timeout_s: float = LONGEST_S) -> dict[str, Any]:
        """The object that a command prints."""
        return self.program("coach", *words, "--format", "json", timeout_s=timeout_s)

    def program(self, *words: object, timeout_s: float = LONGEST_S) -> dict[str, Any]:
        """The object that a module prints, started as a program."""
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)],
            env={**os.environ, **self.env, "COACH_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout_s * PATIENCE,
            check=False,
        )
        assert done.stdout, "the captured standard error says why"
        return dict(json.loads(done.stdout))

    def run(self, name: str) -> Path:
        """Launch a drill and wait for its end."""
        return Path(self.coach("drill", name, "--backend", "local", "--wait")["run_dir"])

    def findings(self, run_dir: Path) -> list[dict[str, Any]]:
        """The findings of `coach check` at warning or above, primary first, without the names of drill,
        recipe and trainer."""
        recipe = json.loads((run_dir / "run.json").read_text())["recipe"]
        copy = self.home / "copies" / run_dir.name.replace(recipe, "x")
        shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("*.pt"))
        trainer = get_recipe(recipe).trainer.removesuffix(".py")
        names = re.compile("|".join(map(re.escape, (trainer, recipe))).encode())
        for path in [path for path in copy.rglob("*") if path.is_file()]:
            path.write_bytes(names.sub(_HIDDEN, path.read_bytes()))
        found = self.coach("check", copy, "--backend", "local")["findings"]
        return [finding for finding in found if finding["severity"] != "info"]


def drill_of(name: str) -> Drill:
    drill = get_recipe(name).drill
    assert drill is not None
    return drill


def assert_found(name: str, run_dir: Path, conductor: Conductor) -> None:
    """The planted cause, or one that is judged right as well, is the primary finding."""
    found = conductor.findings(run_dir)
    drill = drill_of(name)
    assert found, f"{name}: nothing was found"
    assert found[0]["cause"] in (drill.planted, *drill.also)
    assert found[0]["primary"]


def show(drills: Sequence[Mapping[str, Any]]) -> None:
    """Print a row for each drill; docs/measured/diagnosis.md sums them up."""
    for drill in drills:
        seconds, ratio = drill["seconds_to_finding"], drill["throughput_ratio"]
        cells = (
            drill["name"],
            f"`{drill['planted']}`",
            f"`{drill['found']}`",
            "–" if seconds is None else f"{seconds:.0f} s",
            "yes" if drill["fixed"] else "no",
            "–" if ratio is None else f"{ratio:.2f} ± {drill['throughput_ratio_noise'] or 0:.2f}",
            drill["skipped"] or drill["mended_by"],
        )
        row = f"| {' | '.join(map(str, cells))} |"
        print(row, *drill["misses"])  # noqa: T201 (what `make test-long` shows)
