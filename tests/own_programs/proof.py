"""Launch a program as a person would, and report coach's findings and the result of its fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PROGRAMS = Path(__file__).parent / "programs"
LOCAL = ("--backend", "local", "--gpus", "0")
_ALARMS = ("warning", "critical")


class Coach(Protocol):
    """`coach WORDS …` as a user in the user's directory: an `InstalledCoach`, or `Here`."""

    def __call__(self, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]: ...


@dataclass(frozen=True, slots=True)
class Here:
    """coach of the suite's own environment, without Slurm, in a directory of its own."""

    folder: Path

    def __call__(self, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {**os.environ, "COACH_HOME": str(self.folder / "coach"), "PATH": search, "OMP_NUM_THREADS": "1"}
        env["PYTHONPATH"] = str(Path(__file__).parents[2])
        return subprocess.run(
            [sys.executable, "-m", "coach", *words],
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a program, and coach's findings."""

    run_id: str
    run_dir: Path
    state: str
    findings: Sequence[dict[str, Any]]
    """All findings, the primary one first, as `coach check --format json` has them."""

    @property
    def alarms(self) -> list[str]:
        """Codes of the findings of severity warning or above, the primary one first."""
        return [finding["rule"] for finding in self.findings if finding["severity"] in _ALARMS]

    @property
    def primary(self) -> dict[str, Any]:
        """The finding that coach names first."""
        assert self.findings, f"{self.run_id} ended {self.state} and nothing was found"
        return self.findings[0]

    def recorded(self) -> dict[str, Any]:
        """The run's run.json."""
        return dict(json.loads((self.run_dir / "run.json").read_text()))


def copy_programs(folder: Path, *names: str) -> None:
    """Lay these files of `programs/` into a person's directory."""
    for name in names:
        shutil.copy(PROGRAMS / name, folder / name)


def launch(coach: Coach, *words: str, timeout_s: float = 120) -> Trial:
    """`coach launch WORDS`, followed to its end, and judged."""
    done = coach("launch", "--wait", "--format", "json", *words, timeout_s=timeout_s)
    assert done.stdout.startswith("{"), done.stderr
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return judge(coach, answer["run_id"])


def judge(coach: Coach, run_id: str) -> Trial:
    """`coach check RUN`."""
    checked = coach("check", run_id, "--format", "json")
    assert checked.stdout.startswith("{"), checked.stderr
    verdict = json.loads(checked.stdout)
    listed = json.loads(coach("runs", "--format", "json").stdout)["runs"]
    run = next(run for run in listed if run["run_id"] == run_id)
    return Trial(run_id, Path(run["run_dir"]), run["state"], verdict["findings"])


def mend(coach: Coach, trial: Trial, timeout_s: float = 120) -> Trial:
    """`coach fix RUN`: the run that its fix starts, followed to its end, and judged."""
    words = ("fix", trial.run_id, "--yes", "--change-learning", "--wait")
    fixed = coach(*words, timeout_s=timeout_s)
    listed = json.loads(coach("runs", "--format", "json").stdout)["runs"]
    child = next((run for run in listed if run["parent_run_id"] == trial.run_id), None)
    assert child is not None, fixed.stdout + fixed.stderr
    return judge(coach, child["run_id"])
