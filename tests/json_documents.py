"""Holds JSON that a test made coach print, or write, to the examples in tests/json_examples.

An example file is a document of the reference: `made_by`, a sentence `about` it, its `examples` (the fullest
and the barest), and by path what a field `means`, its closed set of `words`, and the document that it is
`like`. Lines of several kinds differ `by` a key; `others` says that there are more kinds, and more keys of a
kind.

The examples give the shape: at each path the types that they show, and the keys. A key that no object lacks
is required. To let coach print something new, show it in an example. A third example is there where two
cannot show all: keys that exclude each other, or an object that may be missing and may have no keys.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from coach.cli import COMMANDS

EXAMPLES = Path(__file__).with_name("json_examples")
RUN_DIRECTORY = "run_directory"
"""The folder of the examples of files."""
_MAX_CHARS = 500_000
"""A queue of tens of thousands has rows of the same kind, and takes a minute."""
_FILES = ("run.json", "exit.json", "verdict.json", "drill_answer.json")
_RECORDS = ("metrics", "telemetry", "stacks")
_MAX_RECORDS = 10
"""Of one kind in one file: they are alike."""
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "fix": {"--list": "fix-list"},
    "jobs": {"--columns": "jobs-columns"},
    "history": {"--columns": "history-columns"},
    "nodes": {"--columns": "nodes-columns", "--gpus": "nodes-gpus", "--reserved": "nodes-reserved"},
    "drill": {"--all": "drill-results", "--answer": "drill-answer", "--give-up": "drill-answer"},
    "config": {"--check": "config-check"},
}
"""Command → the flags that tell its documents apart."""
_KEYS: Mapping[str, Mapping[str, str]] = {
    "check": {"target": "check", "jobs": "check-jobs"},
    "why": {"target": "check", "jobs": "check-jobs"},
    "watch": {"jobs": "check-jobs"},
    "fix": {"script_from": "fix-script", "run_id": "fix"},
    "compare": {"chain": "compare-chain", "before": "compare", "points": "compare-group"},
    "drill": {"run_id": "launch", "drills": "drills"},
    "ladder": {"rungs": "ladder", "ladders": "ladders"},
}
"""Command → the keys that tell its documents apart; the first one that is there."""
_OF_RECIPE = "a recipe names its own"
_OF_SITE = "they come from Slurm or the site"
_OF_TRAINER = "a trainer names its own"
_LAUNCH = "a relaunch reads it back, and nobody else"
_FOR_PEOPLE = "they are words for people"
FREE_KEYS: Mapping[str, str] = {
    "changes": "a fix names parameters, options of Slurm and variables of the environment",
    "check:findings[].fixes[].changes.*": "variables of the environment",
    "parameters": _OF_RECIPE,
    "parameter_info": _OF_RECIPE,
    "remedies": _OF_RECIPE,
    "recipes:recipes[].remedies.*": _OF_RECIPE,
    "recipe:recipes[].remedies.*": _OF_RECIPE,
    "run_directory/run:remedies.*": _OF_RECIPE,
    "run_directory/run:ladder.rungs[].set": _OF_RECIPE,
    "ladders:ladders[].rungs[].set": _OF_RECIPE,
    "resources": "options of the scheduler, more with each version",
    "requires": "packages",
    "dataset": _OF_TRAINER,
    "metrics": _OF_TRAINER,
    "categories": "only those that were seen",
    "values": _OF_SITE,
    "blocked": _OF_SITE,
    "times": _FOR_PEOPLE,
    "modules": _FOR_PEOPLE,
    "ticket:job": _FOR_PEOPLE,
    "ticket:environment": _FOR_PEOPLE,
    "ticket:environment.*": _FOR_PEOPLE,
    "config:settings[].value": "a table of the config",
    "run_directory/exit:nodes": "nodes",
    "run_directory/run:environment": _LAUNCH,
    "run_directory/run:launch": _LAUNCH,
    "run_directory/run:launch.*": _LAUNCH,
    "run_directory/run:launch.*.*": _LAUNCH,
}
"""Last key of a path, or a document and a path → why the object's keys are no part of the contract. Its
values are alike."""
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_NOT_FINITE_KIND = "a number that is not finite"
_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    str: "text",
    dict: "an object",
}
_WIDER: Mapping[str, str] = {"a whole number": "a number", _NOT_FINITE_KIND: "text"}
"""Type → the one that includes it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the examples show at one path."""

    kinds: frozenset[str]
    """The types of its values."""
    keys: Mapping[str, Shape]
    required: frozenset[str]
    inner: Shape | None
    """Of a list's elements, or of the values of an object with free keys; None if all are empty."""
    is_free: bool
    words: frozenset[str | int] | None
    """Its closed set of words; of `schema`, the versions that are shown."""
    like: str | None
    """Name and path of the document that has the shape; null fits too if it is shown."""


@cache
def names() -> list[str]:
    """The names of all documents."""
    return sorted(path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in EXAMPLES.rglob("*.json"))


@cache
def document(name: str) -> dict[str, Any]:
    """An example file."""
    found: dict[str, Any] = strict((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return found


@cache
def shape_of(name: str, variant: Any = None) -> Shape:
    """The shape of a document; of lines, of those whose key `by` has the value `variant`. If it has `others`,
    a variant that no example shows has the keys that all variants share."""
    whole = document(name)
    by = whole.get("by")
    examples = [each for each in whole["examples"] if by is None or each.get(by) == variant]
    if not examples and "others" in whole:
        shown = [each for each in whole["examples"] if by in each]
        examples = [
            {key: each[key] for key in shown[0] if all(key in one for one in shown)} for each in shown
        ]
    assert examples, f"{name}: no example has {by} {variant!r}; {_renew(name)}"
    return _shape(name, "", examples)


def _shape(name: str, path: str, values: Sequence[Any]) -> Shape:
    """What these values show, all of them at one path."""
    whole = document(name)
    objects = [each for each in values if isinstance(each, dict)]
    is_free = bool(objects) and bool({path.rpartition(".")[2], f"{name}:{path}"} & FREE_KEYS.keys())
    inner = [value for each in values if isinstance(each, list) for value in each]
    inner += [value for each in objects if is_free for value in each.values()]
    keys = {} if is_free else dict.fromkeys(key for each in objects for key in each)
    words = values if path.rpartition(".")[2] == "schema" else whole.get("words", {}).get(path)
    return Shape(
        kinds=frozenset(map(_kind, values)),
        keys={
            key: _shape(name, f"{path}.{key}".lstrip("."), [each[key] for each in objects if key in each])
            for key in keys
        },
        required=frozenset(key for key in keys if all(key in each for each in objects)),
        inner=_shape(name, f"{path}.*" if is_free else f"{path}[]", inner) if inner else None,
        is_free=is_free,
        words=frozenset(words) if words else None,
        like=whole.get("like", {}).get(path),
    )


def shape_at(like: str) -> Shape:
    """The shape at `NAME`, or at `NAME:PATH`."""
    name, _, path = like.partition(":")
    shape = shape_of(name)
    for part in path.replace("[]", ".[]").split(".") if path else ():
        below = shape.inner if part == "[]" else shape.keys[part]
        assert below is not None, like
        shape = below
    return shape


def misfits(value: Any, shape: Shape, path: str = "$") -> Iterator[str]:
    """The places of a value that no example shows so."""
    if shape.like is not None and not (value is None and "null" in shape.kinds):
        yield from misfits(value, shape_at(shape.like), path)
        return
    kind = _kind(value)
    if not {kind, _WIDER.get(kind)} & shape.kinds:
        yield f"{path} is {kind}, not {' or '.join(sorted(shape.kinds))}: {json.dumps(value)[:100]}"
    elif isinstance(value, str | int) and shape.words is not None and value not in shape.words:
        yield f"{path} is {value!r}, not one of {' '.join(sorted(map(str, shape.words)))}"
    elif isinstance(value, list):
        yield from _misfits_inside(((f"{path}[{i}]", each) for i, each in enumerate(value)), shape.inner)
    elif isinstance(value, dict) and shape.is_free:
        yield from _misfits_inside(((f"{path}.{key}", each) for key, each in value.items()), shape.inner)
    elif isinstance(value, dict):
        yield from (f"{path} has no key {key!r}" for key in sorted(shape.required - value.keys()))
        for key, each in value.items():
            if key in shape.keys:
                yield from misfits(each, shape.keys[key], f"{path}.{key}")
            else:
                yield f"{path} has an unknown key {key!r}: {json.dumps(each)[:100]}"


def _misfits_inside(values: Iterable[tuple[str, Any]], shape: Shape | None) -> Iterator[str]:
    for path, value in values:
        if shape is None:
            yield f"{path}: the examples have nothing in it"
            return
        yield from misfits(value, shape, path)


def _kind(value: Any) -> str:
    return _NOT_FINITE_KIND if isinstance(value, str) and value in _NOT_FINITE else _KINDS[type(value)]


def _renew(name: str) -> str:
    return f"if it is meant, show it in tests/json_examples/{name}.json, then run docs/make_reference.py"


def assert_fits(name: str, value: Any) -> None:
    """Fails with the places that are not as the examples of this document show."""
    whole = document(name)
    variant = value.get(whole["by"]) if "by" in whole and isinstance(value, dict) else None
    shape = shape_of(name, variant)
    if "others" in whole and variant is not None:
        value = {key: each for key, each in value.items() if key in shape.keys}
    found = list(islice(misfits(value, shape), 5))
    assert not found, "\n".join([f"not as the examples of {name}:", *found, _renew(name)])


def check_printed(words: Sequence[str | os.PathLike[str]], printed: str) -> None:
    """The output of `coach WORDS…`, if JSON was requested and printed."""
    line = [os.fspath(word) for word in words]
    own = line[: line.index("--")] if "--" in line else line
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
        for each in printed.splitlines():
            assert_fits("attach", strict(each))
        return
    value = strict(printed)
    assert_fits(name_of(command, own, value), value)
    for run in value.get("runs", ()) if command == "launch" else ():
        check_run_dir(Path(run["run_dir"]))
        check_records(Path(run["run_dir"]))


def check_run_dir(run_dir: Path) -> None:
    """The files of a run that are there."""
    for name in _FILES:
        with contextlib.suppress(OSError):
            text = (run_dir / name).read_text(encoding="utf-8")
            assert_fits(f"{RUN_DIRECTORY}/{Path(name).stem}", strict(text))


def check_records(run_dir: Path) -> list[dict[str, Any]]:
    """The first records of each kind; they are returned."""
    found = []
    for folder in _RECORDS:
        for path in sorted((run_dir / folder).glob("*.jsonl")):
            seen: Counter[Any] = Counter()
            for record in _records(path):
                kind = record.get("kind", record.get("event"))
                seen[kind] += 1
                if seen[kind] <= _MAX_RECORDS:
                    assert_fits(f"{RUN_DIRECTORY}/{folder}", record)
                    found.append(record)
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines: the last one may be torn."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def name_of(command: str, words: Sequence[str], value: Mapping[str, Any]) -> str:
    """The document that this is."""
    by_flag = (name for flag, name in _FLAGS.get(command, {}).items() if flag in words)
    by_key = (name for key, name in _KEYS.get(command, {}).items() if key in value)
    named = next(by_flag, None) or next(by_key, None)
    if named is not None:
        return named
    if command == "recipes" and value["recipes"] and "lesson" in value["recipes"][0]:
        return "recipe"
    below = next((word for word in ("check", "clean") if word in words[1:]), None)
    nested = f"{command}-{below}"
    return nested if nested in names() else command


def strict(text: str) -> Any:
    """JSON as others read it: Python alone knows NaN and Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)
