"""All keys of a screen, with what each does and why one is off."""

from __future__ import annotations

from collections.abc import Sequence

from coach.tui.render.text import BLANK, Line, Span, line, muted, strong, wrap

HelpRow = tuple[str, str, str, str | None]
"""(key, description, tooltip, reason when off)."""


def help_lines(
    title: str, keys: Sequence[HelpRow], moves: Sequence[tuple[str, str]], width: int
) -> list[Line]:
    rows: list[Line] = [line(strong(f" Keys on the {title} screen")), BLANK]
    for key, description, tooltip, reason in keys:
        is_on = reason is None
        said = f"off: {reason}" if reason else tooltip
        texts = wrap(said, width - 46) or [""]
        head = (
            Span(f" {key:>7}  ", "key" if is_on else "muted"),
            Span(f"{description:<36}", "" if is_on else "muted"),
        )
        for index, text in enumerate(texts):
            start = head if index == 0 else (Span(" " * 46),)
            rows.append((*start, Span(text, "warning" if reason else "muted")))
    rows.extend((BLANK, line(strong(" In every list and text")), BLANK))
    for key, description in moves:
        rows.append(line(Span(f" {key:>14}  ", "key"), description))
    rows.extend((BLANK, line(muted(" Select text with the mouse while holding Shift (Option on a Mac)."))))
    return rows
