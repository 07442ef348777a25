"""The fixture `nvml_stand_in`, for any test folder: `from tests.nvml.fixtures import nvml_stand_in` in its
conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvml.stand_in import NvmlStandIn


@pytest.fixture
def nvml_stand_in(tmp_path: Path) -> NvmlStandIn:
    """A separate stand-in for one test."""
    return NvmlStandIn(tmp_path / "nvml")
