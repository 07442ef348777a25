"""The log of one own job, whole screen: both streams, wherever the job writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.widget import Widget

from coach.model.training.log import LogFile, LogTail
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import PagerRequested
from coach.tui.mode import Mode
from coach.tui.render.text import clip, line, muted, printable
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView


def _trouble(file: LogFile) -> str:
    if file.is_found and file.problem is None:
        return ""
    return f" · {printable(file.path)}: {printable(file.problem or 'no such file, or not yet')}"


class LogScreen(CoachScreen, screen="log"):
    """A pager that follows."""

    def __init__(self, context: Context, target: str, label: str) -> None:
        super().__init__(context, ("cluster", label, "log"))
        self.targets = (target,)
        self._target = target
        self._label = label
        self._is_stderr_shown = False

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        yield LogView(id="log")

    def on_mount(self) -> None:
        self.query_one("#log").focus()

    def show(self) -> None:
        files, tails = self._told()
        file = files[min(int(self._is_stderr_shown), len(files) - 1)] if files else None
        where = " · ".join(printable(each.path) for each in files) or "looking for its log…"
        heading = line(f" {printable(self._label)}  ", muted(where))
        self.pane("#heading").set_lines([clip(heading, self.app.size.width)])
        tail = next((each for each in tails if file is None or each.file == file.path), None)
        name = "stdout and stderr" if len(files) == 1 else "stderr" if self._is_stderr_shown else "stdout"
        self.query_one("#log", LogView).set_tail(tail, name + (_trouble(file) if file is not None else ""))
        status = self.context.snapshot.sources.get(f"log:{self._target}")
        if not files and status is not None and status.error is not None:
            self.note(f"its log: {status.error}")

    def _told(self) -> tuple[Sequence[LogFile], Sequence[LogTail]]:
        """Where the streams go, standard output first, and their ends."""
        target = self.context.snapshot.targets.get(self._target)
        if target is None:
            return (), ()
        if target.log_files or target.run is None:
            return target.log_files, target.log_tails
        # A run's logs lie in its directory; nothing had to be found.
        tails = sorted(target.log_tails, key=lambda tail: not tail.file.endswith("stdout.log"))
        return [LogFile(tail.file, is_found=True) for tail in tails], tails

    def action_pager(self) -> None:
        files, _ = self._told()
        if not files:
            self.note("its log is not found yet")
        elif self.context.mode in (Mode.REPLAY, Mode.DEMO):
            self.note("this is a recording: the file is not here")
        else:
            self.post_message(PagerRequested(files[min(int(self._is_stderr_shown), len(files) - 1)].path))

    def action_log(self, name: str) -> None:
        self._is_stderr_shown = name.startswith("stderr")
        if len(self._told()[0]) == 1:
            self.note("both streams go to this file")
        self.refresh_all()
