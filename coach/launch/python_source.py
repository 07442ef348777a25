"""Read facts from a Python program's text, without running it."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from coach.model.errors import UserError
from coach.sources.named_file import read_named

MAX_BYTES = 1 << 20
"""No training of one file has a third of it; Python needs up to 900 bytes of memory for each byte."""
_MAX_FILES = 200
"""Files of a program that are read for its imports."""


def read_program(path: Path) -> str:
    """The text of a Python file. Raises UserError."""
    return read_named(path, limit=MAX_BYTES, encoding="utf-8-sig", errors="replace")


def parse_source(text: str) -> ast.Module:
    """The text as a tree. Raises SyntaxError. Python's warnings about the text are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (ValueError, MemoryError, RecursionError) as error:
            raise SyntaxError(str(error) or "too many brackets within each other") from None


def imports_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The first name of each module that these nodes import: `torch` of `import torch.nn`. Relative imports
    have none."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def packages_of(program: Path, folders: Iterable[Path]) -> tuple[str, ...]:
    """The packages that a program always imports, by their first names, without Python's own. A module that
    lies in one of the folders is no package: it is read in its turn."""
    places = {path.stem: path.parent for folder in folders for path in _children(folder)}
    packages: dict[str, None] = {}
    files = {program: None}
    waiting = [program]
    while waiting and len(files) <= _MAX_FILES:
        for dotted in _imports_of_file(waiting.pop(0)):
            first, *rest = dotted.split(".")
            if first in places:
                found = [path for path in _files_of(places[first] / first, rest) if path not in files]
                files |= dict.fromkeys(found)
                waiting += found
            elif first not in sys.stdlib_module_names:
                packages[first] = None
    return tuple(packages)


def _children(folder: Path) -> list[Path]:
    """The modules and folders in it; empty if it cannot be read."""
    try:
        return [
            path for path in folder.iterdir() if path.suffix == ".py" or (not path.suffix and path.is_dir())
        ]
    except OSError:
        return []


def _files_of(place: Path, parts: list[str]) -> list[Path]:
    """The files of a module, of the package that holds it, and of what is imported from it."""
    paths = [place, *(place.joinpath(*parts[:number]) for number in range(1, len(parts) + 1))]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return [file for file in files if file.is_file()]


def _imports_of_file(file: Path) -> tuple[str, ...]:
    """The dotted names of all that a file always imports; empty if it cannot be read."""
    try:
        tree = parse_source(read_program(file))
    except (UserError, SyntaxError):
        return ()
    names: list[str] = []
    for node in _always(tree.body):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{name.name}" for name in node.names]
    return tuple(names)


def _always(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements that run whenever a module is imported. An `if`, a function, and a `try` that catches a
    failed import are left out."""
    for node in nodes:
        if isinstance(node, ast.With) or (isinstance(node, ast.Try) and not _catches_failed_imports(node)):
            yield from _always(node.body)
        else:
            yield node


def _catches_failed_imports(node: ast.Try) -> bool:
    types = [ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers]
    return any(re.search(r"ImportError|ModuleNotFound|Exception", each) for each in types)
