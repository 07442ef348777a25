"""The sentences below the fields of a class: Python forgets them, its source does not."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import cache
from itertools import pairwise


@cache
def field_sentences(cls: type) -> dict[str, str]:
    """Field → the docstring below it in the class or in a base class."""
    tree = _tree(cls)
    found: dict[str, str] = {}
    for base in tree.bases:
        above = getattr(sys.modules[cls.__module__], base.id, None) if isinstance(base, ast.Name) else None
        if isinstance(above, type) and hasattr(above, "__annotations__"):
            found |= field_sentences(above)
    for node, below in pairwise(tree.body):
        match node, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = " ".join(said.split())
    return found


@cache
def _tree(cls: type) -> ast.ClassDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef), cls
    return tree
