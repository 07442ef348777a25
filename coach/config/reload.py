"""Settings that follow their files: what a running coach does when the site's file, or the user's, changes.

A few stat calls a look, nothing read while nothing changed. A new file that is broken is told once, and what
was in force stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from coach.config.load import load, stamp
from coach.config.settings import Settings
from coach.model.errors import UserError

LOOK_INTERVAL_S = 20.0
"""Seconds between two looks: a change counts within a minute."""

Load = Callable[[Mapping[str, str]], Settings]


def reload_if_changed(settings: Settings, env: Mapping[str, str], read: Load = load) -> Settings | None:
    """The new settings when a file that was looked for has changed, came or went; None when not. Raises
    UserError when one is broken."""
    if all(stamp(file.path) == file for file in settings.files):
        return None
    return read(env)


class Follower:
    """Looks again and again. `settings` are those in force."""

    def __init__(self, settings: Settings, env: Mapping[str, str], read: Load = load) -> None:
        self.settings = settings
        self.problem: str | None = None
        """What is wrong with the files as they are now; then the settings before them stay in force."""
        self._env = env
        self._read = read

    def look(self) -> bool:
        """Whether something is new: other settings, or a problem to tell."""
        stamps = tuple(stamp(file.path) for file in self.settings.files)
        try:
            changed = reload_if_changed(self.settings, self._env, self._read)
        except UserError as problem:
            self.problem = f"{problem.message}; the settings before it stay"
            self.settings = replace(self.settings, files=stamps)  # read again when it changes again
            return True
        if changed is None:
            return False
        self.settings, self.problem = _in_the_same_place(changed, self.settings), None
        return True


def _in_the_same_place(new: Settings, old: Settings) -> Settings:
    """The new settings with the runs where they are: what is on the screen should not vanish from under
    it."""
    if new.runs_root == old.runs_root:
        return new
    return replace(
        new,
        runs_root=old.runs_root,
        runs_root_text=old.runs_root_text,
        runs_root_candidates=old.runs_root_candidates,
        notes=(*new.notes, f"runs_root = {new.runs_root} counts from the next start of coach"),
    )
