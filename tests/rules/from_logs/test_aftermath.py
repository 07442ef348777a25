"""Whether a program lived on after an error, also where there are many errors."""

from __future__ import annotations

from coach.rules.from_logs import aftermath
from tests.rules.examples import of_a_whole_log

ERROR = "ModuleNotFoundError: No module named 'einops'"
LIFE = "2026-11-21 03:00:01 INFO worker: one more file"


def test_the_lines_below_are_looked_at_once_however_many_errors_stand_above_them() -> None:
    aftermath._signs_of.cache_clear()
    of_a_whole_log(*[ERROR] * 150, *["a line that says nothing"] * 200)
    seen = aftermath._signs_of.cache_info()
    assert seen.misses == 1
    assert seen.hits >= 100


def test_an_error_is_judged_by_the_lines_below_itself() -> None:
    assert of_a_whole_log("step 1", ERROR) == ["module_not_found"]
    assert of_a_whole_log("step 1", ERROR, *[LIFE] * 12) == []
    assert of_a_whole_log(*[LIFE] * 12, "step 1", ERROR) == ["module_not_found"]
