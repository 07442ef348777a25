"""The log of one own job, whole screen: both streams, wherever the job writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.widget import Widget

from coach.model.log import LogTail
from coach.tui.base import CoachScreen, Context
from coach.tui.keys import bindings_of
from coach.tui.render.text import clip, line, muted, printable
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView


class LogScreen(CoachScreen):
    """A pager that follows."""

    PLACE = "log"
    BINDINGS = bindings_of("log")

    def __init__(self, context: Context, target: str, label: str) -> None:
        super().__init__(context, ("cluster", f"log {target}"))
        self.TARGETS = (target,)
        self._target = target
        self._label = label
        self._is_stderr_shown = False

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        yield LogView(id="log")

    def on_mount(self) -> None:
        self.query_one("#log").focus()

    def show(self) -> None:
        target = self.context.snapshot.targets.get(self._target)
        tails = target.log_tails if target is not None else ()
        tail = self._pick(tails)
        files = " · ".join(printable(each.file) for each in tails)
        self.pane("#heading").set_lines(
            [
                clip(
                    line(f" {printable(self._label)} ", muted(files or "looking for its log…")),
                    self.app.size.width,
                )
            ]
        )
        status = self.context.snapshot.sources.get(f"log:{self._target}")
        if tail is None and status is not None and status.error is not None:
            self.note(f"its log: {status.error}")
        self.query_one("#log", LogView).set_tail(tail, "stderr" if self._is_stderr_shown else "stdout")

    def _pick(self, tails: Sequence[LogTail]) -> LogTail | None:
        """The stream that is wanted; where both go to one file, that."""
        wanted = [tail for tail in tails if _is_stderr(tail.file) is self._is_stderr_shown]
        return next(iter(wanted or tails), None) if len(tails) == 1 or wanted else None

    def action_log(self, name: str) -> None:
        target = self.context.snapshot.targets.get(self._target)
        self._is_stderr_shown = name.startswith("stderr")
        if target is not None and len(target.log_tails) == 1:
            self.note("both streams go to one file, or the other is not there yet")
        self.refresh_all()


def _is_stderr(file: str) -> bool:
    """By its name: sites and people call it `stderr.log`, `job-17.err`, `17.e`."""
    name = file.rpartition("/")[2].lower()
    return "stderr" in name or name.rpartition(".")[2] in ("err", "e", "error") or ".err" in name
