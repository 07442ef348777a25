"""The sentences below the fields of a class: Python forgets them, its source does not."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise


@cache
def field_sentences(cls: type) -> dict[str, str]:
    """Field → what stands below it in the class or in one that it is made from."""
    found: dict[str, str] = {}
    for each in reversed([base for base in _bases(cls) if base.__module__ != "builtins"]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for node, below in pairwise(body):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[node.target.id] = " ".join(below.value.value.split())
    return found


def class_sentence(cls: type) -> str:
    """The first paragraph of its docstring."""
    return " ".join((cls.__doc__ or "").strip().partition("\n\n")[0].split())


def _bases(cls: type) -> list[type]:
    """The class and those that it is made from; a TypedDict tells of them in its own way."""
    made_from = getattr(cls, "__orig_bases__", ())
    typed = [base for base in made_from if isinstance(base, type) and hasattr(base, "__total__")]
    return [cls, *(each for base in typed for each in _bases(base)), *cls.__mro__[1:]]
