"""Properties of the terminal for coach's screens: its name, colours, encoding and size.

This module is separate from the screens, which must not be loaded just to find out that they cannot open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from coach.trusted import read_small

_COERCED = "LC_CTYPE"
_MULTIPLEXERS = {"TMUX": "tmux", "STY": "screen", "ZELLIJ": "zellij"}

_WITH_256_COLOURS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm")
_WITH_8_COLOURS = frozenset(
    {"xterm", "screen", "tmux", "linux", "rxvt", "konsole", "gnome", "putty", "ansi", "cygwin", "eterm", "st"}
)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Known properties. `columns` and `rows` are None if no stream of this process is a terminal."""

    term: str | None
    num_colours: int | None
    encoding: str | None
    columns: int | None
    rows: int | None
    multiplexer: str | None

    @property
    def is_there(self) -> bool:
        return self.columns is not None


def read_terminal(env: Mapping[str, str]) -> Terminal:
    """The terminal of this process."""
    size = _size()
    return Terminal(
        term=env.get("TERM") or None,
        num_colours=count_colours(env),
        encoding=locale_encoding(env),
        columns=size.columns if size else None,
        rows=size.lines if size else None,
        multiplexer=next((name for key, name in _MULTIPLEXERS.items() if env.get(key)), None),
    )


def count_colours(env: Mapping[str, str]) -> int | None:
    """Number of colours of the terminal, derived from its name; None for an unknown name.

    The terminfo database is not used: curses reads it only once per process, and login nodes lack newer
    entries.
    """
    if env.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 2**24
    term = env.get("TERM", "")
    if "direct" in term or "truecolor" in term:
        return 2**24
    if "256color" in term or term.startswith(_WITH_256_COLOURS):
        return 256
    if term in ("", "dumb", "unknown") or term.startswith("vt"):
        return 0
    return 8 if term.partition("-")[0] in _WITH_8_COLOURS else None


def locale_encoding(env: Mapping[str, str]) -> str | None:
    """The encoding that the locale variables name; None if they name none (the C locale)."""
    said = next((env[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), "")
    encoding = said.partition(".")[2].partition("@")[0]
    return encoding.upper().replace("UTF8", "UTF-8") or None


def started_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the locale of this process at its start. Python changes LC_CTYPE from C to C.UTF-8 (PEP
    538), which tells nothing about the terminal."""
    said = read_small("/proc/self/environ")
    if not said:
        return dict(env)
    started = dict(pair.split("=", 1) for pair in said.split("\0") if "=" in pair)
    kept = {name: value for name, value in env.items() if name != _COERCED}
    return kept | ({_COERCED: started[_COERCED]} if _COERCED in started else {})


def _size() -> os.terminal_size | None:
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            if stream is not None and stream.isatty():
                return os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            continue
    return None
