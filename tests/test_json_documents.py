"""The examples of JSON documents fit themselves, hold each command that prints JSON, and refuse what they do
not show. The files of runs fit their examples.

`json_documents.py` holds the output of commands to the examples in every test that prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from coach import cli
from coach.cli import COMMANDS
from tests.forked import typed_coach
from tests.installed import REPOSITORY
from tests.json_documents import (
    FREE_KEYS,
    RUN_DIRECTORY,
    Shape,
    assert_fits,
    check_printed,
    check_records,
    check_run_dir,
    document,
    name_of,
    names,
    shape_at,
    shape_of,
    strict,
)

RECORDINGS = REPOSITORY / "tests" / "recordings"
STACKS = sorted(RECORDINGS.glob("stacks/*.jsonl"))
NAMES = names()
PRINTED = [name for name in NAMES if not name.startswith(RUN_DIRECTORY)]
_PARTS = {"made_by", "about", "by", "others", "means", "words", "like", "examples"}


def speaks_json(parser: argparse.ArgumentParser) -> bool:
    return any("--format" in action.option_strings and action.choices for action in parser._actions)


def test_each_command_that_prints_json_has_an_example_and_each_example_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "docs")
    commands = import_module("reference_pages.commands")
    speaking = set()
    for name in COMMANDS:
        parser = cli.parser_of(name)
        below = {f"{name} {word}" for word, each in commands.parsers_below(parser) if speaks_json(each)}
        speaking |= below | ({name} if speaks_json(parser) else set())
    made_by = [
        line
        for name in PRINTED
        for line in document(name)["made_by"].split(", ")
        if line.startswith("coach ")
    ]
    missing = [
        name for name in speaking if not any(f"{line} ".startswith(f"coach {name} ") for line in made_by)
    ]
    assert missing == [], "show its JSON in tests/json_examples"
    assert {line.split()[1] for line in made_by} <= {name.split()[0] for name in speaking}


@pytest.mark.parametrize("name", NAMES)
def test_examples_fit_and_what_is_written_about_them_names_their_keys(name: str) -> None:
    whole = document(name)
    assert whole.keys() <= _PARTS
    by = whole.get("by")
    for example in whole["examples"]:
        assert_fits(name, example)
    variants = {each.get(by) for each in whole["examples"]} if by else {None}
    shown = {path for variant in variants for path in _paths(shape_of(name, variant))}
    told = {path for part in ("means", "words", "like") for path in whole.get(part, {})}
    assert told - shown == set()
    for like in whole.get("like", {}).values():
        assert shape_at(like)


def _paths(shape: Shape, path: str = "") -> Iterator[str]:
    yield path
    for key, each in shape.keys.items():
        yield from _paths(each, f"{path}.{key}".lstrip("."))
    if shape.inner is not None:
        yield from _paths(shape.inner, f"{path}.*" if shape.is_free else f"{path}[]")


def test_each_object_with_free_keys_is_shown() -> None:
    shown = {
        place
        for name in NAMES
        for example in document(name)["examples"]
        for path in _paths(shape_of(name, example.get(document(name).get("by"))))
        for place in (path.rpartition(".")[2], f"{name}:{path}")
    }
    assert FREE_KEYS.keys() - shown == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_document_without_a_key_or_with_another_one_is_refused(name: str) -> None:
    for example in document(name)["examples"]:
        required = shape_of(name, example.get(document(name).get("by"))).required
        assert "schema" in required or name.startswith(RUN_DIRECTORY)
        for key in required - {document(name).get("by")}:
            with pytest.raises(AssertionError, match=f"has no key '{key}'"):
                assert_fits(name, {each: value for each, value in example.items() if each != key})
        is_open = "others" in document(name) and document(name)["by"] in example
        with (
            contextlib.nullcontext() if is_open else pytest.raises(AssertionError, match="unknown key 'new'")
        ):
            assert_fits(name, example | {"new": 1})
    with pytest.raises(AssertionError):
        assert_fits(name, [])


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("schema",), 1.5, r"\$.schema is a number, not a whole number: 1.5"),
        (("schema",), 2, r"\$.schema is 2, not one of 1"),
        (("target",), None, r"\$.target is null, not text: null"),
        (("verdict",), "fine", r"\$.verdict is 'fine', not one of finding healthy too_early unknown"),
        (("findings", 0, "primary"), 1, r"\$.findings\[0\].primary is a whole number, not true or false: 1"),
        (("findings", 0, "confidence"), "NaN", r"confidence is a number that is not finite, not a number"),
        (("findings", 0, "evidence", 0, "column"), 7, r"\$.findings\[0\].evidence\[0\] has an unknown key"),
        (("findings", 0, "fixes", 0, "changes"), {"lr": []}, r"changes.lr is a list, not"),
        (("jobs",), [{"schema": 1}], r"\$.jobs\[0\] has no key 'findings'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_the_file_to_change(
    keys: tuple[str | int, ...], value: Any, message: str
) -> None:
    wrong = copy.deepcopy(document("check")["examples"][0])
    inside = wrong
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    with pytest.raises(AssertionError, match=f"(?s){message}.*tests/json_examples/check.json"):
        assert_fits("check", wrong)


def test_whole_numbers_and_words_for_numbers_fit_where_wider_values_are_shown() -> None:
    fitting = copy.deepcopy(document("check")["examples"][0])
    fitting["findings"][0]["confidence"] = 1
    fitting["target"] = "NaN"
    fitting["findings"][0]["fixes"][0]["changes"] = {"a_parameter_of_some_recipe": 1}
    assert_fits("check", fitting)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["check", "RUN", "--format", "json"], '{"schema": 2, "target": "x"}'),
        (["compare", "A", "B", "--format", "json"], '{"schema": 1, "before": NaN}'),
        (["runs", "--format", "json"], '{"schema": 1, "runs": [{"run_id": 3}], "problems": []}'),
        (["attach", "17", "--format", "json"], '{"schema": 1, "kind": "Unheard"}'),
    ],
)
def test_output_that_no_example_shows_fails_the_test_that_printed_it(words: list[str], printed: str) -> None:
    with pytest.raises(AssertionError):
        check_printed(words, printed)


@pytest.mark.parametrize(
    "line",
    [
        "check tests/recordings/nan",
        "runs",
        "recipes",
        "recipes ddp",
        "drill",
        "data",
        "config",
        "config --check",
        "doctor --backend local",
        "jobs --backend local",
        "history --backend local",
        "nodes --backend local",
        "nodes --gpus --backend local",
        "partitions --backend local",
    ],
)
def test_an_example_has_the_keys_that_its_command_prints_here(line: str, tmp_path: Path) -> None:
    words = [*line.split(), "--format", "json"]
    env = {
        "PATH": os.environ["PATH"],
        "COACH_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "COACH_AS_ROOT": "1",
    }
    printed = typed_coach(words, env, cwd=REPOSITORY)
    value = strict(printed.stdout)  # `typed_coach` held it to the examples
    assert value.keys() >= shape_of(name_of(words[0], words, value)).required, printed.stderr


def test_the_files_of_recorded_launches_fit_their_examples() -> None:
    launched = [
        path.parent for path in RECORDINGS.rglob("run.json") if "launch" in json.loads(path.read_text())
    ]
    assert len(launched) > 5
    for run_dir in launched:
        check_run_dir(run_dir)


def test_the_records_of_recorded_runs_fit_their_examples() -> None:
    kinds = {
        record.get("kind", "event" if "event" in record else "step")
        for run_dir in {path.parent.parent for path in RECORDINGS.rglob("*.jsonl")}
        for record in check_records(run_dir)
    }
    assert kinds >= {"step", "event", "host", "gap", "gpu", "gpu_link", "gpu_health", "gpu_event", "port"}


def test_recorded_bursts_of_stacks_fit_their_examples() -> None:
    bursts = [json.loads(line) for path in STACKS for line in path.read_text().splitlines()]
    assert len(bursts) > 5
    for burst in bursts:
        assert_fits(f"{RUN_DIRECTORY}/stacks", burst)


def test_a_sample_of_this_node_fits_its_example() -> None:
    argv = [sys.executable, "-m", "coach.node", "sample", "--once"]
    done = subprocess.run(argv, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert {json.loads(line)["kind"] for line in lines} >= {"host", "gap"}, done.stderr
    for line in lines:
        assert_fits(f"{RUN_DIRECTORY}/telemetry", strict(line))
