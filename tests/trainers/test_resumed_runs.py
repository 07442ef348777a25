"""Every trainer that saves checkpoints goes on when its run is cancelled and resumed, in the same run, to its
last step."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.resumed import Resumed, recipes_with_checkpoints, resume_one, table

NEED_MORE = frozenset(("dali", "horovod_cnn"))
"""They need what the tests' extras do not install. Any other recipe that is refused fails its test."""


@pytest.mark.train
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [each.name for each in recipes_with_checkpoints()])
def test_a_cancelled_run_of_a_recipe_is_resumed_to_its_last_step(name: str, tmp_path: Path) -> None:
    (recipe,) = (each for each in recipes_with_checkpoints() if each.name == name)
    row = resume_one(recipe, tmp_path)
    print(f"\n{table([row])}")  # noqa: T201 (what `make test-long` shows)
    if row.was_not_launched and name in NEED_MORE:
        pytest.skip(row.problem)
    assert row.is_right, row


def test_a_row_is_right_only_if_the_same_run_went_on_to_its_last_step() -> None:
    row = Resumed("ddp", 60, 2, 9, 9, 60, 0, "COMPLETED", True)
    assert row.is_right
    for wrong in (
        Resumed("ddp", 60, 2, 9, None, 60, 0, "COMPLETED", True),
        Resumed("ddp", 60, 2, 9, 9, 59, 0, "COMPLETED", True),
        Resumed("ddp", 60, 2, 9, 9, 60, 0, "FAILED", True),
        Resumed("ddp", 60, 2, 9, 9, 60, 0, "COMPLETED", False),
        Resumed("ddp", 60, problem="coach: refused"),
    ):
        assert not wrong.is_right
    assert table([row]).splitlines()[-1].split() == [
        "ddp",
        "2",
        "9",
        "9",
        "60",
        "60",
        "0",
        "COMPLETED",
        "yes",
    ]
