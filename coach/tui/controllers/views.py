"""Saves the user's views of tables, and the fact that coach was opened before, for the next start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coach.late import late
from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.stage import Stage
from coach.workflows.watching.table_views import NOT_SHOWN, View, ViewStore

if TYPE_CHECKING:
    from coach.config import Settings
    from coach.workflows.watching import first_start
    from coach.workflows.watching.first_start import Here
else:
    first_start = late("coach.workflows.watching", "first_start")

DETAIL = "detail"
"""The key in the saved views for the detail beside the list of the first screen."""


class Views:
    """Saves the views of tables, in live mode only. Without a store, nothing is saved."""

    def __init__(self, stage: Stage, store: ViewStore | None) -> None:
        self._stage = stage
        self._store = store
        if store is not None:
            context = stage.context
            context.views, problem = store.read()
            context.saved_views, problem_of_saved = store.read_saved()
            context.views_problem = problem or problem_of_saved
            context.is_detail_hidden = context.views.get(DETAIL) == NOT_SHOWN

    @property
    def handlers(self) -> Handlers:
        return {messages.ViewsChanged: self._keep, messages.SavedViewsChanged: self._keep_saved}

    def _keep_saved(self, message: messages.SavedViewsChanged) -> None:
        if self._store is not None:
            self._write(partial(self._store.keep_saved, dict(self._stage.context.saved_views)))

    def _keep(self, message: messages.ViewsChanged) -> None:
        context = self._stage.context
        if context.is_detail_hidden or DETAIL in context.views:
            context.views[DETAIL] = NOT_SHOWN if context.is_detail_hidden else View()
        if self._store is not None:
            self._write(partial(self._store.keep, dict(context.views)))

    def _write(self, write: Callable[[], object]) -> None:
        if self._stage.context.mode.is_live:
            self._stage.do(write, lambda _: None, self._stage.note)


class FirstStart:
    """Reads the config and the project file for the text of the first start. Without a file that records the
    first start (in a recording), it does nothing."""

    def __init__(self, stage: Stage, file: Path | None, settings: Settings | None) -> None:
        self._stage = stage
        self._file = file
        self._settings = settings

    @property
    def handlers(self) -> Handlers:
        return {messages.FirstLookWanted: self._look, messages.FirstKeyPressed: self._end}

    def _look(self, message: messages.FirstLookWanted) -> None:
        if self._file is not None and self._settings is not None:
            self._stage.do_aside(partial(_here, self._file, self._settings), self._show, lambda _: None)

    def _show(self, here: Here | None) -> None:
        if here is not None and not self._stage.context.is_first_key_pressed:
            self._stage.context.here = here
            self._stage.redraw()

    def _end(self, message: messages.FirstKeyPressed) -> None:
        if self._file is not None:
            self._stage.do_aside(partial(first_start.note_first, self._file), lambda _: None, lambda _: None)


def _here(file: Path, settings: Settings) -> Here | None:
    return first_start.what_is_here(settings, Path.cwd()) if first_start.is_first(file) else None
