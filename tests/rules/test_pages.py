"""The text about the rules: `coach explain`, its list and the pages of `make docs` share one docstring."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from coach.rules.documentation import page_text, rule_page
from coach.rules.registry import find, rule_classes

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    maker = runpy.run_path(str(REPOSITORY / "docs" / "reference_pages" / "rules.py"))
    found: dict[str, str] = maker["rule_pages"]()
    return found


def test_every_rule_has_a_page_with_its_five_headings_and_stands_in_the_index(pages: dict[str, str]) -> None:
    for rule in rule_classes():
        page = pages[f"{rule.code}.md"]
        assert [line[3:] for line in page.splitlines() if line.startswith("## ")][:5] == [
            "What it sees",
            "Why it matters",
            "When it stays silent",
            "What to do",
            "Sources",
        ]
        assert f"[{rule.code}]({rule.code}.md)" in pages["README.md"]


def test_a_page_explains_its_cause_and_leads_to_its_findings(pages: dict[str, str]) -> None:
    assert "Two ranks lost their connection, or never had one." in pages["DST020.md"]
    assert "- [MEM008](MEM008.md): the others wait for a killed rank, or lose it" in pages["DST020.md"]
    assert "- whatever ended another process of the job" in pages["DST020.md"]
    assert "- [DST020](DST020.md): the others wait for a killed rank, or lose it" in pages["MEM008.md"]


def test_explain_lists_how_the_lines_begin_that_a_rule_looks_for() -> None:
    shown = page_text(rule_page(find("MEM001"))).partition("\nIn logs\n")[2]
    assert '"CUDA out of memory. Trie…", "CUDA Error: out of memor…"' in shown
    assert max(map(len, shown.partition("\n\n")[0].splitlines())) <= 100
    assert "In logs" not in page_text(rule_page(find("GPU003"))), "it judges numbers alone"


def test_a_page_ends_with_the_wordings_that_the_rule_knows_and_where_each_was_met(
    pages: dict[str, str],
) -> None:
    shown = pages["NUM001.md"].partition("\n## Wordings\n")[2]
    assert "<details><summary>" in shown
    assert "- gave_up: `RuntimeError: (PreconditionNotMet) There are NAN or INF (num_nan=0" in shown
    assert " · paddlepaddle 3.3.1, paddle/amp/debugging.py\n" in shown
    assert " · <https://github.com/keithito/tacotron/blob/" in pages["NUM006.md"]
    assert " · `tests/recordings/" in pages["MEM001.md"]
    assert "`` RuntimeError: CUDA error: insufficient resources when calling `cusparse" in pages["CUD002.md"]
    assert "## Wordings" not in pages["GPU003.md"], "it judges numbers alone"
