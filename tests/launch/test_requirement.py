"""Requirements: which torch is enough for a recipe, by its release and nothing else."""

from __future__ import annotations

import pytest

from coach.launch.requirement import check_requirement, satisfies
from coach.model.errors import UserError


@pytest.mark.parametrize(
    ("version", "requirement", "is_enough"),
    [
        ("2.6.0", ">=2.6", True),
        ("2.6.0+cu124", ">=2.6", True),
        ("2.10.0", ">=2.6", True),
        ("2.5.1", ">=2.6", False),
        ("2.3.1+cpu", ">=2.6,<3", False),
        ("3.0", ">=2.6,<3", False),
        ("2.13.0", ">= 2.6 , <3", True),
        ("2.7.0a0+ecf3bae40a.nv25.02", ">=2.7", True),
        ("2.6", "==2.6.0", True),
        ("2.6.1", "!=2.6.1", False),
        ("2.6.1", ">2.6.1", False),
        ("2.6.1", "<=2.6.1", True),
        ("unknown", ">=2.6", None),
    ],
)
def test_a_version_is_enough_or_not_or_cannot_be_compared(
    version: str, requirement: str, is_enough: bool | None
) -> None:
    assert satisfies(version, requirement) is is_enough


@pytest.mark.parametrize("text", ["", "2.6", "~=2.6", ">=", ">=2.x", ">=2.6,", ">=2.6 <3", ">=" + "9" * 400])
def test_what_is_no_requirement_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"torch = .*expected for example \">=2.6\""):
        check_requirement(text, "torch")
