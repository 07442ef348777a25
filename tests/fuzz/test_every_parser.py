"""Every module that parses other people's text is fuzzed, or listed here with the module that covers it or
the reason against it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FUNCTION = re.compile(
    r"_?(?:parse|decode|strike|scalar_of|expand|feed|read_options|read_values|read_script)(?:_|\b)"
)
_SAYS_DEF = re.compile(rf"\bdef\s+{_FUNCTION.pattern}")
_LIBRARY = re.compile(
    r"(?:json\.loads?|tomllib\.loads?|struct\.(?:unpack|iter_unpack)\w*|pickle\.\w+"
    r"|csv\.(?:reader|DictReader)"
    r"|yaml\.\w+|ast\.parse|gzip\.(?:open|decompress)|zlib\.decompress\w*|base64\.\w+decode|shlex\.split"
    r"|sqlite3\.connect)"
)
"""A module that defines such a function, or calls such a function of a library, is a parser."""
NOT_FUZZED = {
    "coach.model.toml_lines": "reads TOML that tomllib has read: through coach.config.file",
    "coach.node.driver": "reads what a process of its own prints",
    "coach.sources.logs.printed_speeds": "reads its own table: lines go through printed_numbers",
    "coach.sources.io": "declares what a reader of output is",
    "coach.sources.slurm.overlap_step": "hands what it reads to telemetry_files.parse_records",
    "coach.workflows.watching.recording": "open: the machine in the header of a recording",
    "coach.workflows.jobs.job_actions": "splits $PAGER, in an exception handler of its own",
    "coach.workflows.launching.start": "reads a batch script whole, as text",
}


def is_parser(source: str) -> bool:
    if not _SAYS_DEF.search(source) and not _LIBRARY.search(source):
        return False  # its words cannot be in the tree either, and to make the tree takes longer
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and _FUNCTION.match(node.name):
            return True
        if isinstance(node, ast.Call) and _LIBRARY.fullmatch(ast.unparse(node.func)):
            return True
    return False


def fuzzed_modules() -> Iterator[str]:
    """The functions of coach that the properties import."""
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coach"):
                yield str(node.module)
                yield from (f"{node.module}.{each.name}" for each in node.names)


def test_every_module_that_parses_has_a_property() -> None:
    parsers = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "coach").rglob("*.py")
        if is_parser(path.read_text("utf-8"))
    }
    assert len(parsers) > 60
    assert sorted(parsers - set(fuzzed_modules()) - set(NOT_FUZZED)) == []
    assert sorted(set(NOT_FUZZED) - parsers) == []
