"""tmux's paste buffer. A terminal's own clipboard is reached by the screens themselves (OSC 52)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

_TIMEOUT_S = 2.0


def load_tmux_buffer(text: str, env: Mapping[str, str]) -> bool:
    """Put text into the buffer of the tmux that this terminal is in, and by it into the terminal's clipboard
    (tmux(1), `load-buffer -w`). False outside of tmux, and where tmux refuses."""
    if not env.get("TMUX"):
        return False
    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],
            input=text.encode(errors="replace"),
            env=dict(env),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
