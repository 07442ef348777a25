"""Sends notices about the user's jobs, in the ways that the config names. Once, it tells the user of these
ways."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coach.analysis.jobs.notices import Notice, Notices, has_active_jobs
from coach.config import NoticeSettings
from coach.model.snapshot import Snapshot
from coach.trusted import private_folder
from coach.tui.controllers.handlers import Handlers
from coach.tui.render.notice import OFFER, notice_text, tab_title, terminal_notice
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.tui.live_ports import LiveNotices


class JobNotices:
    """Checks each snapshot for news. A recording gives no notices."""

    def __init__(
        self, stage: Stage, port: LiveNotices, settings: NoticeSettings, offered: Path | None
    ) -> None:
        """`offered` is the file that records that notices were offered; None: they are never offered."""
        self._stage = stage
        self._port = port
        self._settings = settings
        self._offered = offered
        self._notices = Notices(stage.context.user or "")

    @property
    def handlers(self) -> Handlers:
        return {}

    def look(self, picture: Snapshot) -> None:
        """Send notices about the news in a snapshot."""
        if self._stage.context.mode.is_recorded:
            return
        if self._settings.is_on:
            self._tell(self._notices.notices(picture))
        elif self._offered is not None:
            self._offer(self._offered, picture)

    def _offer(self, file: Path, picture: Snapshot) -> None:
        if has_active_jobs(picture, self._stage.context.user or ""):
            self._offered = None
            self._stage.do_aside(partial(_make_once, file), self._show_offer, lambda _: None)

    def _show_offer(self, is_first: bool) -> None:
        if is_first:
            self._stage.toast(OFFER, is_bad=False)

    def _tell(self, notices: Iterable[Notice]) -> None:
        ways = self._settings.ways
        told = list(notices)
        for each in told:
            text = notice_text(each)
            if "toast" in ways:
                self._stage.toast(text, is_bad=each.is_bad)
            if "terminal" in ways:
                by_terminal = partial(self._by_terminal, text)
                self._stage.do_aside(partial(self._port.show_in_tmux, text), by_terminal, self._stage.note)
            if "title" in ways:
                self._stage.write_to_terminal(tab_title(each))
            if self._settings.command:
                self._stage.do_aside(partial(self._port.run_command, each), lambda _: None, self._stage.note)
        if told and "bell" in ways:
            self._stage.ring()

    def _by_terminal(self, text: str, is_in_tmux: bool) -> None:
        if not is_in_tmux:
            self._stage.write_to_terminal(terminal_notice(text, self._settings.term))


def _make_once(file: Path) -> bool:
    """Create the file. Returns True if it did not exist. If it cannot be written, returns False, so that the
    user is not asked at each start."""
    try:
        private_folder(file.parent)
        file.touch(mode=0o600, exist_ok=False)
    except OSError:
        return False
    return True
