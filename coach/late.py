"""Imports modules at their first use, so that startup does not wait for them.

    if TYPE_CHECKING:
        from coach.workflows.jobs import attach, stacks
    else:
        attach, stacks = late("coach.workflows.jobs", "attach", "stacks")

Type checkers and the import contracts read the first branch. `tests/test_house.py` holds the two together.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module, and imports it at the first access to an attribute, in the accessing thread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def late(package: str, *names: str) -> Any:
    """Modules of a package, imported at first use: one, or a tuple of several."""
    modules = tuple(LateModule(f"{package}.{name}") for name in names)
    return modules if len(modules) > 1 else modules[0]
