"""What Slurm itself says to a dry run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.sources.io import CommandResult, Query, SystemIo
from coach.workflows.launching.dry_run import answer_words
from tests.launch.examples import plan


class AnsweringIo(SystemIo):
    """Gives one answer to each question, and keeps the script that was asked about."""

    def __init__(self, returncode: int | None, stderr: str, error: str | None = None) -> None:
        super().__init__({})
        self.answer = (returncode, stderr, error)
        self.script = ""

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        returncode, stderr, error = self.answer
        self.script = Path(query.argv[-1]).read_text()
        return CommandResult(query, returncode, b"", stderr, 1.0, 0.1, error)


@pytest.mark.parametrize(
    ("returncode", "stderr", "error", "words"),
    [
        (
            0,
            "sbatch: Job 17 to start at 2026-11-26T22:00:00 using 3 processors on nodes node1\n",
            None,
            "Slurm would accept it: to start at 2026-11-26T22:00:00 using 3 processors on nodes node1",
        ),
        (
            1,
            "allocation failure: Requested node configuration is not available\n",
            None,
            "warning: as the cluster is now, sbatch --test-only refuses it: "
            "Requested node configuration is not available",
        ),
        (None, "", "no answer in 12 s", "not tested by Slurm: no answer in 12 s"),
    ],
)
def test_a_dry_run_tells_slurm_s_own_answer(
    tmp_path: Path, returncode: int | None, stderr: str, error: str | None, words: str
) -> None:
    made = plan(tmp_path)
    io = AnsweringIo(returncode, stderr, error)
    assert answer_words(made, io) == words
    assert io.script == made.script


@pytest.mark.parametrize(
    "said",
    [
        "Requested reservation is invalid",
        "Invalid feature specification",
        "Required partition not available (inactive or drain)",
    ],
)
def test_a_dry_run_fails_where_the_launch_would(tmp_path: Path, said: str) -> None:
    with pytest.raises(UserError, match="Slurm refuses the launch"):
        answer_words(plan(tmp_path), AnsweringIo(1, f"allocation failure: {said}\n"))


def test_a_dry_run_on_this_machine_asks_no_slurm(tmp_path: Path) -> None:
    io = AnsweringIo(1, "never asked")
    assert answer_words(replace(plan(tmp_path), backend="local"), io) == ""
    assert io.script == ""
