"""Every regular expression of coach: those in modules, classes, signatures and tables, and those inside
functions."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import types
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import coach
from coach.model.training.log import MAX_LINE_BYTES, Signature
from coach.rules.registry import build, signatures

_SEARCHES = frozenset({"search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"})
_ROOT = Path(coach.__file__).parent


@dataclass(slots=True)
class Pattern:
    """An expression, its place, and its use."""

    name: str
    compiled: re.Pattern[Any]
    methods: set[str] = field(default_factory=set[str])
    literals: set[str] = field(default_factory=set[str])
    max_chars: int = 0
    """The longest text that it sees."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `re` inside a function."""

    place: str
    """Module and function."""
    method: str
    text: str | None
    """None where the expression is put together at run time."""
    flags: int


@cache
def modules() -> tuple[types.ModuleType, ...]:
    names = [found.name for found in pkgutil.walk_packages(coach.__path__, "coach.")]
    return tuple(importlib.import_module(name) for name in names if not name.endswith("__main__"))


@cache
def all_patterns() -> tuple[Pattern, ...]:
    """Each expression once."""
    walk = _Walk()
    for signature in signatures(build()):
        walk.visit(signature.name, signature)
    for module in modules():
        for name, value in vars(module).items():
            if not isinstance(value, types.ModuleType):
                walk.visit(f"{module.__name__}.{name}", value)
    return tuple(walk.found.values())


class _Walk:
    def __init__(self) -> None:
        self.found: dict[tuple[str | bytes, int], Pattern] = {}
        self._seen: set[int] = set()
        self._methods = _methods_by_name()

    def visit(self, name: str, value: object) -> None:
        if isinstance(value, re.Pattern):
            module, _, own_name = name.rpartition(".")
            self._add(name, value, self._methods[module if own_name.startswith("_") else "", own_name])
        elif isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, re.Pattern):
            self._add(name, value.__self__, {value.__name__})
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, Signature):
                found = self._add(
                    f"{value.rule} {value.name}", re.compile(value.pattern), {"search"}, value.max_chars
                )
                found.literals.update(value.literals)
                if value.unless is not None:
                    unless = re.compile(value.unless)
                    self._add(f"{value.rule} {value.name} unless", unless, {"search"}, value.max_chars)
            for inner_name, inner in _parts(name, value):
                self.visit(inner_name, inner)

    def _add(
        self, name: str, compiled: re.Pattern[Any], methods: set[str], max_chars: int = MAX_LINE_BYTES
    ) -> Pattern:
        key = (compiled.pattern, compiled.flags)
        if key in self.found and not methods:
            return self.found[key]
        pattern = self.found.setdefault(key, Pattern(name, compiled))
        pattern.max_chars = max(pattern.max_chars, max_chars)
        # One that is handed about is taken to be searched for.
        pattern.methods |= methods or {"search"}
        return pattern


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, tuple | list | set | frozenset):
        yield from ((name, part) for part in value)
    elif isinstance(value, dict):
        yield from ((name, part) for item in value.items() for part in item)
    elif not (getattr(value, "__module__", None) or "").startswith("coach") and not type(
        value
    ).__module__.startswith("coach"):
        return
    elif isinstance(value, type):
        yield from (
            (f"{value.__module__}.{value.__qualname__}.{key}", part) for key, part in vars(value).items()
        )
    elif isinstance(value, types.FunctionType):
        yield from ((name, part) for part in value.__defaults__ or ())
        yield from ((name, cell.cell_contents) for cell in value.__closure__ or ())
    else:
        slots = getattr(type(value), "__slots__", ())
        yield from ((name, getattr(value, key)) for key in slots if hasattr(value, key))
        yield from ((name, part) for part in getattr(value, "__dict__", {}).values())


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        ".".join(("coach", *path.relative_to(_ROOT).with_suffix("").parts)): ast.parse(path.read_text())
        for path in sorted(_ROOT.rglob("*.py"))
    }


def _methods_by_name() -> dict[tuple[str, str], set[str]]:
    """(module, name) → the methods that are used of it; for a name that is no module's own the module is
    empty."""
    methods: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _SEARCHES:
                owner = node.value
                if isinstance(owner, ast.Subscript):
                    owner = owner.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)
                if name is not None:
                    methods[module if name.startswith("_") else "", name].add(node.attr)
    return methods


@cache
def calls_in_functions() -> tuple[Call, ...]:
    calls = []
    for module, tree in _trees().items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                name = getattr(function, "name", "lambda")
                for node in ast.walk(function):
                    if _is_of_re(node):
                        calls.append(_call(f"{module}.{name}", node))
    return tuple(calls)


def _is_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in {*_SEARCHES, "compile"}
    )


def _call(place: str, node: Any) -> Call:
    text = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    return Call(place, node.func.attr, text, 0)
