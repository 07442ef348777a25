"""Reads the values of a YAML, JSON or TOML config file, each with its position in the text, and changes them.
Pure.

A change replaces only the characters of one value, so comments, order and spelling of the rest stay. The new
text is read again before it is used: it must hold the requested values, and all others unchanged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from coach.late import LateModule
from coach.launch.own_arguments import is_finite, spelt_like
from coach.launch.parameters import show
from coach.model.launching.launch import Scalar
from coach.model.toml_text import parse_toml

if TYPE_CHECKING:
    import yaml
else:
    yaml = LateModule("yaml")

MAX_BYTES = 64 << 10
"""A longer file holds data. PyYAML reads about 200 KB each second."""
_MAX_DEPTH = 100
"""The most nested brackets allowed in YAML: PyYAML checks all open brackets at each word, and 300 took 1.4 s.
"""
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
Path = tuple[str | int, ...]
"""Keys from the top of the file down to a value; a number is an index in a list."""
_INT = re.compile(r"[+-]?(?:0|[1-9]\d{0,17})", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TAG = "tag:yaml.org,2002:"
_BRACKETS = re.compile(r"[\[\]{}]")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_HEADER = re.compile(r"\s*\[(?P<path>[^\[\]]+)\]\s*(?:#.*)?", re.ASCII)
_KEY = r"(?:[A-Za-z0-9_-]+|\"[^\"\\\n]*\"|'[^'\n]*')"
_KEYS = re.compile(_KEY)
_ENTRY = re.compile(
    rf"\s*(?P<path>{_KEY}(?:\s*\.\s*{_KEY})*)\s*=\s*"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s#\"'\[{][^\s#]*)\s*(?:#.*)?"
)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One value of a config file."""

    path: Path
    value: Scalar
    start: int
    end: int
    """The value lies at `start:end` in the text, quotes included."""

    @property
    def name(self) -> str:
        """The keys joined by dots: `optim.lr`."""
        return ".".join(map(str, self.path))


def read_values(text: str, suffix: str) -> tuple[ConfigValue, ...]:
    """The values in the order of the text. Left out are keys that occur twice, values used in several places
    (a YAML anchor), and numbers that are not finite.

    Raises ValueError for text that is not in the suffix's format, or is not a mapping.
    """
    try:
        found = list({".json": _json_values, ".toml": _toml_values}.get(suffix, _yaml_values)(text))
    except (yaml.YAMLError, RecursionError, IndexError) as error:
        raise ValueError(str(error)) from None
    times = Counter(each.path for each in found)
    return tuple(each for each in found if times[each.path] == 1 and is_finite(each.value))


def with_changes(text: str, suffix: str, changes: Mapping[Path, Scalar]) -> str:
    """The text with new values. Raises ValueError if the new text would not be read back as these values."""
    before = read_values(text, suffix)
    wanted = {each.path: each.value for each in before}
    changed = text
    for each in sorted(before, key=lambda value: value.start, reverse=True):
        if each.path in changes:
            old = text[each.start : each.end]
            new, wanted[each.path] = _spelt(old, changes[each.path], suffix)
            changed = changed[: each.start] + new + changed[each.end :]
    missing = [".".join(map(str, path)) for path in changes if path not in wanted]
    after = {each.path: each.value for each in read_values(changed, suffix)}
    if missing or after != wanted:
        raise ValueError(f"{', '.join(missing) or 'the value'} cannot be changed in its place")
    return changed


def _spelt(old: str, value: Scalar, suffix: str) -> tuple[str, Scalar]:
    """The new value spelt in the file's format, in the quotes of the old one, and the value as it is then
    read."""
    quote = old[0] if old[0] in "\"'" else ""
    if isinstance(value, bool):
        return show(value), value
    if isinstance(value, int | float):
        text = repr(value)
        if "e" in text and "." not in text:
            text = text.replace("e", ".0e")  # YAML 1.1 reads 5e-05 as text
        return (f"{quote}{text}{quote}", text) if quote else (text, value)
    text = spelt_like(old.strip("\"'"), value)
    if quote == "'" and "'" not in text:
        return f"'{text}'", text
    is_plain = suffix not in (".json", ".toml") and not quote and _is_plain_yaml(text)
    return (text if is_plain else json.dumps(text)), text


def _is_plain_yaml(text: str) -> bool:
    try:
        node = yaml.compose(f"a: {text}", Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return False
    held = node.value[0][1] if isinstance(node, yaml.MappingNode) else None
    return isinstance(held, yaml.ScalarNode) and held.tag == f"{_TAG}str" and held.value == text


def _yaml_values(text: str) -> Iterator[ConfigValue]:
    if _depth(text) > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} brackets within each other")
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(top, yaml.MappingNode):
        raise ValueError("no mapping")
    uses: Counter[int] = Counter()
    waiting: list[tuple[Path, yaml.Node, tuple[int, ...]]] = [((), top, ())]
    found: list[tuple[ConfigValue, tuple[int, ...]]] = []
    while waiting:
        path, node, above = waiting.pop()
        above = (*above, id(node))
        uses[id(node)] += 1
        if uses[id(node)] > 1:
            continue
        if isinstance(node, yaml.ScalarNode):
            value = _yaml_scalar(node)
            if value is not None:
                span = node.start_mark.index, node.end_mark.index
                found.append((ConfigValue(path, value, *span), above))
        elif isinstance(node, yaml.MappingNode):
            for key, held in node.value:
                waiting.append(((*path, str(key.value)), held, above))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [((*path, index), held, above) for index, held in enumerate(node.value)]
    for each, above in sorted(found, key=lambda entry: entry[0].start):
        if all(uses[node] == 1 for node in above):
            yield each


def _depth(text: str) -> int:
    """The most brackets that are open at once. Brackets in strings and comments are counted too."""
    return max(accumulate(1 if each in "[{" else -1 for each in _BRACKETS.findall(text)), default=0)


def _yaml_scalar(node: yaml.ScalarNode) -> Scalar | None:
    """The value, or None if a parameter cannot have its type or its spelling cannot be kept."""
    text = node.value
    if node.style in ('"', "'") or (node.style is None and node.tag == f"{_TAG}str"):
        is_number = node.style is None and _FLOAT.fullmatch(text)
        return float(text) if is_number else str(text)  # YAML 1.1 reads 1e-4 as text; people mean a number
    if node.style is None and node.tag == f"{_TAG}int":
        return int(text) if _INT.fullmatch(text) else None
    if node.style is None and node.tag == f"{_TAG}float":
        return float(text) if _FLOAT.fullmatch(text) else None
    if node.style is None and node.tag == f"{_TAG}bool":
        return text.lower() in ("true", "yes", "on")
    return None


def _json_values(text: str) -> Iterator[ConfigValue]:
    if not isinstance(json.loads(text), dict):
        raise ValueError("no mapping")
    found: list[ConfigValue] = []
    _json_at(text, 0, (), found)
    yield from found


def _json_at(text: str, index: int, path: Path, found: list[ConfigValue]) -> int:
    """Record the values at `index`, after any blanks, and return where they end. The text must be valid
    JSON."""
    index = _behind_blanks(text, index)
    if text[index] not in "{[":
        value, end = _DECODER.raw_decode(text, index)
        if isinstance(value, str | int | float):
            found.append(ConfigValue(path, value, index, end))
        return end
    is_mapping, number = text[index] == "{", 0
    index = _behind_blanks(text, index + 1)
    while text[index] not in "}]":
        key: str | int = number
        if is_mapping:
            key, index = _DECODER.raw_decode(text, index)
            index = _behind_blanks(text, index) + 1
        index = _behind_blanks(text, _json_at(text, index, (*path, key), found))
        if text[index] == ",":
            index = _behind_blanks(text, index + 1)
        number += 1
    return index + 1


def _behind_blanks(text: str, index: int) -> int:
    blanks = _SPACE.match(text, index)
    return blanks.end() if blanks is not None else index


def _toml_values(text: str) -> Iterator[ConfigValue]:
    """The entries that have a line of their own. An entry that tomllib reads differently is left out."""
    table = parse_toml(text)
    here: tuple[str, ...] | None = ()
    place = 0
    for line in text.split("\n"):
        header, entry = _HEADER.fullmatch(line), _ENTRY.fullmatch(line)
        if header is not None:
            here = _toml_path(header["path"])
        elif line.lstrip().startswith("[["):
            here = None
        elif entry is not None and here is not None:
            path = (*here, *_toml_path(entry["path"]))
            value = _at(table, path)
            if isinstance(value, str | int | float) and _says(entry["value"], value):
                yield ConfigValue(path, value, place + entry.start("value"), place + entry.end("value"))
        place += len(line) + 1


def _toml_path(text: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in _KEYS.findall(text))


def _at(table: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _says(text: str, value: Scalar) -> bool:
    try:
        return bool(parse_toml(f"a = {text}")["a"] == value)
    except ValueError:
        return False
