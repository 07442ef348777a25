"""Measure the source: each measure gives a figure for every place that is over its limit.

A place is a file, or `file:function`. Paths are relative to the repository.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.installed import REPOSITORY

MAX_COMPLEXITY = 15
MAX_FUNCTION_LINES = 60
MAX_OWN_IMPORTS = 12
MAX_WIDTH = 110

Among = frozenset[Path] | None
"""The files that are measured, of those that a measure is for; None: all."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_UNCOUNTED = {"coach.late", "coach.trusted", "coach.sources.named_file"}
"""Modules that others must use instead of a statement: for an import inside a function, for `open`."""
_MUTABLE_CALLS = frozenset(
    {"Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"}
)
_MUTABLE = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp)
_CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "update",
    ]
)
_TEST = re.compile(r"^ *(?:async )?def test_(\w+)", re.MULTILINE)
_FEWEST_WORDS_OF_A_NAME = 4


@dataclass(frozen=True, slots=True)
class Guard:
    """A measure, its limit for every place, and the advice for a place above the limit."""

    measure: Callable[[Among], Mapping[str, int]]
    limit: int
    mend: str


@cache
def files(*folders: str, among: Among = None) -> tuple[Path, ...]:
    places = [REPOSITORY / folder for folder in folders]
    if among is not None:
        is_in = [path for path in sorted(among) if path.suffix == ".py" and path.exists()]
        return tuple(path for path in is_in if any(place in path.parents for place in places))
    found = [path for place in places for path in sorted(place.rglob("*.py"))]
    assert found, folders
    return tuple(path for path in found if "__pycache__" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def complexities(among: Among = None) -> dict[str, int]:
    """Decisions of a function plus one, counted as radon counts them: boolean operators and comprehensions
    too."""
    return {
        place: 1 + sum(map(_decisions, ast.walk(function)))
        for place, function in _functions(files("coach", "benchmarks", "docs", among=among))
    }


def lengths(among: Among = None) -> dict[str, int]:
    """Lines of a function, from `def` to its last. Trainers are left out: each is one function, read from top
    to bottom."""
    return {
        place: (function.end_lineno or function.lineno) - function.lineno + 1
        for place, function in _functions(files("coach", "tests", "benchmarks", "docs", among=among))
    }


def own_imports(among: Among = None) -> dict[str, int]:
    """Modules of coach that a module imports at its top. Those for annotations (TYPE_CHECKING) and late ones
    (`coach.late`) couple too, but load nothing: left out, as are the readers of files."""
    return {
        _name(path): len(
            {
                module
                for node, in_function, is_for_types in _imports(path)
                if not in_function and not is_for_types
                for module in _own_modules(node) - _UNCOUNTED
            }
        )
        for path in files("coach", among=among)
    }


def late_imports(among: Among = None) -> dict[str, int]:
    """Import statements inside functions, for modules of coach."""
    return {
        _name(path): sum(bool(_own_modules(node)) for node, in_function, _ in _imports(path) if in_function)
        for path in files("coach", among=among)
    }


def wide_lines(among: Among = None) -> dict[str, int]:
    return {
        _name(path): sum(len(line) > MAX_WIDTH for line in path.read_text(encoding="utf-8").split("\n"))
        for path in files("coach", "tests", "trainers", "benchmarks", "docs", among=among)
    }


def states(among: Among = None) -> dict[str, int]:
    """The state that a module keeps between calls: caches, `global`, and containers that its functions
    change."""
    return {place: 1 for path in files("coach", "trainers", among=among) for place in _states_of(path)}


def vague_test_names(among: Among = None) -> dict[str, int]:
    """Tests with too short a name: it has a subject and no statement."""
    return {
        _name(path): sum(
            len(name.split("_")) < _FEWEST_WORDS_OF_A_NAME for name in _TEST.findall(path.read_text())
        )
        for path in files("tests", among=among)
    }


def _functions(paths: tuple[Path, ...]) -> Iterator[tuple[str, _Function]]:
    """Functions and methods; an inner function counts as a part of the outer one."""
    for path in paths:
        for node, name in _outermost(tree(path), ""):
            yield f"{_name(path)}:{name}", node


def _outermost(tree: ast.AST, prefix: str) -> Iterator[tuple[_Function, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield node, prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _outermost(node, f"{prefix}{node.name}.")
        else:
            yield from _outermost(node, prefix)


def _decisions(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.Assert():
            return 1
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try():
            return len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            return len(node.cases) - any(_is_else(case) for case in node.cases)
        case _:
            return 0


def _is_else(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _imports(path: Path) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Each import of a module, with two flags: inside a function, and only for annotations."""

    def visit(
        tree: ast.AST, in_function: bool, is_for_types: bool
    ) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node, in_function, is_for_types
            is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from visit(node, in_function or isinstance(node, _Function), is_for_types or is_typing)

    return visit(tree(path), False, False)


def _own_modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.ImportFrom):
        names = {node.module or ""}
    else:
        names = {alias.name for alias in node.names}
    return {name for name in names if name.partition(".")[0] == "coach"}


def _states_of(path: Path) -> Iterator[str]:
    module = tree(path)
    for function, name in _outermost(module, ""):
        if any(
            "cache" in ast.unparse(each).split("(")[0].split(".")[-1].split("_")
            for each in function.decorator_list
        ):
            yield f"{_name(path)}:{name}"
    for node in ast.walk(module):
        if isinstance(node, ast.Global):
            yield from (f"{_name(path)}:{name}" for name in node.names)
    containers = {name for statement in module.body for name in _container_names(statement)}
    yield from (f"{_name(path)}:{name}" for name in sorted(containers & set(_changed_names(module))))


def _container_names(statement: ast.stmt) -> Iterator[str]:
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return
    value = statement.value
    is_call = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in _MUTABLE_CALLS
    if isinstance(value, _MUTABLE) or is_call:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _changed_names(module: ast.Module) -> Iterator[str]:
    """Names whose items a function of the module sets, deletes, adds or takes away."""
    inside = (node for function, _ in _outermost(module, "") for node in ast.walk(function))
    for node in inside:
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _CHANGES:
                yield name
            case _:
                pass


GUARDS: Mapping[str, Guard] = {
    "complexity": Guard(
        complexities, MAX_COMPLEXITY, "divide it: name its decisions as functions of their own"
    ),
    "function-length": Guard(lengths, MAX_FUNCTION_LINES, "divide it at its paragraphs"),
    "own-imports": Guard(
        own_imports, MAX_OWN_IMPORTS, "divide the module by what its imports have in common"
    ),
    "late-imports": Guard(
        late_imports, 0, "move the import to the top; `coach.late` where a start would wait for it"
    ),
    "wide-lines": Guard(wide_lines, 0, f"break the line at {MAX_WIDTH} characters"),
    "state": Guard(states, 0, "hold it in an object that its user makes"),
    "vague-test-names": Guard(vague_test_names, 0, "say in the test's name what is asserted"),
}
