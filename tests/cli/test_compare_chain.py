"""The table of a chain of fixes."""

from __future__ import annotations

import pytest

from coach.analysis.comparing.fix_chain import Link
from coach.cli import compare


def test_a_link_with_findings_of_info_alone_is_not_said_to_have_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    links = [
        Link("good", "lr 0.05", "COMPLETED", None, True, None),
        Link("bad", None, "FAILED", None, False, None),
    ]
    compare._print_chain(links)
    good, bad = capsys.readouterr().out.splitlines()[1:]
    assert "no warning" in good
    assert "see check" in bad
