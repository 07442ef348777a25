"""All keys of a screen, with their actions and the reason if one is off. The keys of the footer are on the
first page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coach.render.text import BLANK, Line, Span, Tone, line, muted, plural, strong, wrap
from coach.tui.render.header import MAX_HINTS

HelpRow = tuple[str, str, str, str | None]
"""(key, description, tooltip, reason if it is off)."""
HelpGroup = tuple[str, Sequence[HelpRow]]

_KEY_WIDTH = 10
_TEXT_AT = 48
_WIDE = 100
"""From this width on a tooltip stands beside the description, else below it."""


def help_lines(
    title: str,
    first: Sequence[HelpRow],
    groups: Sequence[HelpGroup],
    moves: Sequence[tuple[str, str]],
    ids: Sequence[tuple[str, str]],
    width: int,
    height: int,
) -> list[Line]:
    """`first` fills the first page, unless all keys fit on it; the groups follow below.

    `ids` are the labels and ids of the keys that the config can change.
    """
    num_more = sum(len(rows) for _, rows in groups)
    more = f"  PgDn: {plural(num_more, 'more key')}, and those that move" if num_more else ""
    lines: list[Line] = [line(strong(f" Keys on the {title} screen"), muted(more)), BLANK]
    for row in first:
        lines.extend(_row_lines(row, width))
    is_page_of_its_own = len(first) + num_more > MAX_HINTS
    lines.extend([BLANK] * (height - len(lines) if is_page_of_its_own else 1))
    for name, rows in groups:
        lines.extend((line(strong(f" {name}")), BLANK))
        for row in rows:
            lines.extend(_row_lines(row, width))
        lines.append(BLANK)
    lines.extend((line(strong(" In every list and text")), BLANK))
    for key, description in moves:
        lines.append(line(Span(f" {key:>14}  ", "key"), description))
    lines.extend((BLANK, line(strong(" Other keys: [keys] in config.toml, by these ids")), BLANK))
    words = " · ".join(f"{label} {key_id}" for label, key_id in ids)
    lines.extend(line(muted(f"   {text}")) for text in wrap(words, width - 4))
    lines.extend((BLANK, line(muted(" Select text with the mouse while holding Shift (Option on a Mac)."))))
    return lines


def _row_lines(row: HelpRow, width: int) -> Iterator[Line]:
    key, description, tooltip, reason = row
    tone: Tone = "muted" if reason is not None else ""
    head = (Span(f" {key:>7}  ", tone or "key"), Span(description, tone))
    is_beside = width >= _WIDE and len(description) < _TEXT_AT - _KEY_WIDTH
    start = _TEXT_AT if width >= _WIDE else _KEY_WIDTH + 2
    texts = wrap(f"off: {reason}" if reason else tooltip, width - start)
    if not is_beside or not texts:
        yield head
    for index, text in enumerate(texts):
        words = Span(text, "warning" if reason else "muted")
        if index == 0 and is_beside:
            yield (*head, Span(" " * (start - _KEY_WIDTH - len(description))), words)
        else:
            yield (Span(" " * start), words)
