"""Themes: those of the config, contrast that can be read, signs for the colour-blind, ASCII."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations

import pytest
from rich.cells import cell_len
from textual.color import Color, rgb_to_lab
from textual.theme import BUILTIN_THEMES

from coach.analysis.spelling.ascii import AsciiText
from coach.config.settings import DEFAULT_THEME, OWN_THEMES, THEMES
from coach.sources.machine.terminal import locale_encoding, started_environment
from coach.tui.theme import OWN, find_theme, next_own
from tests.tui.driving import opened

TONES = ("foreground", "accent", "success", "warning", "error")
LEAST_CONTRAST = 4.5
"""WCAG 2.1, 1.4.3: contrast of text (https://www.w3.org/TR/WCAG21/#contrast-minimum)."""
LEAST_APART = 25.0
"""Distance in CIELAB; 2.3 is just seen, 10 is another colour at a glance."""
BLIND = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
"""Machado, Oliveira and Fernandes 2009, severity 1.0: linear RGB as these eyes see it."""


def linear(colour: Color) -> tuple[float, ...]:
    return tuple(
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )


def luminance(rgb: Sequence[float]) -> float:
    red, green, blue = rgb
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    low, high = sorted(luminance(linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def as_seen(colour: Color, eyes: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The colour in CIELAB, as these eyes see it."""
    rgb = linear(colour)
    seen = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in eyes]
    parts = [12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in seen]
    lab = rgb_to_lab(Color(*(round(255 * part) for part in parts)))
    return lab.L, lab.a, lab.b


def test_the_config_names_all_themes_of_textual_but_those_of_the_terminal_itself() -> None:
    textual = {name for name in BUILTIN_THEMES if not BUILTIN_THEMES[name].ansi}
    assert set(THEMES) == set(OWN_THEMES) | textual
    for name in THEMES:
        theme = find_theme(name)
        assert theme is not None
        assert {"muted", "border", "scrollbar-background"} <= theme.variables.keys()


@pytest.mark.parametrize("name", OWN_THEMES)
def test_each_tone_of_our_themes_can_be_read_on_the_screen_and_on_a_panel(name: str) -> None:
    theme = OWN[name]
    tones = {tone: Color.parse(getattr(theme, tone)) for tone in TONES}
    tones["muted"] = Color.parse(theme.variables["muted"])
    for place in ("background", "panel"):
        for tone, colour in tones.items():
            found = contrast(colour, Color.parse(getattr(theme, place)))
            assert found >= LEAST_CONTRAST, f"{name}: {tone} on {place}: {found:.2f}"


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("name", [name for name in OWN_THEMES if "colour-blind" in name])
def test_good_warning_and_error_stay_apart_for_the_colour_blind(name: str, kind: str) -> None:
    seen = {}
    for tone in ("success", "warning", "error"):
        seen[tone] = as_seen(Color.parse(getattr(OWN[name], tone)), BLIND[kind])
    for one, other in combinations(seen, 2):
        apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert apart >= LEAST_APART, f"{one} and {other}: {apart:.1f}"


def test_the_theme_key_cycles_through_coach_s_themes_and_leaves_textual_s() -> None:
    names = [DEFAULT_THEME]
    while (name := next_own(names[-1])) not in names:
        names.append(name)
    assert tuple(names) == OWN_THEMES
    assert next_own("nord") == OWN_THEMES[0]


async def test_a_key_changes_the_colours_and_the_note_says_how_to_keep_them() -> None:
    async with opened() as driver:
        await driver.press("ctrl+t")
        assert driver.app.theme == "day"
        assert 'theme = "day" in the config keeps it' in driver.text()


async def test_text_is_painted_anew_when_the_background_stays_and_its_colours_change() -> None:
    async with opened() as driver:
        driver.app._take_theme("colour-blind-day")
        await driver.press("ctrl+t")
        assert driver.app.theme == "night"
        before = driver.app.export_screenshot()
        driver.app._take_theme("day")
        await driver.press("ctrl+t")
        assert driver.app.theme == "colour-blind-night"
        for screenshot, theme in ((before, "night"), (driver.app.export_screenshot(), "colour-blind-night")):
            assert f"fill: {OWN[theme].accent}" in screenshot


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("✖ critical · 3 of 5…", "x critical - 3 of 5~"),
        ("├─┬─┐ │ ━ ╭ ╸", "+-+-+ | - + -"),
        ("▁▄█ ░▓", ".=@ :*"),
        ("\u2800\u2801\u28ff", " .@"),
        ("Müller 日本", "Muller ????"),
        ("é", "e"),
    ],
)
def test_signs_become_ascii_of_the_same_width(text: str, plain: str) -> None:
    assert AsciiText().of(text) == plain
    assert cell_len(text) == len(plain)


def test_a_text_with_more_characters_than_are_kept_becomes_ascii() -> None:
    hangul = "".join(map(chr, range(0xAC00, 0xAC00 + 5000)))
    assert AsciiText().of(hangul) == "??" * 5000


def test_the_locale_that_python_made_of_c_says_nothing_of_the_terminal() -> None:
    started = dict(pair.split("=", 1) for pair in _started() if "=" in pair)
    found = started_environment({**os.environ, "LC_CTYPE": "C.UTF-8", "LC_ALL": "", "LANG": "C"})
    assert found.get("LC_CTYPE") == started.get("LC_CTYPE")
    assert locale_encoding({"LANG": "C"}) is None


def _started() -> list[str]:
    with open("/proc/self/environ", "rb") as file:
        return os.fsdecode(file.read()).split("\0")
