"""Choose the lines of a log that are worth decoding.

These lines contain a literal of a signature, and no line of the same kind was searched without success.

Most lines of a log differ only in their digits. Lines that differ in nothing else are one kind, and each kind
is checked once. If nearly every line is a new kind, each literal is checked together with the text behind it.
The filter never changes the result: without it, the scanner would find the same hits. Pure: bytes in, offsets
out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, count
from operator import add, itemgetter

from ahocorasick_rs import BytesAhoCorasick, Implementation

from coach.model.training.log import Signature
from coach.sources.logs.line_places import (
    KIND,
    Asked,
    Block,
    EndsOfLiteral,
    LinesOfKinds,
    LinesWithLiterals,
    LiteralAlone,
    Probe,
    Search,
)
from coach.sources.logs.line_text import MAX_PREFIXES, PREFIX
from coach.sources.logs.literal_probe import probes_of

_MAX_KNOWN_BYTES = 16 << 20
_BYTES_PER_KIND = 200
"""Memory of one kind in Python, in addition to its text."""

_MANY_LINES = 4096
_MAX_NEW_SHARE = 1 / 8
"""If a larger share of many lines are new kinds, learning the kinds does not pay."""
_NUM_STRANGE = 12
"""Number of later pieces for which kinds are not tried again."""

_OFTEN = 8192
"""A literal with more occurrences is searched separately, together with the text that must follow it."""

_SAMPLE = 4096
"""Number of found literals that are sampled to find the frequent ones."""

_DIGITS = b"0123456789"
_NOTHING: frozenset[int] = frozenset()
_PREFIX = PREFIX.pattern.replace(r"\w", r"\w\x80-\xff")
_PREFIXES = f"(?:{_PREFIX}){{0,{MAX_PREFIXES}}}"
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NO_DIGIT_MEANT = re.compile(r"(?<!\\)\{\d*,?\d*\}|\(\?P<\w+>|\\u(?!00)[0-9a-fA-F]{4}")
_DIGIT_MEANT = re.compile(r"[0-9]|\(\?P=")


def is_digit_blind(pattern: str) -> bool:
    """True if a pattern treats all digits alike: it names no digit and has no back-reference."""
    words = _CLASS.sub(lambda found: found[0].replace("0-9", ""), pattern)
    return not _DIGIT_MEANT.search(_NO_DIGIT_MEANT.sub("", words))


@lru_cache(maxsize=4)
class _Wanted:
    """Lookup tables of all signatures. They take tens of milliseconds to make, so all logs share them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.blind = frozenset(
            index
            for index, signature in enumerate(signatures)
            if is_digit_blind(signature.pattern + (signature.unless or ""))
            and not _DIGIT_MEANT.search("".join(signature.literals))
        )
        self.by_literal: dict[bytes, frozenset[int]] = {}
        self.by_kind: dict[bytes, frozenset[int]] = {}
        self.by_text: dict[bytes, frozenset[int]] = {}
        for index, signature in enumerate(signatures):
            for literal in map(str.encode, signature.literals):
                for wanted in (self.by_kind if index in self.blind else self.by_text, self.by_literal):
                    wanted[literal] = wanted.get(literal, _NOTHING) | {index}
        self.literals = [literal for literal in self.by_literal if literal.strip(_DIGITS)]
        kinds = [literal.translate(KIND) for literal in self.literals]
        self.automaton = BytesAhoCorasick(kinds, implementation=Implementation.DFA)


class LineFilter:
    """Remembers the kinds of lines of one log: lines of one kind differ only in digits.

    `prefix` is the pattern of the text before nearly all lines of the log, without prefixes of launchers.
    """

    def __init__(self, signatures: Sequence[Signature], prefix: str = "") -> None:
        self._signatures = signatures
        self._prefix = prefix
        self._wanted = _Wanted(tuple(signatures))
        self._all = _Probes(signatures, self._wanted.by_literal, prefix)
        # A literal of digits cannot be found in a kind, where all digits are 0. It is searched in the lines.
        self._seen = {literal for literal in self._wanted.by_text if not literal.strip(_DIGITS)}
        self._in_text = self._probes_of_seen()
        self._num_strange = 0
        self._known: dict[bytes, frozenset[int]] = {}
        self.num_known_bytes = 0

    def _probes_of_seen(self) -> _Probes:
        wanted = {literal: self._wanted.by_text[literal] for literal in sorted(self._seen)}
        return _Probes(self._signatures, wanted, self._prefix)

    def look_at(self, text: bytes) -> Block:
        """The lines of this text, with the lines to search for each signature."""
        block = Block(text)
        if self._num_strange:
            self._num_strange -= 1
            self._all.look_at(block)
            return block
        if self.num_known_bytes > _MAX_KNOWN_BYTES:
            self._known, self.num_known_bytes = {}, 0
        kinds, known = text.translate(KIND).split(b"\n"), self._known
        wanted = [*map(known.get, kinds)]
        if None in wanted:
            new = {kind for kind, indices in zip(kinds, wanted, strict=True) if indices is None}
            if len(new) > max(_MANY_LINES, _MAX_NEW_SHARE * len(kinds)):
                self._num_strange = _NUM_STRANGE
                self._all.look_at(block)
                return block
            self._learn(list(new))
            wanted = [*map(known.__getitem__, kinds)]
        block.is_by_kind = True
        said = set(filter(None, wanted))
        for index in frozenset().union(*said):
            chosen = {indices for indices in said if index in indices}
            block.places[index] = LinesOfKinds(kinds, wanted, chosen)
        self._in_text.look_at(block)
        return block

    def turn_down(self, kind: bytes, index: int) -> None:
        """Remember that a line of this kind did not match a signature."""
        if index in self._known.get(kind, _NOTHING):
            self._known[kind] -= {index}

    def is_turned_down(self, kind: bytes, index: int) -> bool:
        return kind in self._known and index in self._wanted.blind and index not in self._known[kind]

    def _learn(self, kinds: list[bytes]) -> None:
        joined = b"\n".join(kinds)
        self.num_known_bytes += len(joined) + _BYTES_PER_KIND * len(kinds)
        known, ends = self._known, _ends(kinds)
        literals, by_kind, by_text = self._wanted.literals, self._wanted.by_kind, self._wanted.by_text
        known.update(dict.fromkeys(kinds, _NOTHING))
        seen: set[bytes] = set()
        for number, begin, _ in self._wanted.automaton.find_matches_as_indexes(joined, overlapping=True):
            literal = literals[number]
            if literal in by_text:
                seen.add(literal)
            if literal in by_kind:
                known[kinds[bisect_right(ends, begin)]] |= by_kind[literal]
        if not seen <= self._seen:
            self._seen |= seen
            self._in_text = self._probes_of_seen()


class _Probes(dict[int, Probe | None]):
    """Number of a literal → check of the text behind it; None: any text will do.

    An entry is made when its literal is first found.
    """

    def __init__(
        self, signatures: Sequence[Signature], wanted: Mapping[bytes, frozenset[int]], prefix: str
    ) -> None:
        super().__init__()
        self._signatures = signatures
        self._before = f"(?>(?:{prefix})?{_PREFIXES})".encode()
        self._wanted = wanted
        self._literals = list(wanted)
        self._begins: dict[int, Probe] = {}
        self._one_by_one: dict[int, list[tuple[int, Asked]]] = {}
        self._often: dict[int, list[LiteralAlone]] = {}

    @cached_property
    def _automaton(self) -> BytesAhoCorasick:
        """Finds all literals except those that are searched separately: their entries begin with a zero byte,
        which no log contains."""
        literals = [
            b"\0" * (number in self._often) + literal for number, literal in enumerate(self._literals)
        ]
        return BytesAhoCorasick(literals, implementation=Implementation.DFA)

    def look_at(self, block: Block) -> None:
        """Add the lines to search to a block."""
        if not self._literals:
            return
        text = block.lines.text
        found: dict[int, list[tuple[Asked, Reversible[int]]]] = defaultdict(list)
        met = self._automaton.find_matches_as_indexes(text, overlapping=True)
        for number, ends in self._passed(text, met).items():
            for index, asked in self._one_by_one[number]:
                found[index].append((asked, ends))
        for alone in chain(*self._often.values()):
            found[alone.signature].append((alone.asked, EndsOfLiteral(text, alone)))
        for index, among in found.items():
            block.places[index] = LinesWithLiterals(block.lines, among)
        self._choose_often(text, met)

    def _passed(self, text: bytes, met: Iterable[tuple[int, int, int]]) -> dict[int, list[int]]:
        """Number of a literal → offsets of its ends at which the text behind it fits some signature."""
        passed: dict[int, list[int]] = defaultdict(list)
        for number, _, end in met:
            may_go_on = self[number]
            if may_go_on is None or may_go_on(text, end):
                passed[number].append(end)
        return passed

    def _choose_often(self, text: bytes, met: Sequence[tuple[int, int, int]]) -> None:
        """Choose the literals that are likely to be frequent in the next piece of this log."""
        often = {number for number in self._often if text.count(self._literals[number]) > _OFTEN}
        if len(met) > _OFTEN:
            step = 1 + len(met) // _SAMPLE
            counts = Counter(map(itemgetter(0), met[::step]))
            often |= {
                number for number, times in counts.items() if times * step > _OFTEN and self._is_apart(number)
            }
        if often != self._often.keys():
            self._often = {number: [*self._alone(number)] for number in often}
            del self._automaton

    def _is_apart(self, number: int) -> bool:
        """True if two occurrences of the literal cannot overlap."""
        literal = self._literals[number]
        return not any(literal.endswith(literal[:length]) for length in range(1, len(literal)))

    def _alone(self, number: int) -> Iterator[LiteralAlone]:
        literal = self._literals[number]
        for index, asked in self._one_by_one[number]:
            behind = probes_of(self._signatures[index]).behind[literal.decode()]
            with_behind = re.compile(re.escape(literal) + b"(?=" + behind + b")")
            yield LiteralAlone(
                index, asked._replace(may_go_on=None), literal, re.compile(behind), with_behind
            )

    def __missing__(self, number: int) -> Probe | None:
        literal = self._literals[number].decode()
        behind = {
            index: probes_of(self._signatures[index]).behind.get(literal)
            for index in sorted(self._wanted[literal.encode()])
        }
        ways = {index: way for index, way in behind.items() if way is not None}
        self[number] = (
            None if b"" in ways.values() else re.compile(b"|".join(ways.values()) or rb"(?!)").match
        )
        self._one_by_one[number] = [
            (index, self._asked(index, literal, is_alone=len(ways) == 1)) for index in ways
        ]
        return self[number]

    def _asked(self, index: int, literal: str, is_alone: bool) -> Asked:
        probes = probes_of(self._signatures[index])
        words = probes.elsewhere.get(literal)
        if probes.begin and index not in self._begins:
            self._begins[index] = re.compile(self._before + b"(?:" + probes.begin + b")").match
        return Asked(
            None if is_alone else re.compile(probes.behind[literal]).match,
            self._begins.get(index),
            _search_of(words) if words else None,
        )


def _search_of(words: Sequence[bytes]) -> Search:
    """A search for any of a few words. One search per word is faster than one pattern for all."""

    def holds(text: bytes, start: int, end: int) -> bool:
        for word in words:  # noqa: SIM110 - twice as fast as any()
            if text.find(word, start, end) >= 0:
                return True
        return False

    return holds


def _ends(lines: Sequence[bytes]) -> list[int]:
    """Offset behind each line and its line end."""
    return list(map(add, accumulate(map(len, lines)), count(1)))
