"""The page of all JSON documents, and their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reference_pages.documents import (
    ALL,
    COLUMNS,
    COMMAND_DOCUMENTS,
    FILE_DOCUMENTS,
    TELEMETRY,
    Document,
    schema_of,
)
from reference_pages.json_schema import Schema
from reference_pages.markdown import UNSTORED, block, code, page, table, text

_EXAMPLES = Path(__file__).resolve().parents[2] / "tests" / "json_examples"
"""NAME.json is printed below the document of this name."""
_INTRODUCTION = """\
Each command that has `--format json` prints one object on standard output; progress and notes go to
standard error. `coach attach`, metrics and telemetry are lines, each an object. A list has a plural
noun as its key. Text of other people stands there verbatim: JSON's escapes keep a terminal safe, and
bytes that are no UTF-8 are surrogate escapes.

`make docs` writes a [JSON Schema](https://json-schema.org/) (draft 2020-12) of each document into
`docs/made/schemas`, under the name that stands with the document. The tests hold what is printed to them.
A key without *may be missing* is always there; a value that was not measured, or is not known, is null.
Times are seconds since the epoch, durations are seconds. States of jobs and nodes are Slurm's words, also
of local runs; a newer Slurm may have others.

`schema` is the version of a document. It grows when a key goes or changes its meaning. A later version
of coach may add keys under the same number: read those that you know, and pass over the others."""
_OBJECTS = "Objects that stand inside of several documents, and those that are long."


class JsonPage:
    """json.md."""

    def __init__(self) -> None:
        self._objects: dict[str, Schema] = {}
        self.text = page("JSON", *self._parts())

    def _parts(self) -> Iterable[str]:
        yield _INTRODUCTION
        yield "## What commands print"
        for document in (*COMMAND_DOCUMENTS, *COLUMNS):
            yield from self._document(document)
        yield "## Files of a run directory"
        for document in (*FILE_DOCUMENTS, TELEMETRY):
            yield from self._document(document)
        yield "## Objects"
        yield _OBJECTS
        for name, schema in sorted(self._objects.items()):
            yield f"### {name}"
            yield from self._described(schema)

    def _document(self, document: Document) -> Iterable[str]:
        schema = schema_of(document)
        for name, each in schema.get("$defs", {}).items():
            known = self._objects.setdefault(name, each)
            assert known == each, f"two objects are called {name}"
        yield f"### {text(document.made_by)}"
        yield f"{'Lines, each an object' if document.is_line else 'One object'}: `{document.name}.json`."
        yield from self._described(schema)
        example = _EXAMPLES / f"{document.name}.json"
        if example.exists():
            yield "For example:"
            yield block(example.read_text(encoding="utf-8"), "json")

    def _described(self, schema: Schema) -> Iterable[str]:
        if "description" in schema:
            yield text(schema["description"])
        if "anyOf" in schema:
            yield "One of:"
            for each in schema["anyOf"]:
                yield from self._described(_looked_up(each, schema))
        if "properties" in schema:
            required = set(schema.get("required", ()))
            rows = [
                (
                    code(name),
                    _type(value) + ("" if name in required else "; may be missing"),
                    text(value["description"]) if "description" in value else "",
                )
                for name, value in schema["properties"].items()
            ]
            yield table(("key", "value", "means"), rows)


def json_page() -> str:
    """docs/reference/json.md."""
    return JsonPage().text


def schema_pages() -> dict[str, str]:
    """File name → text of each schema, and of the page that lists them."""
    rows = [(f"[{each.name}.json]({each.name}.json)", text(each.made_by)) for each in ALL]
    schemas = {
        f"{each.name}.json": json.dumps(schema_of(each), indent=1, ensure_ascii=False) + "\n" for each in ALL
    }
    return {"README.md": page("JSON Schemas", table(("schema", "of"), rows), made_by=UNSTORED), **schemas}


def _looked_up(schema: Schema, whole: Schema) -> Schema:
    reference = schema.get("$ref")
    return schema if reference is None else whole["$defs"][reference.rpartition("/")[2]]


_WORDS: Mapping[str, str] = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
    "array": "list",
}


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "anyOf" in schema:
        return _with_null([_type(each) for each in schema["anyOf"]])
    said = schema.get("type")
    if isinstance(said, list):
        return _with_null([_WORDS[each] for each in said])
    if said == "array" and "items" in schema:
        return f"list of: {_type(schema['items'])}"
    values = schema.get("additionalProperties")
    if isinstance(values, dict) and values:
        return f"object, each value: {_type(values)}"
    return _WORDS.get(str(said), "anything")


def _with_null(words: list[str]) -> str:
    return " or ".join(sorted(words, key=lambda word: word == "null"))
