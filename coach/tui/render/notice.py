"""Notices of jobs: the text of a toast, and the control sequences of terminal notifications."""

from __future__ import annotations

from coach.analysis.jobs.notices import Notice
from coach.render.text import printable

MAX_TEXT = 200
OFFER = (
    "coach can tell you when a job of yours starts, ends or gets a finding: toast, bell, notification of the "
    'terminal, your own command. In the config: notify.ways = ["toast", "bell"]'
)
_WITH_777 = ("rxvt", "foot")
"""Terminals that support OSC 777 but not OSC 9."""


def notice_text(notice: Notice) -> str:
    """The text of a notice: one line without control characters."""
    words = f"{notice.name}: {notice.words}" if notice.name is not None else notice.words
    return printable(f"{'✖ ' if notice.is_bad else ''}{words}")[:MAX_TEXT]


def terminal_notice(text: str, term: str) -> str:
    """OSC 9 (iTerm2, kitty, WezTerm, Windows Terminal, Ghostty), or OSC 777 if the terminal supports only
    that. `text` has no control characters."""
    if term.startswith(_WITH_777):
        return f"\x1b]777;notify;coach;{text.replace(';', ',')}\x07"
    return f"\x1b]9;{text}\x07"


def tab_title(notice: Notice) -> str:
    """The title of the terminal's tab (OSC 2)."""
    return f"\x1b]2;coach · {notice_text(notice)}\x07"
