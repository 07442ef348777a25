"""The colours, once. Quiet for the eye at night: one accent, and what needs a look stands out."""

from __future__ import annotations

from textual.theme import Theme

from coach import installed

NIGHT = Theme(
    name="coach-night",
    primary="#7aa2c8",
    secondary="#8fa7bf",
    accent="#7fb4e0",
    foreground="#c9d1d9",
    background="#0f1318",
    surface="#0f1318",
    panel="#1b222b",
    success="#7fbf8e",
    warning="#e0b060",
    error="#ef7d78",
    dark=True,
    variables={
        "muted": "#828d99",
        "border": "#2c3642",
        "border-blurred": "#2c3642",
        "scrollbar": "#2c3642",
        "scrollbar-hover": "#3a4654",
        "scrollbar-active": "#4a5868",
        "scrollbar-background": "#0f1318",
        "scrollbar-background-hover": "#0f1318",
        "scrollbar-background-active": "#0f1318",
        "scrollbar-corner-color": "#0f1318",
    },
)


def styles() -> str:
    """Layout and tones, as text: a path would have to name a file, and coach may be one file itself."""
    return (installed.package() / "tui" / "styles" / "coach.tcss").read_text(encoding="utf-8")
