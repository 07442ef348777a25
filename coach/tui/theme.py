"""The only place that defines colours: one accent colour, and stronger colours for findings.

No meaning is shown by a colour alone: a sign or a word repeats it. Textual's own themes lack some names that
coach's styles use; the colours of these names are blended from those of each theme.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from rich.style import Style
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from coach import installed
from coach.config.settings import OWN_THEMES
from coach.render.text import TONES, Tone
from coach.trusted import read_text


def _theme(name: str, *, is_dark: bool, muted: str, border: str, **colours: str) -> Theme:
    background = colours["background"]
    return Theme(
        name=name,
        dark=is_dark,
        surface=background,
        variables=_variables(muted, border, background),
        **colours,  # type: ignore[arg-type]  # every value is a colour
    )


def _variables(muted: str, border: str, background: str) -> dict[str, str]:
    """The style variables that Textual's themes do not define."""
    return {
        "muted": muted,
        "border": border,
        "border-blurred": border,
        "scrollbar": border,
        "scrollbar-hover": muted,
        "scrollbar-active": muted,
        "scrollbar-background": background,
        "scrollbar-background-hover": background,
        "scrollbar-background-active": background,
        "scrollbar-corner-color": background,
    }


NIGHT = _theme(
    "night",
    is_dark=True,
    foreground="#c9d1d9",
    background="#0f1318",
    panel="#1b222b",
    muted="#828d99",
    border="#2c3642",
    primary="#7aa2c8",
    secondary="#8fa7bf",
    accent="#7fb4e0",
    success="#7fbf8e",
    warning="#e0b060",
    error="#ef7d78",
)
DAY = _theme(
    "day",
    is_dark=False,
    foreground="#24292f",
    background="#fbfbf8",
    panel="#e8ebee",
    muted="#5b646e",
    border="#c3cad1",
    primary="#3b6ea5",
    secondary="#4f6478",
    accent="#0b5c9e",
    success="#176d30",
    warning="#7d5100",
    error="#b02318",
)
COLOUR_BLIND_NIGHT = replace(
    NIGHT,
    name="colour-blind-night",
    accent="#e6edf3",
    success="#56b4e9",
    warning="#f0e442",
    error="#f07030",
)
"""Okabe and Ito's sky blue and yellow, and their vermilion made brighter for a dark background
(https://jfly.uni-koeln.de/color/)."""
COLOUR_BLIND_DAY = replace(
    DAY, name="colour-blind-day", accent="#10161c", success="#0063a0", warning="#756400", error="#a00050"
)
"""Blue, olive and crimson. Tests check that red-green colour-blind people can tell them apart."""
OWN = {theme.name: theme for theme in (NIGHT, DAY, COLOUR_BLIND_NIGHT, COLOUR_BLIND_DAY)}
assert tuple(OWN) == OWN_THEMES


def find_theme(name: str) -> Theme | None:
    """The theme of a name that the config accepts; None if this version of Textual does not have it."""
    if name in OWN:
        return OWN[name]
    found = BUILTIN_THEMES.get(name)
    return None if found is None else _with_variables(found)


_TONE_COLOURS: Mapping[Tone, str] = {
    "muted": "muted",
    "good": "success",
    "info": "accent",
    "warning": "warning",
    "critical": "error",
    "accent": "accent",
    "key": "accent",
    "added": "success",
    "removed": "error",
    "shaded": "accent",
}
_BOLD: frozenset[Tone] = frozenset({"strong", "key"})
_CURSOR_SHARE = 0.3
"""The share of the theme's primary colour behind the cursor's row."""


@dataclass(frozen=True, slots=True)
class Paint:
    """The styles of a theme for text. The style of a tone sets only its own colours and weight; `cursor` is
    that of the cursor's row."""

    tones: Mapping[Tone, Style]
    cursor: Style


@cache
def paint_of(name: str) -> Paint:
    """The text styles of the theme with this name, shared by all widgets. Textual would compute the styles of
    component classes for each widget again, at every change of the focus."""
    theme = find_theme(name) or NIGHT
    colours = {**theme.to_color_system().generate(), **theme.variables}

    def colour(variable: str) -> Color:
        return Color.parse(colours[variable])

    behind = {"shaded": colour("warning-muted").rich_color}
    tones = {
        tone: Style(
            color=colour(_TONE_COLOURS[tone]).rich_color if tone in _TONE_COLOURS else None,
            bgcolor=behind.get(tone),
            bold=tone in _BOLD or None,
        )
        for tone in TONES
    }
    cursor = colour("background").blend(colour("primary"), _CURSOR_SHARE)
    return Paint(tones, Style(color=colour("foreground").rich_color, bgcolor=cursor.rich_color))


def next_own(name: str) -> str:
    """The next of coach's own themes; the first one after the last, and after any of Textual's."""
    at = OWN_THEMES.index(name) + 1 if name in OWN_THEMES else 0
    return OWN_THEMES[at % len(OWN_THEMES)]


def _with_variables(theme: Theme) -> Theme:
    colours = theme.to_color_system().generate()
    background, foreground = Color.parse(colours["background"]), Color.parse(colours["foreground"])
    muted = foreground.blend(background, 0.35).hex
    border = foreground.blend(background, 0.75).hex
    return replace(theme, variables={**_variables(muted, border, background.hex), **theme.variables})


def styles() -> str:
    """The stylesheet as text. A path would not work if coach itself is one zip file."""
    return read_text(installed.package() / "tui" / "styles" / "coach.tcss", owner=None)
