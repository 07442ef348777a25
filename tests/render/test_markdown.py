"""The findings of a job as Markdown: no text of a log, a name or a path acts as Markdown there."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from coach.model.judging.finding import Diagnosis, Evidence, Finding, Fix, Severity, Subject
from coach.model.judging.outcome import End, Outcome
from coach.render.markdown import diagnosis_markdown
from tests.hostile import HOSTILE, assert_harmless

ACTIVE = (
    "<img src=x onerror=alert(1)> [click](http://h) ![](http://h/p.png) **b** @everyone",
    "```\n# owned\n- item",
)


def findings_with(text: str) -> Diagnosis:
    finding = Finding(
        "COD001",
        "plain-exception",
        "exception",
        Severity.CRITICAL,
        0.9,
        True,
        None,
        Subject(),
        text,
        (Evidence(text, file=text, line=3), Evidence(text)),
        (Fix(text, {text: text}, text),),
        None,
    )
    return Diagnosis("17", text, (finding,), (), outcome=Outcome(End.EXCEPTION, reason=text))


def interpreted(text: str) -> list[str]:
    """The parts that a Markdown reader interprets. Each must be a heading or a plain sentence."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    assert {token.type for token in tokens} <= {
        *("code_block", "heading_open", "heading_close", "inline", "paragraph_open", "paragraph_close")
    }
    assert all({child.type for child in token.children or ()} <= {"text"} for token in tokens)
    return [token.content for token in tokens if token.type == "inline"]


@pytest.mark.parametrize("text", [*HOSTILE, *ACTIVE])
def test_no_text_of_a_log_or_a_name_acts_as_markdown(text: str) -> None:
    shown = diagnosis_markdown(findings_with(text), text)
    assert_harmless(shown, "copied findings")
    assert interpreted(shown)[1:] == []
    assert text[:3] not in interpreted(shown)[0]


def test_an_ordinary_job_has_its_name_and_state_in_the_heading() -> None:
    shown = diagnosis_markdown(Diagnosis("17", "OUT_OF_MEMORY", (), ()), "vit_b16-4f2a")
    assert shown.splitlines() == ["## vit_b16-4f2a: OUT_OF_MEMORY", "", "no finding"]
