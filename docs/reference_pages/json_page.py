"""The page of all JSON documents: their examples, which the tests hold coach to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coach.cli import COMMANDS_BY_TASK
from reference_pages.markdown import block, code, page, table, text

EXAMPLES = Path(__file__).resolve().parents[2] / "tests" / "json_examples"
"""tests/json_documents.py describes the files."""
_WIDTH = 100
_INTRODUCTION = """\
Each command that has `--format json` prints one object on standard output; progress and notes go to
standard error. `coach attach`, metrics and telemetry are lines, each an object. A list has a plural
noun as its key. Text of other people stands there verbatim: JSON's escapes keep a terminal safe, and
bytes that are no UTF-8 are surrogate escapes.

Each document has examples, the fullest first. The tests hold what coach prints to them. A key that one of
them lacks may be missing; all others are always there. A value that was not measured, or is not known, is
null: the examples show where. A number that is not finite is the text `"NaN"`, `"Infinity"` or
`"-Infinity"`. Times are seconds since the epoch, durations are seconds. States of jobs and nodes are Slurm's
words, also of local runs; a newer Slurm may have others.

`schema` is the version of a document. It grows when a key goes or changes its meaning. A later version
of coach may add keys under the same number: read those that you know, and pass over the others."""


def documents(folder: str = ".") -> dict[str, dict[str, Any]]:
    """Name → what the file of each document in this folder has."""
    paths = sorted((EXAMPLES / folder).glob("*.json"), key=lambda path: path.stem)
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def json_page() -> str:
    """docs/reference/json.md."""
    commands = [name for names in COMMANDS_BY_TASK.values() for name in names]
    printed = documents()
    by_command = sorted(
        printed.values(), key=lambda each: commands.index(each["made_by"].replace(",", "").split()[1])
    )
    parts = [_INTRODUCTION, "## What commands print"]
    for document in by_command:
        parts += _document(document, printed)
    parts.append("## Files of a run directory")
    for document in documents("run_directory").values():
        parts += _document(document, printed)
    return page("JSON", *parts)


def laid_out(value: Any, room: int = _WIDTH) -> str:
    """JSON on one line if it fits into the room. Else numbers and words fill lines, and each object or list
    has a line of its own."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= room or not value or not isinstance(value, dict | list):
        return line
    if isinstance(value, list):
        parts, ends = [laid_out(each, room - 2) for each in value], "[]"
    else:
        names = {key: f"{json.dumps(key, ensure_ascii=False)}: " for key in value}
        parts, ends = [name + laid_out(value[key], room - 2 - len(name)) for key, name in names.items()], "{}"
    body = ",\n".join(_filled(parts, room - 2)).replace("\n", "\n  ")
    return f"{ends[0]}\n  {body}\n{ends[1]}"


def _filled(parts: Iterable[str], room: int) -> Iterator[str]:
    """Neighbours without an end of their own, joined as long as the room lasts."""
    line = ""
    for part in parts:
        if line and (part[-1] in "]}" or line[-1] in "]}" or len(line) + len(part) + 3 > room):
            yield line
            line = part
        else:
            line = f"{line}, {part}" if line else part
    yield line


def _document(document: Mapping[str, Any], printed: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {text(document['made_by'])}"
    yield text(" ".join([document["about"], document.get("others", "")]).strip())
    rows = {path: text(sentence) for path, sentence in document.get("means", {}).items()}
    for path, words in document.get("words", {}).items():
        rows[path] = f"{rows.get(path, '')} One of {', '.join(map(code, words))}.".strip()
    for path, like in document.get("like", {}).items():
        name, _, place = like.partition(":")
        where = (
            f"{code(place)} of {text(printed[name]['made_by'])}" if place else text(printed[name]["made_by"])
        )
        rows[path] = f"{rows.get(path, '')} As in {where}.".strip()
    if rows:
        yield table(("key", "means"), ((code(path), sentence) for path, sentence in rows.items()))
    for example in document["examples"]:
        yield block(laid_out(example), "json")
