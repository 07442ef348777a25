"""Read the TOML that people write by a schema: the values of a table, and one error for each mistake in it.

A schema names the keys of a table, the kind of each value and its meaning; the reference shows the same
words. An error names the file, the line and the key, and says what is wrong and what would be right. All
readers of recipes, project files, workshop plans and configs share this module, so that their errors have
one form. Pure: callers read the files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from coach.model.errors import UserError
from coach.model.toml_lines import key_lines
from coach.model.toml_text import parse_toml, quoted

_SYNTAX_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")


class WrongValueError(Exception):
    """A key cannot have this value. The message says what is wrong, or what would be right."""

    def __init__(self, words: str, hint: str | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a key may have."""

    takes: str
    """The valid values, in words that follow "expected"."""
    read: Callable[[Any], Any]
    """TOML value → value for the program. Raises WrongValueError, or the UserError of a format's parser."""
    write: Callable[[Any], Any] | None = None
    """Value for the program → value as a person writes it; None if it stays as it is."""

    def __call__(self, value: Any) -> Any:
        return self.read(value)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a table may have, described for its author."""

    kind: Kind
    says: str
    """The key's meaning, in one sentence."""
    is_needed: bool = False
    default: Any = None

    @property
    def takes(self) -> str:
        return self.kind.takes


Schema = Mapping[str, Key]


def typed(takes: str, *types: type) -> Kind:
    """A value of one of these types. True and False are no numbers."""

    def read(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise WrongValueError(f"expected {takes}")
        return value

    return Kind(takes, read)


STRING = typed("text", str)
FLAG = typed("true or false", bool)
NUMBER = typed("a number", int, float)
COUNT = typed("a whole number", int)
TABLE = typed("a table", dict)


def _first_version(value: Any) -> int:
    if value != 1:
        raise WrongValueError("this coach reads schema 1")
    return 1


FIRST_VERSION = Kind("1", _first_version)
"""The version of a format that has had one."""


def fulfilling(kind: Kind, is_right: Callable[[Any], bool], takes: str) -> Kind:
    """The values of a kind for which `is_right` holds."""

    def read(value: Any) -> Any:
        try:
            found = kind(value)
        except WrongValueError:
            raise WrongValueError(f"expected {takes}") from None
        if not is_right(found):
            raise WrongValueError(f"expected {takes}")
        return found

    return Kind(takes, read)


def matching(pattern: re.Pattern[str], takes: str) -> Kind:
    """Text that a pattern matches as a whole."""
    return fulfilling(STRING, lambda text: pattern.fullmatch(text) is not None, takes)


def one_of(choices: Iterable[str], takes: str | None = None) -> Kind:
    known = tuple(choices)
    return fulfilling(STRING, lambda text: text in known, takes or f"one of {', '.join(known)}")


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number within limits, both included."""
    limits = f", at least {least}" if most is None else f" from {least} to {most}"
    return fulfilling(
        COUNT, lambda number: least <= number and (most is None or number <= most), f"a whole number{limits}"
    )


def list_of(kind: Kind, takes: str | None = None) -> Kind:
    """A list of values of a kind, as a tuple. An error tells what is wrong with a value, or with `takes` only
    what would be right."""

    words = takes or f"a list; each: {kind.takes}"

    def read(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            raise WrongValueError(f"expected {words}")
        try:
            return tuple(map(kind, values))
        except WrongValueError as wrong:
            raise WrongValueError(f"expected {takes}") if takes else wrong from None

    return Kind(words, read)


def spelt(takes: str, parse: Callable[[str, str], Any], kind: Kind = STRING) -> Kind:
    """Text in a format with its own parser, which gets the text and an empty name for its error."""
    return Kind(takes, lambda value: parse(kind(value), ""))


def checked(name: str, kind: Kind, value: Any, place: str) -> Any:
    """The value of the key `name` for the program. Raises UserError that begins with the place."""
    try:
        return kind(value)
    except WrongValueError as wrong:
        words, hint = wrong.words, wrong.hint
    except UserError as wrong:  # from a format's parser: ` 'VALUE': words`, and what would be right
        words, hint = wrong.message.partition(f"{value!r}: ")[2] or wrong.message, wrong.hint
    raise UserError(f"{place}: {name} = {quoted(value)}: {words}", hint)


def parsed(path: Path, text: str) -> dict[str, Any]:
    """The text as nested tables. Raises UserError with the line if it is not TOML."""
    try:
        return parse_toml(text)
    except ValueError as error:  # also for an integer of 5,000 digits, which raises no TOMLDecodeError
        words = str(error)
        place = _SYNTAX_PLACE.search(words)
        where = f"{path}:{place[1] if place else len(text.splitlines())}"
        raise UserError(f"{where}: not valid TOML: {_SYNTAX_PLACE.sub('', words)}") from None
    except RecursionError:
        raise UserError(f"{path}: not valid TOML: nested too deeply") from None


class TableReader(ABC):
    """Checks tables by their schemas. A dotted key names its tables too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def at(self, dotted: str) -> str:
        """The place of a key in its file, for an error: FILE:LINE."""

    def error(self, dotted: str, problem: str, hint: str | None = None) -> UserError:
        return UserError(f"{self.at(dotted)}: {problem}", hint)

    def check(self, dotted: str, kind: Kind, value: Any) -> Any:
        """The value of a key. Raises UserError; only then is the key's place searched."""
        try:
            return kind(value)
        except (WrongValueError, UserError):
            return checked(dotted, kind, value, self.at(dotted))

    def read(
        self, where: str, table: Mapping[str, Any], schema: Schema
    ) -> tuple[dict[str, Any], list[UserError]]:
        """The table's values, with the defaults of absent keys, and an error for each mistake. `where` is the
        dotted name of the table, empty for the whole file."""
        values: dict[str, Any] = {}
        problems = self.unknown_keys(where, table, schema)
        for name, key in schema.items():
            dotted = _dotted(where, name)
            if name in table:
                try:
                    values[name] = self.check(dotted, key.kind, table[name])
                except UserError as problem:
                    problems.append(problem)
            elif key.is_needed:
                problems.append(self.error(where, f"the key {dotted} is missing: expected {key.takes}"))
            else:
                values[name] = key.default
        return values, problems

    def values(self, where: str, table: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """The table's values. Raises one UserError that lists all mistakes."""
        values, problems = self.read(where, table, schema)
        refuse(problems)
        return values

    def unknown_keys(self, where: str, table: Iterable[str], known: Iterable[str]) -> list[UserError]:
        """An error for each key of the table that does not exist."""
        problems, known = [], tuple(known)
        for name in table:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
                dotted = _dotted(where, name)
                problems.append(self.error(dotted, f"unknown key {dotted}", hint))
        return problems


class TomlFile(TableReader):
    """The tables of one TOML file. Raises UserError with the line if the text is not TOML."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(path)
        self.table = parsed(path, text)
        self._text = text

    @cached_property
    def _lines(self) -> Mapping[str, int]:
        lines: dict[str, int] = {}
        for parts, line in key_lines(self._text).items():
            lines.setdefault(".".join(parts), line)
        return lines

    def at(self, dotted: str) -> str:
        """FILE:LINE of a key, or of the nearest table around it; only the file if it has neither."""
        while dotted:
            if (line := self._lines.get(dotted)) is not None:
                return f"{self.path}:{line}"
            dotted = dotted.rpartition(".")[0]
        return str(self.path)


def refuse(problems: list[UserError]) -> None:
    """Raise the first of the mistakes, which lists the others below it."""
    if problems:
        first, *more = problems
        others = tuple(f"{each}; {each.hint}" if each.hint else str(each) for each in more)
        raise UserError(first.message, first.hint, diff=(*first.diff, *others))


def _dotted(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
