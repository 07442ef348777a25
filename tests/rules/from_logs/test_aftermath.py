"""Whether a program lived on after an error, also where there are many errors."""

from __future__ import annotations

import pytest

from coach.model.judging.outcome import LogSigns
from coach.model.training.log import LogTail
from coach.rules.from_logs import aftermath, outcome
from coach.rules.from_logs.aftermath import signs_of
from tests.rules.examples import of_a_whole_log

ERROR = "ModuleNotFoundError: No module named 'einops'"
LIFE = "2026-11-21 03:00:01 INFO worker: one more file"


def test_a_log_is_searched_for_signs_once_with_any_number_of_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[LogTail] = []

    def counted(tail: LogTail) -> LogSigns:
        searched.append(tail)
        return signs_of(tail)

    for module in (aftermath, outcome):
        monkeypatch.setattr(module, "signs_of", counted)
    of_a_whole_log(*[ERROR] * 150, *["a line that says nothing"] * 200)
    assert len(searched) == 1


def test_an_error_is_judged_by_the_lines_below_itself() -> None:
    assert of_a_whole_log("step 1", ERROR) == ["module_not_found"]
    assert of_a_whole_log("step 1", ERROR, *[LIFE] * 12) == []
    assert of_a_whole_log(*[LIFE] * 12, "step 1", ERROR) == ["module_not_found"]


def test_an_error_of_an_attempt_is_over_if_it_came_again_and_that_attempt_went_on() -> None:
    trace = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', ERROR)
    assert of_a_whole_log("step 1", *trace, *[LIFE] * 5, *trace) == ["module_not_found"]
    assert of_a_whole_log("step 1", *trace, *[LIFE] * 5, *trace, *[LIFE] * 12) == []
    other = (*trace[:2], "ModuleNotFoundError: No module named 'timm'")
    assert of_a_whole_log("step 1", *trace, *[LIFE] * 5, *other, *[LIFE] * 12) == ["module_not_found"]
