"""`--max-restarts`: torchrun starts all ranks anew after one has failed, and a relaunch of the run asks for the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.record import request_from, said
from coach.model.errors import UserError
from tests.launch.examples import MACHINE, plan


def test_the_restarts_that_were_asked_for_reach_torchrun_and_the_record_of_the_run(tmp_path: Path) -> None:
    made = plan(tmp_path, max_restarts=2)
    assert "  --max-restarts=2 \\\n" in made.script
    assert request_from(made.run_json["launch"], "ddp").max_restarts == 2
    assert said(made.request)["max_restarts"] == 2


@pytest.mark.parametrize("max_restarts", [None, 0])
def test_without_restarts_the_first_failure_ends_the_run(tmp_path: Path, max_restarts: int | None) -> None:
    assert "max-restarts" not in plan(tmp_path, site=MACHINE, max_restarts=max_restarts).script


@pytest.mark.parametrize("max_restarts", [-1, 101])
def test_a_number_of_restarts_that_cannot_be_meant_is_refused(tmp_path: Path, max_restarts: int) -> None:
    with pytest.raises(UserError, match=f"--max-restarts {max_restarts}: must be 0 to 100"):
        plan(tmp_path, max_restarts=max_restarts)
