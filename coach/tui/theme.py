"""The colours, once. Quiet for the eye: one accent, and what needs a look stands out.

A colour only repeats what a sign or a word says. Those of Textual's own themes lack the names that our styles
use; they are blended from what each theme has.
"""

from __future__ import annotations

from dataclasses import replace

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from coach import installed
from coach.config.settings import OWN_THEMES


def _theme(name: str, *, is_dark: bool, muted: str, border: str, **colours: str) -> Theme:
    background = colours["background"]
    return Theme(
        name=name,
        dark=is_dark,
        surface=background,
        variables=_variables(muted, border, background),
        **colours,  # type: ignore[arg-type]  # all of them are colours
    )


def _variables(muted: str, border: str, background: str) -> dict[str, str]:
    """The names that our styles use beside Textual's."""
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
"""Blue, olive and crimson: tests hold that they stay apart to eyes without red or green."""
OWN = {theme.name: theme for theme in (NIGHT, DAY, COLOUR_BLIND_NIGHT, COLOUR_BLIND_DAY)}
assert tuple(OWN) == OWN_THEMES


def find_theme(name: str) -> Theme | None:
    """The theme of a name that the config accepts; None where this version of Textual has it no more."""
    if name in OWN:
        return OWN[name]
    found = BUILTIN_THEMES.get(name)
    return None if found is None else _with_variables(found)


def next_own(name: str) -> str:
    """The theme of ours behind this one, the first behind the last and behind any of Textual's."""
    at = OWN_THEMES.index(name) + 1 if name in OWN_THEMES else 0
    return OWN_THEMES[at % len(OWN_THEMES)]


def _with_variables(theme: Theme) -> Theme:
    colours = theme.to_color_system().generate()
    background, foreground = Color.parse(colours["background"]), Color.parse(colours["foreground"])
    muted = foreground.blend(background, 0.35).hex
    border = foreground.blend(background, 0.75).hex
    return replace(theme, variables={**_variables(muted, border, background.hex), **theme.variables})


def styles() -> str:
    """Layout and tones, as text: a path would have to name a file, and coach may be one file itself."""
    return (installed.package() / "tui" / "styles" / "coach.tcss").read_text(encoding="utf-8")
