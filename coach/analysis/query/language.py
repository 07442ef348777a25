"""The filter language: compile a filter such as `state:pending gpu:>0 text` once into tests of a row.

Sorting and columns use the names of the filter's fields. A vocabulary is one table of fields. Parser, help,
screens and docs are made from it, so they cannot disagree.
The fields are in `job_fields.py` and `node_fields.py`; values are parsed in `kinds.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar, cast

from coach.analysis.query.kinds import Kind
from coach.model.errors import UserError

R = TypeVar("R")
T = TypeVar("T")

_WORD = re.compile(r'(?:"[^"]*"?|[^\s"])+')
_KEYED = re.compile(r"([A-Za-z_]+):(.*)", re.DOTALL)
_COMMA = re.compile(r",(?![^\[]{0,1000}\])")
"""A comma outside a node set."""


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One field of a row: a filter key, a column, and a sort key."""

    name: str
    attribute: str
    """Its name in JSON."""
    title: str
    """The title of its column."""
    about: str
    kind: Kind
    value: Callable[[T], Any]
    """Returns the field's value of a row; None if not known. Only a negated word matches None. None sorts
    last in either direction."""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """One parsed word of a filter. `key` is the name of a field; None for plain text."""

    key: str | None
    values: tuple[str, ...]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A compiled filter. A row matches if all words match."""

    text: str
    words: tuple[Word, ...]
    tests: tuple[Callable[[T], bool], ...]

    def matching(self, rows: Iterable[T]) -> list[T]:
        found = list(rows)
        for test in self.tests:
            found = [row for row in found if test(row)]
        return found


@dataclass(frozen=True, slots=True)
class Order(Generic[T]):
    """Sort by one field, ascending unless it is reversed."""

    field: Field[T]
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary(Generic[T]):
    """All fields of one kind of row."""

    fields: tuple[Field[T], ...]
    text: Callable[[T], str]
    """Returns the text of a row that is searched for words without a key."""

    def query(self, text: str) -> Query[T]:
        """Compile a filter. For a wrong word, raise a UserError with the word and the correct form."""
        words, tests = [], []
        plain: list[tuple[str, bool]] = []
        for raw in _WORD.findall(text):
            is_negated = raw[0] in "-!" and len(raw) > 1
            body = raw[1:] if is_negated else raw
            keyed = _KEYED.fullmatch(body)
            if keyed is None:
                said = _unquoted(body).lower()
                words.append(Word(None, (said,), is_negated))
                plain.append((said, is_negated))
                continue
            field = self._field_of_word(raw, keyed[1])
            values = tuple(_unquoted(value) for value in _COMMA.split(keyed[2]))
            words.append(Word(field.name, values, is_negated))
            tests.append(_keyed_test(raw, field, values, is_negated))
        if plain:
            tests.append(_plain_test(self.text, tuple(plain)))
        return Query(text, tuple(words), tuple(tests))

    def orders(self, text: str) -> tuple[Order[T], ...]:
        """Parse a sort order. `-gpu,user` sorts by GPUs, most first, and then by user."""
        return tuple(
            Order(self._named("sort", name.lstrip("-")), name.startswith("-")) for name in _names(text)
        )

    def columns(self, text: str) -> tuple[Field[T], ...]:
        """Parse a list of columns, such as `id,user,gpu`. A repeated column counts once."""
        return tuple(dict.fromkeys(self._named("columns", name) for name in _names(text)))

    def field(self, name: str) -> Field[T] | None:
        """A field by its name or an alias."""
        wanted = name.lower()
        return next((each for each in self.fields if wanted in (each.name, *each.aliases)), None)

    def _field_of_word(self, word: str, key: str) -> Field[T]:
        field = self.field(key)
        if field is not None and field.kind.read is not None:
            return field
        if field is not None:
            raise UserError(f"filter: {word}: {field.name} is a column, not a filter key")
        keys = {
            name: each.name for each in self.fields if each.kind.read for name in (each.name, *each.aliases)
        }
        hint = f"keys: {' '.join(sorted(set(keys.values())))}"
        raise UserError(f'filter: {word}: no key "{key}"{_did_you_mean(key, keys, ":")}', hint)

    def _named(self, what: str, name: str) -> Field[T]:
        field = self.field(name)
        if field is None:
            names = {name: each.name for each in self.fields for name in (each.name, *each.aliases)}
            hint = f"names: {' '.join(each.name for each in self.fields)}"
            raise UserError(f'{what}: no field "{name}"{_did_you_mean(name, names, "")}', hint)
        return field

    def help_lines(self) -> list[str]:
        """One line for each field: its names, its meaning, and an example of a value."""
        names = [", ".join((each.name, *each.aliases)) for each in self.fields]
        width = max(map(len, names))
        return [
            f"  {name:<{width}}  {each.about}"
            + (f": {each.kind.example}" if each.kind.read else " (no filter)")
            for name, each in zip(names, self.fields, strict=True)
        ]


def in_order(rows: Iterable[R], orders: Iterable[Order[T]], of: Callable[[R], T] | None = None) -> list[R]:
    """Sort by the first order, then by the next. Equal rows keep their order. Unknown values come last in
    either direction.

    Without `of`, the orders read their fields from the row; with it, from `of(row)`.
    """
    ordered = list(rows)
    for order in reversed(tuple(orders)):
        field, rank = order.field, order.field.kind.rank
        values = list(map(field.value, cast(Iterable[T], ordered) if of is None else map(of, ordered)))
        if rank is not None:
            values = [None if value is None else rank(value) for value in values]
        known = [place for place, value in enumerate(values) if value is not None]
        unknown = [row for row, value in zip(ordered, values, strict=True) if value is None]
        known.sort(key=values.__getitem__, reverse=order.is_reversed)
        ordered = [*map(ordered.__getitem__, known), *unknown]
    return ordered


def _keyed_test(word: str, field: Field[T], values: tuple[str, ...], is_negated: bool) -> Callable[[T], bool]:
    assert field.kind.read is not None
    try:
        wanted = [field.kind.read(value) for value in values]
    except ValueError as problem:
        meant = f"{problem}; " if str(problem) else ""
        raise UserError(f"filter: {word}: {meant}expected {field.kind.example}") from None
    value = field.value
    if len(wanted) == 1:
        is_wanted = wanted[0]
        if is_negated:
            return lambda row: not is_wanted(value(row))
        return lambda row: is_wanted(value(row))
    return lambda row: any(is_wanted(value(row)) for is_wanted in wanted) is not is_negated


def _plain_test(text: Callable[[T], str], words: tuple[tuple[str, bool], ...]) -> Callable[[T], bool]:
    if len(words) == 1 and not words[0][1]:
        wanted = words[0][0]
        return lambda row: wanted in text(row).lower()

    def test(row: T) -> bool:
        said = text(row).lower()
        return all((word in said) is not is_negated for word, is_negated in words)

    return test


def _unquoted(text: str) -> str:
    return text.replace('"', "")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _did_you_mean(name: str, known: dict[str, str], after: str) -> str:
    """A suggestion for a misspelt name. `known` maps each accepted name to the name to suggest."""
    close = get_close_matches(name.lower(), known, 1, 0.6)
    return f"; did you mean {known[close[0]]}{after}?" if close else ""
