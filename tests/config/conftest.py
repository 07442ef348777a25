"""A site and a user for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.site import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "home").mkdir()
    return Place(tmp_path)
