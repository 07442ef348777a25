"""The pages for administrators name every switch and every choice of the hooks."""

from __future__ import annotations

import re

import pytest

from coach.config import Switch
from tests.installed import REPOSITORY

DOCS = REPOSITORY / "docs" / "site"


@pytest.mark.parametrize("switch", Switch)
def test_every_switch_stands_on_the_page_of_the_site_s_file(switch: Switch) -> None:
    assert f"`{switch.key}`" in (DOCS / "settings.md").read_text()


def test_no_page_names_a_switch_that_is_not_there() -> None:
    named = set(re.findall(r"`switches\.(\w+)`", (DOCS / "settings.md").read_text()))
    assert named == {switch.value for switch in Switch}


def test_every_choice_of_the_hooks_is_explained() -> None:
    script = (REPOSITORY / "site" / "hooks" / "verdict.sh").read_text()
    choices = set(re.findall(r"(?m)^#   ([A-Z_]+)=", script))
    page = (DOCS / "hooks.md").read_text()
    assert len(choices) >= 6
    assert {name for name in choices if not re.search(rf"(?m)^{name}=", page)} == set()
