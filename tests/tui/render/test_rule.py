"""The page of a rule as lines."""

from __future__ import annotations

import pytest

from coach.render.text import line_width, plain
from coach.rules.documentation import page_text, rule_page
from coach.rules.registry import rule_classes
from coach.tui.render.rule import rule_lines

WORDS = {rule.code: page_text(rule_page(rule)) for rule in rule_classes()}


@pytest.mark.parametrize("code", ["COD001", "MEM001", "NUM001"])
def test_a_page_keeps_every_word_and_no_line_is_wider_than_the_screen(code: str) -> None:
    rows = rule_lines(WORDS[code], 78)
    assert " ".join(" ".join(map(plain, rows)).split()) == " ".join(WORDS[code].split())
    assert [plain(row) for row in rows if line_width(row) > 78] == []
    assert any(row and row[0].tone == "strong" and "What it sees" in row[0].text for row in rows)
