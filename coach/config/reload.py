"""Settings that follow their files: a running coach notices when the site's or the user's file changes.

A look costs a few stat calls and reads no unchanged file. An invalid new file is reported once, and the
earlier settings stay in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from coach.config.load import load, stamp
from coach.config.settings import Settings
from coach.model.errors import UserError

LOOK_INTERVAL_S = 20.0
"""Seconds between two looks: a change takes effect within a minute."""

Load = Callable[[Mapping[str, str]], Settings]


class Follower:
    """Checks the files again and again. `settings` are those in force."""

    def __init__(self, settings: Settings, env: Mapping[str, str], read: Load = load) -> None:
        self.settings = settings
        self.problem: str | None = None
        """The error in the files as they are now; meanwhile the earlier settings stay in force."""
        self._env = env
        self._read = read

    def look(self) -> bool:
        """True if a file changed, appeared or disappeared: there are other settings, or a problem to
        report."""
        stamps = tuple(stamp(file.path) for file in self.settings.files)
        if stamps == self.settings.files:
            return False
        try:
            changed = self._read(self._env)
        except UserError as problem:
            self.problem = f"{problem.message}; the earlier settings stay in force"
            self.settings = replace(self.settings, files=stamps)  # read again only after the next change
            return True
        self.settings, self.problem = _in_the_same_place(changed, self.settings), None
        return True


def _in_the_same_place(new: Settings, old: Settings) -> Settings:
    """The new settings with the old root of runs, so that runs do not vanish from the screen."""
    if new.runs_root == old.runs_root:
        return new
    return replace(
        new,
        runs_root=old.runs_root,
        runs_root_text=old.runs_root_text,
        runs_root_candidates=old.runs_root_candidates,
        notes=(*new.notes, f"runs_root = {new.runs_root} takes effect at the next start of coach"),
    )
