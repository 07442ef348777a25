"""Which lines of a log are worth decoding: those that hold a literal of a signature and are of a kind not yet turned down.

The lines of a log differ mostly in their digits, so a kind of line is looked at once; where no line is like another, each literal is
looked at with what follows it. That must not change what is found, and is therefore kept apart from how lines are read: the scanner
asks, and could do without. Pure: bytes in, places out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Reversible, Sequence
from functools import cached_property, lru_cache
from heapq import merge
from itertools import accumulate, chain, compress, count, groupby
from operator import add, itemgetter
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation

from coach.model.training.log import Signature
from coach.sources.logs.line_text import MAX_PREFIXES, PREFIX
from coach.sources.logs.literal_probe import probes_of

_MAX_KNOWN_BYTES = 16 << 20
_BYTES_PER_KIND = 200
"""What Python needs to remember one, beside its text."""

_MANY_LINES = 4096
_MAX_NEW_SHARE = 1 / 8
"""Where more of many lines are of a kind that was never seen, it does not pay to learn them."""
_NUM_STRANGE = 12
"""So often after that it is not asked again."""

_OFTEN = 8192
"""A literal that stands more often in a piece of log than this is looked for by itself, together with what must follow it."""

_SAMPLE = 4096
"""So many of the places of all literals tell which of them stand so often."""

_DIGITS = b"0123456789"
_NOTHING: frozenset[int] = frozenset()
_KIND = bytes.maketrans(b"123456789\r", b"000000000\n")
_PREFIX = PREFIX.pattern.replace(r"\w", r"\w\x80-\xff")
_PREFIXES = f"(?:{_PREFIX}){{0,{MAX_PREFIXES}}}"
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NO_DIGIT_MEANT = re.compile(r"(?<!\\)\{\d*,?\d*\}|\(\?P<\w+>|\\u(?!00)[0-9a-fA-F]{4}")
_DIGIT_MEANT = re.compile(r"[0-9]|\(\?P=")


def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Whether it takes any digit for any other: it names none, and refers to nothing that it has matched before."""
    words = _CLASS.sub(lambda found: found[0].replace("0-9", ""), pattern.pattern)
    return not _DIGIT_MEANT.search(_NO_DIGIT_MEANT.sub("", words))


class Lines:
    """The complete lines of a piece of log. A line is told by where it begins."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cached_property
    def text_by_newlines(self) -> bytes:
        """The same, where every line ends alike."""
        return self.text.replace(b"\r", b"\n")

    def kind_of(self, line: int) -> bytes:
        return self.text[line : self.end_of(line)].translate(_KIND)

    def end_of(self, place: int) -> int:
        end = self.text_by_newlines.find(b"\n", place)
        return len(self.text) if end < 0 else end


class Block:
    """The lines of a piece of log, and which of them may match which signature."""

    def __init__(self, text: bytes) -> None:
        self.lines = Lines(text)
        self.places: dict[int, Reversible[int]] = {}
        """Signature → lines, ascending; they are found out while they are gone through, from either end."""
        self.is_by_kind = False
        """Whether what was said of a line's kind is known."""


class _Asked(NamedTuple):
    """What makes a line that holds a literal worth a search for a signature."""

    may_go_on: _Probe | None
    may_begin: _Probe | None
    holds: _Search | None


class _OfKinds(Reversible[int]):
    """Lines by what was said of their kinds."""

    def __init__(self, kinds: Sequence[bytes], wanted: Sequence[object], chosen: Container[object]) -> None:
        self._kinds = kinds
        self._wanted = wanted
        self._chosen = chosen

    def __iter__(self) -> Iterator[int]:
        kinds, last, start = self._kinds, 0, 0
        for number in compress(count(), map(self._chosen.__contains__, self._wanted)):
            start += sum(map(len, kinds[last:number])) + number - last
            last = number
            yield start

    def __reversed__(self) -> Iterator[int]:
        kinds, last = self._kinds, len(self._kinds)
        start = sum(map(len, kinds)) + last
        numbers = range(last - 1, -1, -1)
        for number in compress(numbers, map(self._chosen.__contains__, reversed(self._wanted))):
            start -= sum(map(len, kinds[number:last])) + last - number
            last = number
            yield start


class _Places(Reversible[int]):
    """Lines by the ends of the literals in them. They are looked at one by one: of what many lines say few are wanted."""

    def __init__(self, lines: Lines, found: Sequence[tuple[_Asked, Reversible[int]]]) -> None:
        self._among = lines
        self._found = found

    def __iter__(self) -> Iterator[int]:
        return _each_once([self._lines(asked, ends) for asked, ends in self._found], is_reversed=False)

    def __reversed__(self) -> Iterator[int]:
        return _each_once(
            [self._lines(asked, reversed(ends)) for asked, ends in self._found], is_reversed=True
        )

    def _lines(self, asked: _Asked, ends: Iterable[int]) -> Iterator[int]:
        text, find_backwards = self._among.text, self._among.text_by_newlines.rfind
        may_go_on, may_begin, holds = asked
        asked_of = -1
        for end in ends:
            if may_go_on is None or may_go_on(text, end):
                line = find_backwards(b"\n", 0, end) + 1
                if line == asked_of:
                    continue
                asked_of = line
                if (may_begin is None or may_begin(text, line)) and (
                    holds is None or holds(text, line, self._among.end_of(end))
                ):
                    yield line


class _Alone(NamedTuple):
    """What a signature asks of a literal that is looked for by itself."""

    signature: int
    asked: _Asked
    literal: bytes
    behind: re.Pattern[bytes]
    with_behind: re.Pattern[bytes]


class _Ends(Reversible[int]):
    """Where a literal ends that stands in very many lines. They are looked for one by one, because few are wanted."""

    def __init__(self, text: bytes, alone: _Alone) -> None:
        self._text = text
        self._alone = alone

    def __iter__(self) -> Iterator[int]:
        return map(re.Match.end, self._alone.with_behind.finditer(self._text))

    def __reversed__(self) -> Iterator[int]:
        text, literal, may_go_on = self._text, self._alone.literal, self._alone.behind.match
        place = text.rfind(literal)
        while place >= 0:
            if may_go_on(text, place + len(literal)):
                yield place + len(literal)
            place = text.rfind(literal, 0, place)


def _each_once(among: Sequence[Iterator[int]], is_reversed: bool) -> Iterator[int]:
    return (line for line, _ in groupby(among[0] if len(among) == 1 else merge(*among, reverse=is_reversed)))


@lru_cache(maxsize=4)
class _Wanted:
    """What signatures look for: made once for all logs, because it takes tens of milliseconds."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.blind = frozenset(
            index
            for index, signature in enumerate(signatures)
            if is_digit_blind(signature.pattern) and not _DIGIT_MEANT.search("".join(signature.literals))
        )
        self.by_literal: dict[bytes, frozenset[int]] = {}
        self.by_kind: dict[bytes, frozenset[int]] = {}
        self.by_text: dict[bytes, frozenset[int]] = {}
        for index, signature in enumerate(signatures):
            for literal in map(str.encode, signature.literals):
                for wanted in (self.by_kind if index in self.blind else self.by_text, self.by_literal):
                    wanted[literal] = wanted.get(literal, _NOTHING) | {index}
        self.literals = [literal for literal in self.by_literal if literal.strip(_DIGITS)]
        kinds = [literal.translate(_KIND) for literal in self.literals]
        self.automaton = BytesAhoCorasick(kinds, implementation=Implementation.DFA)


class LineFilter:
    """Remembers the kinds of lines of one log: one kind are lines that differ in nothing but digits.

    `prefix` is the pattern of what stands before nearly all of its lines, besides what launchers put there.
    """

    def __init__(self, signatures: Sequence[Signature], prefix: str = "") -> None:
        self._signatures = signatures
        self._prefix = prefix
        self._wanted = _Wanted(tuple(signatures))
        self._all = _Probes(signatures, self._wanted.by_literal, prefix)
        # A number says nothing in a kind: it is looked for in the lines themselves, if the words around it were seen.
        self._seen = {literal for literal in self._wanted.by_text if not literal.strip(_DIGITS)}
        self._in_text = self._probes_of_seen()
        self._num_strange = 0
        self._known: dict[bytes, frozenset[int]] = {}
        self.num_known_bytes = 0

    def _probes_of_seen(self) -> _Probes:
        wanted = {literal: self._wanted.by_text[literal] for literal in sorted(self._seen)}
        return _Probes(self._signatures, wanted, self._prefix)

    def look_at(self, text: bytes) -> Block:
        """The lines of this text, and where to look further."""
        block = Block(text)
        if self._num_strange:
            self._num_strange -= 1
            self._all.look_at(block)
            return block
        if self.num_known_bytes > _MAX_KNOWN_BYTES:
            self._known, self.num_known_bytes = {}, 0
        kinds, known = text.translate(_KIND).split(b"\n"), self._known
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
            block.places[index] = _OfKinds(kinds, wanted, chosen)
        self._in_text.look_at(block)
        return block

    def turn_down(self, kind: bytes, index: int) -> None:
        """A line of this kind was searched for a signature, in vain."""
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


_Probe = Callable[[bytes, int], object]
_Search = Callable[[bytes, int, int], object]


class _Probes(dict[int, _Probe | None]):
    """Number of a literal → whether any signature may go on behind it; None: whatever stands there. Made when a literal is first met."""

    def __init__(
        self, signatures: Sequence[Signature], wanted: Mapping[bytes, frozenset[int]], prefix: str
    ) -> None:
        super().__init__()
        self._signatures = signatures
        self._before = f"(?>(?:{prefix})?{_PREFIXES})".encode()
        self._wanted = wanted
        self._literals = list(wanted)
        self._begins: dict[int, _Probe] = {}
        self._one_by_one: dict[int, list[tuple[int, _Asked]]] = {}
        self._often: dict[int, list[_Alone]] = {}

    @cached_property
    def _automaton(self) -> BytesAhoCorasick:
        """Of all literals but those that are looked for by themselves: with a zero before them these stand in no log."""
        literals = [
            b"\0" * (number in self._often) + literal for number, literal in enumerate(self._literals)
        ]
        return BytesAhoCorasick(literals, implementation=Implementation.DFA)

    def look_at(self, block: Block) -> None:
        """Adds to a block those of its lines that are to be searched."""
        if not self._literals:
            return
        text = block.lines.text
        found: dict[int, list[tuple[_Asked, Reversible[int]]]] = defaultdict(list)
        met = self._automaton.find_matches_as_indexes(text, overlapping=True)
        for number, ends in self._passed(text, met).items():
            for index, asked in self._one_by_one[number]:
                found[index].append((asked, ends))
        for alone in chain(*self._often.values()):
            found[alone.signature].append((alone.asked, _Ends(text, alone)))
        for index, among in found.items():
            block.places[index] = _Places(block.lines, among)
        self._choose_often(text, met)

    def _passed(self, text: bytes, met: Iterable[tuple[int, int, int]]) -> dict[int, list[int]]:
        """Where the literals end, by number, behind which some signature may go on."""
        passed: dict[int, list[int]] = defaultdict(list)
        for number, _, end in met:
            may_go_on = self[number]
            if may_go_on is None or may_go_on(text, end):
                passed[number].append(end)
        return passed

    def _choose_often(self, text: bytes, met: Sequence[tuple[int, int, int]]) -> None:
        """What the next piece of this log is likely to be full of."""
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
        """Whether none of its places can reach into the next one."""
        literal = self._literals[number]
        return not any(literal.endswith(literal[:length]) for length in range(1, len(literal)))

    def _alone(self, number: int) -> Iterator[_Alone]:
        literal = self._literals[number]
        for index, asked in self._one_by_one[number]:
            behind = probes_of(self._signatures[index]).behind[literal.decode()]
            with_behind = re.compile(re.escape(literal) + b"(?=" + behind + b")")
            yield _Alone(index, asked._replace(may_go_on=None), literal, re.compile(behind), with_behind)

    def __missing__(self, number: int) -> _Probe | None:
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

    def _asked(self, index: int, literal: str, is_alone: bool) -> _Asked:
        probes = probes_of(self._signatures[index])
        words = probes.elsewhere.get(literal)
        if probes.begin and index not in self._begins:
            self._begins[index] = re.compile(self._before + b"(?:" + probes.begin + b")").match
        return _Asked(
            None if is_alone else re.compile(probes.behind[literal]).match,
            self._begins.get(index),
            _search_of(words) if words else None,
        )


def _search_of(words: Sequence[bytes]) -> _Search:
    """Whether any of a few words stands between two places: sooner told one by one than by a pattern of them all."""

    def holds(text: bytes, start: int, end: int) -> bool:
        for word in words:  # noqa: SIM110 - twice as fast as any()
            if text.find(word, start, end) >= 0:
                return True
        return False

    return holds


def _ends(lines: Sequence[bytes]) -> list[int]:
    """Behind each line and its line end."""
    return list(map(add, accumulate(map(len, lines)), count(1)))
