"""How numbers are written for people."""

from __future__ import annotations

import math

import pytest

from coach.analysis.spelling.numbers import short_number
from coach.launch.parameters import Parameter
from coach.model.judging.finding import Evidence, Finding, Severity, Subject
from coach.render.finding import Detail, evidence_text, finding_lines
from coach.render.text import plain


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1234567.0, "1234567"),
        (77, "77"),
        (0.1 + 0.2, "0.3"),
        (1234567.8, "1.23457e+06"),
        (4e18, "4e+18"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_a_whole_number_keeps_all_of_its_digits(value: float, written: str) -> None:
    assert short_number(value) == written


def test_a_step_beyond_a_million_and_the_memory_of_a_large_node_are_written_in_full() -> None:
    step = Evidence("first of them", value=1234567.0, unit="step")
    limit = Evidence("memory limit", value=1048576.0, unit="MiB")
    finding = Finding(
        "NUM001", "n", "c", Severity.INFO, 1.0, True, None, Subject(), "s", (step, limit), (), None
    )
    assert [plain(line).strip() for line in finding_lines(finding, Detail.WHOLE)][2:] == [
        "first of them: step 1234567",
        "memory limit: 1048576 MiB",
    ]
    assert evidence_text(step) == "first of them: step 1234567"


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        (Evidence("loss at step 20", value=2.0), "loss at step 20: 2"),
        (Evidence("grad_norm of rank 0 at step 500", value=0.0), "grad_norm of rank 0 at step 500: 0"),
        (Evidence("loss 2.31 lr 0.1", "/w/out.log", 7, value=2.31), "loss 2.31 lr 0.1"),
        (Evidence("step time", "/w/rank-3.jsonl", value=1.5, unit="s"), "step time: 1.5 s"),
    ],
)
def test_the_screens_show_the_number_of_a_proof_also_if_its_text_has_that_digit_elsewhere(
    evidence: Evidence, shown: str
) -> None:
    assert evidence_text(evidence) == shown


@pytest.mark.parametrize("most", [math.inf, math.nan])
def test_a_recipe_s_limit_that_is_no_finite_number_is_written_too(most: float) -> None:
    assert Parameter("lr", "float", 0.1, "", max=most).limits() == f"at most {most}"
