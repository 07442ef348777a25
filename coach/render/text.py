"""Spans, lines and formatted numbers, which every renderer returns.

Other people's text passes through `printable` here, and lines hold text and a tone, never markup. So no name
can become a style, an action or a terminal control. Widgets turn tones into theme colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, get_args

from rich.cells import cell_len, set_cell_size

from coach.analysis.spelling.printable import printable as printable
from coach.model.training.other_machine import rough_age

UNKNOWN = "–"

Tone = Literal[
    "",
    "muted",
    "strong",
    "good",
    "info",
    "warning",
    "critical",
    "accent",
    "key",
    "added",
    "removed",
    "shaded",
]
TONES: tuple[Tone, ...] = get_args(Tone)[1:]
"""All tones except the plain one."""


@dataclass(frozen=True, slots=True)
class Span:
    """Some text in one tone. `action` is the id of the key that a click presses."""

    text: str
    tone: Tone = ""
    action: str = ""


Line = tuple[Span, ...]
KeyLabel = Callable[[str], str]
"""Returns the label of the key with an id: the user's choice, else the shipped key."""
BLANK: Line = ()


def line(*parts: Span | str) -> Line:
    """A line of spans; bare strings have no tone."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def muted(text: str) -> Span:
    return Span(text, "muted")


def strong(text: str) -> Span:
    return Span(text, "strong")


def plain(row: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in row)


def line_width(row: Line) -> int:
    """Terminal cells a line takes."""
    return sum(cell_len(span.text) for span in row)


def fit(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Exactly `width` cells: padded, or cut with an ellipsis. Counts cells, so wide characters do not shift
    columns."""
    if width <= 0:
        return ""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    padding = " " * (width - size)
    return padding + text if align == "right" else text + padding


def whole_words(text: str, width: int) -> str:
    """As many words as fit, and a sign if there are more; a single word that is too long is cut."""
    if cell_len(text) <= width:
        return text
    head = set_cell_size(text, max(1, width - 1))
    kept = (head if text[len(head) :].startswith(" ") else head.rpartition(" ")[0]).rstrip(" ·,:")
    return f"{kept}…" if cell_len(kept) * 2 >= width else fit(text, width)


def wrap(text: str, width: int) -> list[str]:
    """Words wrapped at `width` cells, at least two; a longer word is cut at the edge."""
    width = max(2, width)  # a wide character takes two
    rows: list[str] = []
    row = ""
    for word in text.split():
        while cell_len(word) > width:
            head = set_cell_size(word, width)
            if not word.startswith(head):
                head = head[:-1]  # a blank stands for half of a wide character
            if row:
                rows.append(row)
                row = ""
            rows.append(head)
            word = word[len(head) :]
        if row and cell_len(row) + 1 + cell_len(word) > width:
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    return [*rows, row] if row else rows


def hang(row: Line, width: int) -> list[Line]:
    """A line wrapped at `width` cells, if it is wider. All but its first span hangs below that span, in the
    tone of the longest."""
    if line_width(row) <= width:
        return [row]
    first, *rest = row
    tone = max(rest, key=lambda span: len(span.text)).tone if rest else first.tone
    size = line_width((first,))
    texts = wrap(plain(tuple(rest)), width - size)
    return [(Span(" " * size) if index else first, Span(text, tone)) for index, text in enumerate(texts)]


def clip(row: Line, width: int) -> Line:
    """At most `width` cells of a line, with an ellipsis where it was cut."""
    if line_width(row) <= width:
        return row
    kept: list[Span] = []
    left = width
    for span in row:
        size = cell_len(span.text)
        if size >= left:
            kept.append(Span(fit(span.text + " ", left), span.tone, span.action))
            break
        kept.append(span)
        left -= size
    return tuple(kept)


def crop(row: Line, width: int) -> Line:
    """At most `width` cells of a line, cut without a sign: for rules and fillings."""
    kept: list[Span] = []
    left = width
    for span in row:
        kept.append(Span(set_cell_size(span.text, min(left, cell_len(span.text))), span.tone, span.action))
        left -= cell_len(kept[-1].text)
    return tuple(kept)


def pad(row: Line, width: int) -> Line:
    """A line filled with blanks up to `width`, or cut there."""
    row = clip(row, width)
    return (*row, Span(" " * (width - line_width(row))))


def whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}%"


def of_total(part: int | None, total: int | None) -> str:
    """`3/8`; an unknown side is `–`."""
    if part is None and total is None:
        return UNKNOWN
    return f"{UNKNOWN if part is None else part}/{UNKNOWN if total is None else total}"


def with_noise(
    spelled: str, value: float, noise: float, spelled_noise: str, *, is_short: bool = False
) -> str:
    """A value and its noise in per cent: `76 s ±1.2%`. Noise larger than the value is written in the value's
    own unit, because a share of a value near zero says nothing."""
    if not value or abs(noise) > abs(value):
        return f"{spelled} ±{spelled_noise}"
    return f"{spelled} ±{abs(noise / value):{'.0%' if is_short else '.1%'}}"


def number(value: float | None, digits: int = 4) -> str:
    """A measured number in short form; NaN and infinities are written as such."""
    if value is None:
        return UNKNOWN
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Inf" if value > 0 else "-Inf"
    if value and (abs(value) >= 10**6 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.{max(0, digits - 2)}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A short duration with its unit: `812 µs`, `4.1 ms`, `1.25 s`, `2 min 5 s`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:  # from here on it rounds to 1 s
        return f"{value * 1e3:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    return "{} min {} s".format(*divmod(round(value), 60))


def clock(value: float | None) -> str:
    """A duration as Slurm writes it: `4:05`, `1:02:03`, `2-03:04:05`."""
    if value is None:
        return UNKNOWN
    total = max(0, int(value))
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}"


def age(value: float | None) -> str:
    """A rough age: `2 s`, `4 min`, `3 h`, `5 d`."""
    return UNKNOWN if value is None else rough_age(value)


def mib(value: float | None) -> str:
    """Memory with a binary unit: `512M`, `31.2G`, `1.5T`."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1024 * 1024, "T"), (1024, "G")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}M"


def mib_of(part: float | None, total: float | None) -> str:
    """`1.5G/256G`; `–` if the total is unknown."""
    return UNKNOWN if total is None else f"{mib(part)}/{mib(total)}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def crumb(is_run: bool, target: str) -> str:
    """The text of a run, or of a job without a run, in the breadcrumbs."""
    return f"{'run' if is_run else 'job'} {short_id(target)}"


def short_id(run_id: str) -> str:
    """The recipe and the tail of a run id: `ddp-4f2a`."""
    parts = printable(run_id).split("-", 2)
    return parts[2] if len(parts) == 3 and parts[0].isdigit() else printable(run_id)


def beside(left: Sequence[Line], right: Sequence[Line], width: int, gap: int = 0) -> list[Line]:
    """Lines on the left, cut or filled to `width`, and lines on the right of them, after `gap` blanks."""
    between = (Span(" " * gap),) if gap else ()
    return [
        (*pad(first, width), *between, *second) for first, second in zip_longest(left, right, fillvalue=BLANK)
    ]
