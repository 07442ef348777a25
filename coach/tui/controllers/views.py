"""The ways to look at the tables: read when coach opens, kept when somebody chooses another."""

from __future__ import annotations

from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.mode import Mode
from coach.tui.stage import Stage
from coach.workflows.watching.table_views import ViewStore


class Views:
    """Nothing is kept where nothing may be changed."""

    def __init__(self, stage: Stage, store: ViewStore | None) -> None:
        self._stage = stage
        self._store = store
        if store is not None:
            stage.context.views, stage.context.views_problem = store.read()

    @property
    def handlers(self) -> Handlers:
        return {messages.ViewsChanged: self._keep}

    def _keep(self, message: messages.ViewsChanged) -> None:
        store, views = self._store, dict(self._stage.context.views)
        if store is not None and self._stage.context.mode is Mode.LIVE:
            self._stage.do(lambda: store.keep(views), lambda _: None, self._stage.note)
