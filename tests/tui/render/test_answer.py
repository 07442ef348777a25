"""The line above an answer that was asked on demand: its age, the next question, or its failure."""

from __future__ import annotations

from coach.render.text import plain
from coach.tui.question import Answer
from coach.tui.render.answer import answer_line, answer_lines
from tests.tui.fake_session import NOW_S


def shown(answer: Answer[str], since_s: float | None = None) -> str:
    return "".join(span.text for span in answer_line("sstat", answer, NOW_S, lambda _: "^r", since_s)).strip()


def test_an_answer_has_its_age_and_the_key_that_asks_again() -> None:
    assert shown(Answer("told", None, NOW_S - 12)) == "sstat   asked 12 s ago, ^r asks again"
    assert shown(Answer("told", None, NOW_S - 12, is_under_way=True)).endswith("asks again   asking…")


def test_an_answer_from_before_the_job_began_has_no_age_while_the_next_is_awaited() -> None:
    before = Answer("told", None, NOW_S - 540, is_under_way=True)
    assert shown(before, NOW_S - 3) == "sstat   asking…"
    assert "asked 9 min ago" in shown(before, NOW_S - 900)


def test_a_failure_is_shown_with_its_reason() -> None:
    assert shown(Answer(None, "no controller")) == "sstat   ▲ not available: no controller"


def test_a_long_reason_has_lines_of_its_own() -> None:
    answer: Answer[str] = Answer(None, "no shared directory is known (name one: coach cohort DIR)")
    rows = [plain(row) for row in answer_lines("the cohort", answer, NOW_S, lambda _: "^r", 40)]
    assert rows[0].strip() == "the cohort"
    assert " ".join(" ".join(rows).split()).endswith("(name one: coach cohort DIR)")
    assert all(len(row) <= 40 for row in rows)
