"""Of an array, the task to fix is the first one with a fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from coach.analysis.judging.several_jobs import Judged
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Fix
from coach.model.snapshot import TargetSnapshot
from coach.sources.io import SystemIo
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.launching.fix_of_group import first_with_fix
from tests.tui.fake_session import nan_diagnosis

FIX = Fix("Learning rate 50 → 5", {"lr": 5.0}, None, changes_learning=True)
ADVICE = Fix("Correct the program", {}, None, changes_learning=False)


class Tasks:
    """A checker that knows array 17: task → its fix, or None if it is healthy."""

    def __init__(self, fixes: dict[str, Fix | None]) -> None:
        self.fixes = fixes

    def target(self, name: str) -> Checked:
        diagnoses = [self._diagnosis(f"17_{task}") for task in self.fixes]
        if name != "17":
            return Checked(self._diagnosis(name), TargetSnapshot(name, None))
        parts = tuple(Judged(each, TargetSnapshot(each.target, None)) for each in diagnoses)
        return Checked(Diagnosis("17", "FAILED", (), ()), TargetSnapshot("17", None), parts=parts)

    def _diagnosis(self, name: str) -> Diagnosis:
        fix = self.fixes[name.partition("_")[2]]
        found = replace(nan_diagnosis().findings[0], fixes=(fix,) if fix is not None else ())
        return Diagnosis(name, "FAILED", (found,) if fix is not None else (), ())


def chosen(fixes: dict[str, Fix | None], rule: str | None = None) -> str:
    checker = cast("Checker", Tasks(fixes))
    settings = Settings(runs_root=Path("/runs"), cache_dir=Path("/cache"), config_dir=Path("/config"))
    checked, name = first_with_fix("17", rule, checker, settings, SystemIo({}))
    assert checked.diagnosis.target == name
    return name


def test_the_first_task_with_a_change_of_the_launch_is_fixed() -> None:
    assert chosen({"10": FIX, "2": FIX, "1": ADVICE, "0": None}) == "17_2"
    assert chosen({"3": FIX}, "num001") == "17_3"


@pytest.mark.parametrize("rule", [None, "MEM001"])
def test_an_array_without_a_fix_is_refused_in_words(rule: str | None) -> None:
    with pytest.raises(UserError, match="17: none of its tasks has a finding with a fix"):
        chosen({"0": None, "1": ADVICE} if rule is None else {"0": FIX}, rule)
