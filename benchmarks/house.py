"""Measure the size of the project: tokens of code, and what else one has to read.

    python benchmarks/house.py [CHECKOUT]

A token is one of Python's, without comments, docstrings and line ends: a figure that shorter lines or fewer
blank lines do not change. Rooms are the modules and packages directly below `coach/`. `names` counts how
often `told`, `said` and `asked` stand as names of values; a noun of the field is right there.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PARTS = ("coach", "trainers", "recipes", "tests")
PAST_TENSES = ("told", "said", "asked")

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a file or a room; `docstring_bytes` and `toml_bytes` are in bytes."""

    files: int = 0
    lines: int = 0
    tokens: int = 0
    docstring_bytes: int = 0
    toml_bytes: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.files + other.files,
            self.lines + other.lines,
            self.tokens + other.tokens,
            self.docstring_bytes + other.docstring_bytes,
            self.toml_bytes + other.toml_bytes,
            self.names + other.names,
        )


def size_of(path: Path) -> Size:
    """The size of a Python or TOML file. Raises OSError, SyntaxError."""
    text = path.read_text(encoding="utf-8")
    num_lines = text.count("\n")
    if path.suffix == ".toml":
        return Size(1, num_lines, toml_bytes=len(text.encode()))
    docstrings = _docstrings(ast.parse(text))
    doc_lines = {line for lines in docstrings for line in lines}
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE and not (token.type == tokenize.STRING and token.start[0] in doc_lines)
    ]
    names = Counter(
        token.string for token in tokens if token.type == tokenize.NAME and token.string in PAST_TENSES
    )
    num_bytes = sum(len(doc.encode("utf-8", "surrogatepass")) for doc in docstrings.values())
    return Size(1, num_lines, len(tokens), num_bytes, 0, names)


def _docstrings(tree: ast.Module) -> dict[range, str]:
    """The strings that stand alone as statements, by their lines."""
    return {
        range(node.lineno, (node.end_lineno or 0) + 1): node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def sizes_of(checkout: Path, parts: Sequence[str] = PARTS) -> dict[str, Size]:
    """Room of coach, or another part of the project → its size."""
    sizes: dict[str, Size] = defaultdict(Size)
    for path in (path for part in parts for path in sorted((checkout / part).rglob("*.*"))):
        if path.suffix in (".py", ".toml"):
            part, room, *_ = path.relative_to(checkout).parts
            sizes[f"coach/{room.removesuffix('.py')}" if part == "coach" else part] += size_of(path)
    return dict(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    sizes = sizes_of(parser.parse_args().checkout.resolve())
    rooms = {name: size for name, size in sizes.items() if name.startswith("coach/")}
    others = {name: size for name, size in sizes.items() if name not in rooms}
    total = sum(rooms.values(), Size())
    heads = ("files", "lines", "tokens", "docstrings", "TOML", *PAST_TENSES)
    print(f"{'room':<18}" + "".join(f"{head:>11}" for head in heads))
    ordered = sorted(rooms.items(), key=lambda item: -item[1].tokens)
    for name, size in (*ordered, ("coach in all", total), *others.items()):
        figures = (size.files, size.lines, size.tokens, size.docstring_bytes, size.toml_bytes)
        counts = (*figures, *(size.names[word] for word in PAST_TENSES))
        print(f"{name:<18}" + "".join(f"{count:>11,}" for count in counts))


if __name__ == "__main__":
    main()
