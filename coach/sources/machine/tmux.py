"""Use the tmux around this terminal: its paste buffer and its message line. The screens reach the terminal
itself with OSC sequences."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

_TIMEOUT_S = 2.0


def load_tmux_buffer(text: str, env: Mapping[str, str]) -> bool:
    """Put text into the buffer of tmux, and so into the terminal's clipboard (tmux(1), `load-buffer -w`).
    Returns False outside tmux, and if tmux refuses."""
    return _run(["load-buffer", "-w", "-"], text, env)


def show_tmux_message(text: str, env: Mapping[str, str]) -> bool:
    """Show a text in the status line of tmux's client. Returns False outside tmux, and if tmux refuses.

    tmux expands `#` (even to the output of a command) and `%`, so both are doubled (tmux(1), FORMATS).
    """
    literal = text.replace("#", "##").replace("%", "%%")
    return _run(["display-message", "--", literal], "", env)


def _run(arguments: Sequence[str], text: str, env: Mapping[str, str]) -> bool:
    if not env.get("TMUX"):
        return False
    try:
        done = subprocess.run(
            ["tmux", *arguments],
            input=text.encode(errors="replace"),
            env=dict(env),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
