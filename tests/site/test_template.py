"""The template of the site's file has every key, and each of them is right once its mark is taken away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coach.config.check import check_file
from coach.config.file import FileKind, read_file
from coach.config.keys import KEYS
from tests.installed import REPOSITORY

TEMPLATE = REPOSITORY / "site" / "site.toml"
NEEDED = {"SCRATCH": "/scratch/ada", "USER": "ada"}


def test_the_template_as_it_is_installed_sets_nothing() -> None:
    found = read_file(Path("site.toml"), TEMPLATE.read_text(), FileKind.SITE, NEEDED)
    assert (found.problems, found.values, found.locks) == ([], {}, {})


def test_every_key_that_there_is_stands_in_the_template_and_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = re.sub(r"(?m)^#(?=[\[\w\"])", "", TEMPLATE.read_text())
    (tmp_path / "site.toml").write_text(said)
    report = check_file(tmp_path / "site.toml", NEEDED)
    assert report.problems == ()
    found = read_file(tmp_path / "site.toml", said, FileKind.SITE, NEEDED)
    assert {key for key in KEYS if not key.startswith("keys.")} - found.values.keys() == set()
    assert {"environments.pytorch", "advice.MEM001", "rules.GPU005.warning_share"} <= found.values.keys()
    assert found.locks.keys() == {"launch.partition", "switches.local_backend"}
