"""The fixture `nvml_stand_in`, for any test folder: `from tests.nvml.fixtures import nvml_stand_in` in its conftest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nvml.stand_in import NvmlStandIn, has_compiler


@pytest.fixture
def nvml_stand_in(tmp_path: Path) -> NvmlStandIn:
    """A stand-in of its own for one test."""
    if not has_compiler():
        if os.environ.get("COACH_TEST_NVML") == "require":
            pytest.fail("COACH_TEST_NVML=require, but there is no gcc", pytrace=False)
        pytest.skip("the NVML stand-in is compiled C, and there is no gcc")
    return NvmlStandIn(tmp_path / "nvml")
