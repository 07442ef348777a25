"""The changes of every trainer to its parent, mostly baseline.py: a page for each."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

TRAINERS = Path(__file__).resolve().parents[2] / "trainers"
BASE = "baseline"
PARENTS = {"ddp_amp": "ddp", "gpt_ddp": "gpt", "gpt_fsdp": "gpt", "gpt_tp": "gpt"}
"""Trainers that change another one than the baseline."""
MOST_OF_IT = 0.5
"""A trainer that differs from its parent in a larger share of its lines was written on its own: a diff
would hide what it does."""


def code_lines(path: Path) -> list[str]:
    """The lines of code, all laid out alike, without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree).splitlines()


def changed_lines(base: list[str], other: list[str]) -> tuple[int, int]:
    """Lines added and lines removed."""
    lines = list(difflib.unified_diff(base, other, n=0, lineterm=""))[2:]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def derived_trainers() -> dict[str, tuple[int, int]]:
    """The trainers that are their parent with something changed, and how many lines of code they add and
    remove."""
    texts = {path.stem: code_lines(path) for path in sorted(TRAINERS.glob("*.py"))}
    found = {}
    for name, lines in texts.items():
        base = texts[PARENTS.get(name, BASE)]
        added, removed = changed_lines(base, lines)
        if name not in (BASE, "__init__") and added + removed < MOST_OF_IT * (len(base) + len(lines)):
            found[name] = (added, removed)
    return found


def diff_pages() -> dict[str, str]:
    """File name → text of every page."""
    derived = derived_trainers()
    found = {f"{name}.md": _page(name, *counts) for name, counts in derived.items()}
    rows = [
        f"| [{name}]({name}.md) | {_title(name)} | {_of(name)}+{added} −{removed} |"
        for name, (added, removed) in derived.items()
    ]
    return found | {"README.md": "\n".join([_INDEX, *rows, ""])}


_INDEX = """# What each trainer changes of the baseline

Lines of code, without comments, docstrings and layout. Where another trainer is changed, it is named.
Trainers that were written on their own are not listed. `coach recipes NAME --diff` shows what a recipe's
trainer changes of the step before.

| Trainer | What it does | Lines |
|---|---|---|"""


def _of(name: str) -> str:
    return f"{PARENTS[name]} " if name in PARENTS else ""


def _page(name: str, added: int, removed: int) -> str:
    parent = PARENTS.get(name, BASE)
    base, other = (
        (TRAINERS / f"{stem}.py").read_text(encoding="utf-8").splitlines() for stem in (parent, name)
    )
    diff = difflib.unified_diff(base, other, f"trainers/{parent}.py", f"trainers/{name}.py", lineterm="")
    return "\n".join(
        [
            f"# {parent}.py → {name}.py",
            "",
            _title(name),
            "",
            f"{added} lines of code more, {removed} less, without comments, docstrings and layout.",
            "",
            "```diff",
            *diff,
            "```",
            "",
        ]
    )


def _title(name: str) -> str:
    documentation = ast.get_docstring(ast.parse((TRAINERS / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return documentation.partition("\n")[0]
