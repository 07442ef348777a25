"""Holds JSON that a test made coach print, or write, to the schema that `make docs` publishes for it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from coach.cli import COMMANDS

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_MAX_CHARS = 500_000
"""A queue of tens of thousands has rows of the same kind, and takes a minute."""
_FILES = {
    "run.json": "run-json",
    "exit.json": "exit-json",
    "verdict.json": "verdict-json",
    "drill_answer.json": "drill-answer-json",
}
_RECORDS = {"metrics": "metrics", "telemetry": "telemetry", "stacks": "stacks-samples"}
_MAX_RECORDS = 10
"""Of one kind in one file: they are alike."""
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "check": {},
    "fix": {"--list": "fix-list"},
    "jobs": {"--columns": "jobs-columns"},
    "history": {"--columns": "history-columns"},
    "nodes": {"--columns": "nodes-columns", "--gpus": "nodes-gpus", "--reserved": "nodes-reserved"},
    "drill": {"--all": "drill-results", "--answer": "drill-answer", "--give-up": "drill-answer"},
    "config": {"--check": "config-check"},
}
"""Command → what tells its documents apart."""
_KEYS: Mapping[str, Mapping[str, str]] = {
    "check": {"target": "check", "jobs": "check-jobs"},
    "why": {"target": "why", "jobs": "why-none"},
    "fix": {"script_from": "fix-script", "run_id": "fix"},
    "compare": {"before": "compare", "points": "compare-group", "chain": "compare-chain"},
    "drill": {"run_id": "launch", "drills": "drills"},
}


@cache
def _documents() -> tuple[Any, Mapping[str, Any]]:
    """The module that describes the documents, and each of them by the name of its schema."""
    if str(_DOCS) not in sys.path:
        sys.path.append(str(_DOCS))
    module = import_module("reference_pages.documents")
    return module, module.by_name()


def names() -> list[str]:
    """The names of all schemas."""
    return sorted(_documents()[1])


@cache
def validator(name: str) -> Draft202012Validator:
    """Of the published schema of this name."""
    module, documents = _documents()
    return Draft202012Validator(json.loads(json.dumps(module.schema_of(documents[name]))))


def assert_valid(name: str, told: Any) -> None:
    """Fails with the places that are not as the schema says."""
    errors = sorted(validator(name).iter_errors(told), key=lambda error: list(map(str, error.absolute_path)))
    said = [f"{error.json_path}: {error.message[:300]}" for error in errors[:5]]
    assert not said, "\n".join([f"not as the schema {name}.json says:", *said])


def check_printed(words: Sequence[str | os.PathLike[str]], printed: str) -> None:
    """The output of `coach WORDS…`, if JSON was requested and printed."""
    said = [os.fspath(word) for word in words]
    own = said[: said.index("--")] if "--" in said else said
    is_json = any(pair == ("--format", "json") for pair in pairwise(own))
    is_script = "--dry-run" in own
    if (
        not (is_json or "--format=json" in own)
        or is_script
        or not printed.strip()
        or len(printed) > _MAX_CHARS
    ):
        return
    command = next((word for word in own if word in COMMANDS), None)
    assert command is not None, own
    if command == "attach":
        for line in printed.splitlines():
            assert_valid("attach", strict(line))
        return
    told = strict(printed)
    assert_valid(name_of(command, own, told), told)
    for run in told.get("runs", ()) if command == "launch" else ():
        check_run_dir(Path(run["run_dir"]))
        check_records(Path(run["run_dir"]))


def check_run_dir(run_dir: Path) -> None:
    """The files of a run that are there."""
    for name, schema in _FILES.items():
        with contextlib.suppress(OSError):
            assert_valid(schema, strict((run_dir / name).read_text(encoding="utf-8")))


def check_records(run_dir: Path) -> list[dict[str, Any]]:
    """The first records of each kind; they are returned."""
    found = []
    for folder, schema in _RECORDS.items():
        for path in sorted((run_dir / folder).glob("*.jsonl")):
            seen: Counter[Any] = Counter()
            for record in _records(path):
                kind = record.get("kind", record.get("event"))
                seen[kind] += 1
                if seen[kind] <= _MAX_RECORDS:
                    assert_valid(schema, record)
                    found.append(record)
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines: the last one may be torn."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def name_of(command: str, words: Sequence[str], told: Mapping[str, Any]) -> str:
    """The document that this is."""
    by_flag = (name for flag, name in _FLAGS.get(command, {}).items() if flag in words)
    by_key = (name for key, name in _KEYS.get(command, {}).items() if key in told)
    named = next(by_flag, None) or next(by_key, None)
    if named is not None:
        return named
    if command == "recipes" and told["recipes"] and "lesson" in told["recipes"][0]:
        return "recipe"
    below = next((word for word in ("check", "clean") if word in words[1:]), None)
    nested = f"{command}-{below}"
    return nested if nested in names() else command


def strict(text: str) -> Any:
    """JSON as others read it: Python alone knows NaN and Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)
