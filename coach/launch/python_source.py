"""Read facts from a Python program's text, without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator


def parse_source(text: str | bytes) -> ast.Module:
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
