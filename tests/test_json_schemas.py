"""Every JSON document has a schema, a schema refuses a wrong document, and the files of runs match their
schemas.

`json_documents.py` checks the output of commands against the schemas in every test that prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from coach import cli
from coach.cli import COMMANDS
from tests.installed import REPOSITORY
from tests.json_documents import (
    assert_valid,
    check_printed,
    check_records,
    check_run_dir,
    names,
    strict,
    validator,
)

RECORDINGS = REPOSITORY / "tests" / "recordings"
STACKS = sorted(RECORDINGS.glob("stacks/*.jsonl"))
NAMES = names()
EXAMPLES = sorted((REPOSITORY / "tests" / "json_examples").glob("*.json"))
_VALUES: dict[str, Any] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "null": None}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "docs")


def pages(name: str) -> ModuleType:
    return import_module(f"reference_pages.{name}")


def speaks_json(parser: argparse.ArgumentParser) -> bool:
    return any("--format" in action.option_strings and action.choices for action in parser._actions)


def test_each_command_that_prints_json_has_a_document_and_each_document_a_command() -> None:
    commands = pages("commands")
    speaking = set()
    for name in COMMANDS:
        parser = cli.parser_of(name)
        below = {f"{name} {word}" for word, each in commands.parsers_below(parser) if speaks_json(each)}
        speaking |= below | ({name} if speaks_json(parser) else set())
    documents = pages("documents")
    made_by = [each.made_by for each in documents.COMMAND_DOCUMENTS]
    missing = [
        name for name in speaking if not any(f"{said} ".startswith(f"coach {name} ") for said in made_by)
    ]
    assert missing == [], "add it to docs/reference_pages/documents.py"
    said = {name.split()[0] for name in speaking}
    assert [each for each in made_by if each.replace(",", "").split()[1] not in said] == []


def test_each_schema_is_a_schema_and_names_itself() -> None:
    assert len(NAMES) > 40
    for name in NAMES:
        schema = validator(name).schema
        Draft202012Validator.check_schema(schema)
        assert (schema["$schema"], schema["$id"]) == (Draft202012Validator.META_SCHEMA["$id"], f"{name}.json")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_the_reference_is_as_its_schema_says(example: Path) -> None:
    assert_valid(example.stem, strict(example.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_accepts_its_document_and_refuses_one_without_a_key(name: str) -> None:
    schema = validator(name).schema
    for one in schema.get("anyOf", [schema]):
        example = made_up(one, schema)
        assert_valid(name, example)
        assert_valid(name, example | {"key_of_a_later_version": 1})
        for key in one.get("required", ()):
            lacking = {each: value for each, value in example.items() if each != key}
            assert "anyOf" in schema or not validator(name).is_valid(lacking), key
    assert not validator(name).is_valid([])
    assert not validator(name).is_valid({})


def made_up(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    """A value that fits."""
    if "$ref" in schema:
        return made_up(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return made_up(schema["anyOf"][0], whole)
    kind = schema.get("type", "string")
    if kind == "array":
        return [made_up(each, whole) for each in schema.get("prefixItems", [schema.get("items", {})])]
    if kind == "object":
        return {key: made_up(each, whole) for key, each in schema.get("properties", {}).items()}
    return _VALUES[kind[-1] if isinstance(kind, list) else kind]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["check", "RUN", "--format", "json"], '{"schema": 2, "target": "x"}'),
        (["compare", "A", "B", "--format", "json"], '{"schema": 1, "before": NaN}'),
        (["runs", "--format", "json"], '{"schema": 1, "runs": [{"run_id": 3}], "problems": []}'),
    ],
)
def test_output_that_breaks_its_schema_fails_the_test_that_printed_it(words: list[str], printed: str) -> None:
    with pytest.raises(AssertionError):
        check_printed(words, printed)


def test_the_files_of_recorded_launches_are_as_their_schema_says() -> None:
    launched = [
        path.parent for path in RECORDINGS.rglob("run.json") if "launch" in json.loads(path.read_text())
    ]
    assert len(launched) > 5
    for run_dir in launched:
        check_run_dir(run_dir)


def test_the_records_of_recorded_runs_are_as_their_schema_says() -> None:
    kinds = {
        record.get("kind", "event" if "event" in record else "step")
        for run_dir in {path.parent.parent for path in RECORDINGS.rglob("*.jsonl")}
        for record in check_records(run_dir)
    }
    assert kinds >= {"step", "event", "host", "gap", "gpu", "gpu_link", "gpu_health", "gpu_event", "port"}


def test_recorded_bursts_of_stacks_are_as_their_schema_says() -> None:
    bursts = [json.loads(line) for path in STACKS for line in path.read_text().splitlines()]
    assert len(bursts) > 5
    for burst in bursts:
        assert_valid("stacks-samples", burst)


def test_a_sample_of_this_node_is_as_its_schema_says() -> None:
    argv = [sys.executable, "-m", "coach.node", "sample", "--once"]
    done = subprocess.run(argv, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert {json.loads(line)["kind"] for line in lines} >= {"host", "gap"}, done.stderr
    for line in lines:
        assert_valid("telemetry", strict(line))
