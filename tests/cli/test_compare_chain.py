"""The table of a chain of fixes."""

from __future__ import annotations

import pytest

from coach.analysis.comparing.fix_chain import Link
from coach.cli import compare


def test_each_link_names_the_code_of_its_finding_and_a_pending_one_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    links = [
        Link("good", "lr 0.05", "COMPLETED", None, True, None),
        Link("bad", None, "FAILED", None, False, None, found="MEM001"),
        Link("waits", None, "PENDING", None, False, None),
    ]
    compare._print_chain(links)
    good, bad, waits = capsys.readouterr().out.splitlines()[1:]
    assert "no warning" in good
    assert "MEM001" in bad
    assert waits.split() == ["waits", "PENDING", "–", "–", "–"]
