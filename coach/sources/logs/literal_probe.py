"""Derive cheap checks for the bytes around a literal, to run before a line is decoded and searched.

A log may contain a literal in every line, and patterns are expensive. The pattern implies each check, and the
checks are derived from it, so that a rule states its condition only once. If a pattern is too complex, fewer
checks are made; a check never excludes a line that the pattern matches. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import takewhile
from typing import Any

from coach.model.training.log import Signature

_parser = import_module("re._parser")  # the parser of `re`; it has no type stubs

_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_NOT_WORD": r"\W",
}
_CHARACTERS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_ASCII = "".join(map(chr, range(128))).translate({ord("\n"): None, ord("\r"): None})
_MAX_BYTES_PER_CHAR = 4
_MAX_WIDE = 120
"""A class with more ASCII characters than this matches nearly anything: text behind a repeat of it is not
checked."""
_MAX_BEFORE = 8
"""Largest number of characters before a literal that are checked."""
_MAX_BEFORES = 16
"""Largest number of alternatives for these characters; with more, only the last byte is checked."""
_MAX_FEW = 4
_MAX_PATHS = 256
_MIN_WORD = 3
"""A shorter word occurs in too many lines to exclude any."""
_MAX_WORDS = 24


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A part of a pattern: one character, alternatives, a look-ahead, or anything else."""

    asked: bytes | None
    """The check, as a pattern over bytes; None: neither this piece nor any piece behind it is checked."""
    chars: str = ""
    """The characters that it can be, if there are few."""
    paths: tuple[tuple[_Piece, ...], ...] = ()
    ahead: tuple[_Piece, ...] = ()
    """The pieces of a look-ahead, which begin at the same offset."""
    last: bytes = b""
    """A pattern for its last byte; empty if the piece may match nothing, or if the byte is unknown."""
    is_one_byte: bool = False


_Words = frozenset[bytes]
_NO_WORDS: _Words = frozenset()
_ANYTHING = _Piece(None)
_BEGIN = _Piece(b"")
_PLACES = {"AT_BEGINNING": [_BEGIN], "AT_END": [_Piece(rb"(?![^\r\n])")]}


@dataclass(frozen=True, slots=True)
class Probes:
    """Conditions that a line must meet to match a signature's pattern, as patterns over bytes. A line passes
    if it meets them at one literal at least."""

    behind: dict[str, bytes]
    """Literal → pattern at its end, for the text directly before and behind it. Literals that are not needed
    are left out."""
    begin: bytes = b""
    """Pattern for the beginning of the line, without its prefix."""
    elsewhere: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """Literal → words, for some literals: at least one of the words must occur elsewhere in the line."""


@cache
def probes_of(signature: Signature) -> Probes:
    """Derive the conditions of a signature. They never exclude a line that its pattern matches."""
    behind: dict[str, list[bytes]] = {}
    begins: dict[bytes, dict[bytes, None]] = {}
    elsewhere: dict[str, list[_Words]] = {}
    for path, found in _paths_of(signature):
        first = min(found)[0]
        for at, literal in _needed(path, found):
            behind.setdefault(literal, []).append(_asked_around(path, at, literal))
            elsewhere.setdefault(literal, []).append(_words_apart(path, at, at + len(literal)))
        head, is_whole = _asked(path[:first]) if path[0] is _BEGIN else (b"", False)
        begins.setdefault(head, {})[_asked(path[first : first + 1])[0] if is_whole else b""] = None
    # Paths with the same beginning are checked once.
    is_anything = b"" in begins.get(b"", {})
    begin = (
        b"" if is_anything else b"|".join(head + b"(?:%s)" % b"|".join(then) for head, then in begins.items())
    )
    return Probes(
        {
            literal: b"" if b"" in tails else b"|".join(dict.fromkeys(tails))
            for literal, tails in behind.items()
        },
        begin,
        {literal: tuple(sorted(apart)) for literal, ways in elsewhere.items() if (apart := _any_of(ways))},
    )


def _paths_of(signature: Signature) -> Iterator[tuple[tuple[_Piece, ...], list[tuple[int, str]]]]:
    """The paths through the pattern, each with (index, literal) of the literals on it.

    A path without a literal is split at its alternatives. If no split shows a literal, one may occur anywhere
    in the line: its index is then the end of the path.
    """
    literals = signature.literals
    tree = _parser.parse(signature.pattern)
    paths = [_pieces(tree, bool(tree.state.flags & re.IGNORECASE))]
    for path in paths:
        found = _found(path, literals)
        inner = _divided(path, literals) if not found and len(paths) <= _MAX_PATHS else []
        if inner:
            paths += inner
        else:
            yield path, found or [(len(path), literal) for literal in literals]


def _asked_around(path: tuple[_Piece, ...], at: int, literal: str) -> bytes:
    """A pattern to match at the end of a literal: it checks the text directly before it and behind it."""
    befores = _befores(path[:at]) if at < len(path) else {b""}
    words = re.escape(literal.encode())
    is_such = b"|".join(b"(?<=" + before + words + b")" for before in sorted(befores))
    asked = b"" if b"" in befores else b"(?:" + is_such + b")"
    return asked + _asked(path[at + len(literal) :])[0]


def _divided(path: tuple[_Piece, ...], literals: Sequence[str]) -> list[tuple[_Piece, ...]]:
    """Split a path at one of its pieces, into one path per alternative.

    It is the first piece whose alternatives show a literal, else the first whose alternatives contain one
    further inside. A look-ahead becomes a path of its own, which ends with it.
    """
    divided = [
        (piece.paths, [(*path[:at], *inner, *path[at + 1 :]) for inner in piece.paths])
        for at, piece in enumerate(path)
        if piece.paths
    ]
    ahead = [((piece.ahead,), [(*path[:at], *piece.ahead)]) for at, piece in enumerate(path) if piece.ahead]
    for _, among in divided + ahead:
        if any(_found(way, literals) for way in among):
            return among
    for added, among in divided + ahead:
        if any(_may_show(inner, literals) for inner in added):
            return among
    return divided[0][1] if divided else []


def _may_show(path: Sequence[_Piece], literals: Sequence[str]) -> bool:
    return bool(_found(path, literals)) or any(
        _may_show(inner, literals) for piece in path for inner in (*piece.paths, piece.ahead)
    )


def _found(path: Sequence[_Piece], literals: Iterable[str]) -> list[tuple[int, str]]:
    """(index, literal) for each place of a path at which a literal may stand."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, piece in enumerate(path):
        for char in piece.chars:
            places[char].append(at)
    return [
        (at, literal)
        for literal in literals
        if literal[0] in places
        for at in places[literal[0]]
        if at + len(literal) <= len(path)
        and all(char in path[at + n].chars for n, char in enumerate(literal))
    ]


def _needed(path: Sequence[_Piece], found: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The literals up to the first place at which one of them is certain to occur, whichever characters the
    path takes."""
    for at in sorted({at for at, _ in found}):
        if _is_certain(path[at:], [literal for place, literal in found if place == at]):
            return [(place, literal) for place, literal in found if place <= at]
    return list(found)


def _is_certain(path: Sequence[_Piece], literals: Sequence[str]) -> bool:
    if not all(literals):
        return True
    return bool(literals and path and path[0].chars) and all(
        _is_certain(path[1:], [literal[1:] for literal in literals if literal[0] == char])
        for char in path[0].chars
    )


def _asked(path: Iterable[_Piece]) -> tuple[bytes, bool]:
    """(pattern for a path, True if the pattern checks the whole path)."""
    asked = b""
    for piece in path:
        if piece.asked is None:
            return asked, False
        asked += piece.asked
    return asked, True


def _words_apart(path: Sequence[_Piece], start: int, end: int) -> _Words:
    """Words that must occur in the line beside the literal at this place, outside the text that is checked
    next to it."""
    nearest = takewhile(lambda piece: piece.is_one_byte, reversed(path[max(0, start - _MAX_BEFORE) : start]))
    before = start - len([*nearest]) if start < len(path) else start
    behind = next((at for at in range(end, len(path)) if path[at].asked is None), len(path))
    return max(_words(path[:before]), _words(path[behind:]), key=_worth)


def _words(path: Iterable[_Piece]) -> _Words:
    """The most selective set of words of which every line on this path contains at least one."""
    choices, run = [_NO_WORDS], ""
    for piece in (*path, _ANYTHING):
        if len(piece.chars) == 1:
            run += piece.chars
            continue
        choices.append(frozenset({run.encode()}) if len(run) >= _MIN_WORD else _NO_WORDS)
        ways = [*piece.paths, *([piece.ahead] if piece.ahead else [])]
        choices += [_any_of([_words(inner) for inner in ways])] if ways else []
        run = ""
    return max(choices, key=_worth)


def _any_of(ways: Sequence[_Words]) -> _Words:
    """The words of several alternatives together, without words that contain another one; empty if an
    alternative has no words."""
    words = _NO_WORDS.union(*ways) if all(ways) else _NO_WORDS
    return frozenset(word for word in words if not any(other in word for other in words - {word}))


def _worth(words: _Words) -> tuple[int, int]:
    return (min(map(len, words)), -len(words)) if 0 < len(words) <= _MAX_WORDS else (0, 0)


def _befores(path: Sequence[_Piece], most: int = _MAX_BEFORE) -> set[bytes]:
    """Alternative patterns for the end of a path, over as many bytes as are known individually."""
    if not path or most == 0:
        return {b""}
    *rest, piece = path
    if piece.is_one_byte:
        return {before + piece.last for before in _befores(rest, most - 1)}
    found: set[bytes] = set()
    for inner in piece.paths:
        found |= _befores((*rest, *inner), most)
        if len(found) > _MAX_BEFORES:
            break
    return found if 0 < len(found) <= _MAX_BEFORES else {piece.last}


def _pieces(tree: Iterable[tuple[Any, Any]], is_any_case: bool) -> tuple[_Piece, ...]:
    pieces: list[_Piece] = []
    for operation, said in tree:
        name = str(operation)
        if name == "SUBPATTERN":
            _, added, removed, inner = said
            is_inner = bool(added & re.IGNORECASE) or (is_any_case and not removed & re.IGNORECASE)
            pieces += _pieces(inner, is_inner)
        elif name == "ATOMIC_GROUP":
            pieces += _pieces(said, is_any_case)
        elif name == "BRANCH":
            pieces += _branch(tuple(_pieces(inner, is_any_case) for inner in said[1]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = said
            is_possessive = name == "POSSESSIVE_REPEAT"
            pieces += _repeated(low, int(high), inner, is_any_case, is_possessive)
        elif name == "AT":
            pieces += _PLACES.get(str(said), [])
        elif name in _CHARACTERS:
            pieces.append(_one(*_chars(name, said, is_any_case)))
        elif name in ("ASSERT", "ASSERT_NOT"):
            pieces += _looked_ahead(name, said[1], is_any_case) if said[0] > 0 else []
        else:
            pieces.append(_ANYTHING)
    return tuple(pieces)


def _looked_ahead(name: str, tree: Sequence[tuple[Any, Any]], is_any_case: bool) -> list[_Piece]:
    """Pieces for a look-ahead. A negative one is checked only if it is a single, certain character."""
    if name == "ASSERT":
        ahead = _pieces(tree, is_any_case)
        asked, _ = _asked(ahead)
        return [_Piece(b"(?=" + asked + b")" if asked else b"", ahead=ahead)]
    if len(tree) == 1 and str(tree[0][0]) in _CHARACTERS:
        chars, _ = _chars(str(tree[0][0]), tree[0][1], is_any_case)
        return [_Piece(b"(?!" + _class(chars, False) + b")")] if chars else []
    return []


def _branch(paths: tuple[tuple[_Piece, ...], ...]) -> list[_Piece]:
    asked = [_asked(path) for path in paths]
    lasts = [path[-1].last if path else b"" for path in paths]
    last = b"(?:" + b"|".join(dict.fromkeys(lasts)) + b")" if all(lasts) else b""
    piece = _Piece(b"(?:" + b"|".join(text for text, _ in asked) + b")", paths=paths, last=last)
    return [piece] if all(is_whole for _, is_whole in asked) else [piece, _ANYTHING]


def _repeated(
    low: int, high: int, tree: Sequence[tuple[Any, Any]], is_any_case: bool, is_possessive: bool
) -> list[_Piece]:
    if len(tree) == 1 and str(tree[0][0]) in _CHARACTERS and (low, high) != (0, 1):
        chars, has_others = _chars(str(tree[0][0]), tree[0][1], is_any_case)
        return [_repeated_character(low, high, chars, has_others, is_possessive)]
    inner = _pieces(tree, is_any_case)
    if (low, high) == (0, 1):
        return _branch((inner, ()))
    asked, is_whole = _asked(inner)
    if is_whole:
        bounds = _bounds(low, high, _MAX_BYTES_PER_CHAR)
        return [_Piece(b"(?:" + asked + b")" + bounds, last=inner[-1].last if inner and low else b"")]
    return [_Piece(asked), _ANYTHING] if low else [_ANYTHING]


def _repeated_character(low: int, high: int, chars: str, has_others: bool, is_possessive: bool) -> _Piece:
    one = _class(chars, has_others)
    last = one if low else b""
    if len(chars) > _MAX_WIDE:
        return _Piece(None, last=last)
    if is_possessive and low <= 1 and chars:
        return _Piece(_run(chars, has_others, low, high), last=last)
    return _Piece(one + _bounds(low, high, _MAX_BYTES_PER_CHAR), last=last)


def _run(chars: str, has_others: bool, low: int, high: int) -> bytes:
    """A possessive repeat.

    The check is possessive only for ASCII characters: only for these is it certain whether the pattern takes
    them.
    """
    certain = _class(chars, False) + _bounds(low, high, 1) + b"+"
    if not has_others:
        return certain
    others = rb"[\x80-\xff]" + _class(chars, True) + _bounds(0, high, _MAX_BYTES_PER_CHAR)
    either = certain + b"(?:" + others + b")?"
    return b"(?:" + either + b"|" + others + b")" if low else either


def _bounds(low: int, high: int, num_bytes: int) -> bytes:
    return b"{%d,%s}" % (low, b"" if high == int(_parser.MAXREPEAT) else b"%d" % (high * num_bytes))


@cache
def _one(chars: str, has_others: bool) -> _Piece:
    one = _class(chars, has_others)
    several = b"{1,%d}" % _MAX_BYTES_PER_CHAR if has_others else b""
    few = chars if len(chars) <= _MAX_FEW and not has_others else ""
    return _Piece(one + several, few, last=one, is_one_byte=not has_others)


def _chars(name: str, said: Any, is_any_case: bool) -> tuple[str, bool]:
    """(the ASCII characters that match, True if other characters may match)."""
    if name == "ANY":
        return _ASCII, True
    return _chars_of(tuple(said) if name == "IN" else ((name, said),), is_any_case)


@cache
def _chars_of(items: tuple[tuple[Any, Any], ...], is_any_case: bool) -> tuple[str, bool]:
    names = [str(item) for item, _ in items]
    is_negated = names[0] in ("NEGATE", "NOT_LITERAL")
    taken = set().union(*map(_taken, items))
    if is_any_case:
        taken |= {other for char in taken for other in (char.lower(), char.upper())}
    chars = "".join(char for char in _ASCII if (char in taken) != is_negated)
    has_others = is_negated or any(
        ord(_last(item)) > 127 if str(item[0]) in ("LITERAL", "RANGE") else True for item in items
    )
    return chars, has_others


def _last(item: tuple[Any, Any]) -> str:
    return chr(item[1][1] if str(item[0]) == "RANGE" else item[1])


def _taken(item: tuple[Any, Any]) -> set[str]:
    name, said = str(item[0]), item[1]
    if name == "NEGATE":
        return set()
    if name == "CATEGORY":
        return set(re.findall(_CATEGORIES[str(said)], _ASCII))
    first, last = said if name == "RANGE" else (said, said)
    return set(map(chr, range(first, min(last, 127) + 1))).intersection(_ASCII)


def _class(chars: str, has_others: bool) -> bytes:
    if len(chars) == 1 and not has_others:
        return re.escape(chars).encode()
    inner = re.escape(chars).encode()
    return b"[" + inner + (rb"\x80-\xff" if has_others else b"") + b"]"
