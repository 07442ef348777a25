"""The GPUs screen: the use of one job's GPUs, each or all together, now and in the past hour; its processes
and its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.widget import Widget

from coach.analysis.measured.gpu_quantities import GpuKey
from coach.lookback.history import History
from coach.render.text import BLANK, Line, clip, crumb, line, muted, printable
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.render.gpu_history import history_lines, process_lines, searched
from coach.tui.render.gpus import (
    grid_lines,
    heading_line,
    heat_map_lines,
    newest_samples,
    source_lines,
    spread_lines,
    trouble_lines,
)
from coach.tui.render.nodes import gap_lines
from coach.tui.render.ranks import MAX_LISTED, rank_view_lines, shown_quantity
from coach.tui.render.table import natural
from coach.tui.widgets.drawn import DrawnView
from coach.tui.widgets.filter_line import WORDS, FilterLine
from coach.tui.widgets.lines import LinesView

VIEWS = ("gpus", "history", "processes", "ranks")
MAX_GRID = 16
"""The most GPUs on several nodes that are shown as a grid; more are shown as a heat map."""


def _newest_word_s(history: History, nodes: Sequence[str], otherwise_s: float) -> float:
    """The time to show for an ended job: its last report from a node."""
    origins = [origin.time_s for node in nodes if (origin := history.origin(node)) is not None]
    return max(origins, default=otherwise_s)


class GpusScreen(CoachScreen, screen="gpus"):
    """One job's GPUs, live."""

    def __init__(self, context: Context, target: str) -> None:
        super().__init__(context, ("cluster", crumb(context.run(target) is not None, target), "gpus"))
        self.targets = (target,)
        self._target = target
        self._view = 0
        self._quantity = 0
        self._rank_quantity: int | None = None
        """The chosen quantity; None: the one in which a rank deviates most."""
        self._words: tuple[str, ...] = ()

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        yield DrawnView(id="telemetry")
        yield FilterLine()

    def on_mount(self) -> None:
        self.body.focus()
        history = self.context.session.history(self._target)
        if not history.gpus and len(history.ranks) > 1:
            self._view = VIEWS.index("ranks")

    @property
    def body(self) -> DrawnView:
        return self.query_one("#telemetry", DrawnView)

    def show(self) -> None:
        context = self.context
        target, run = context.snapshot.targets.get(self._target), context.run(self._target)
        history = context.session.history(self._target)
        gpus = self._matching(history)
        nodes = sorted({*history.nodes, *(node for node, _ in history.gpus)}, key=natural)
        has_ended = target is not None and target.has_ended
        now_s = _newest_word_s(history, nodes, context.now_s) if has_ended else context.now_s
        self._show_heading(history, nodes, gpus, now_s, context.now_s - now_s if has_ended else None)
        has_gpus = None if run is None or run.num_gpus is None else run.num_gpus > 0
        gaps = target.sensor_gaps if target is not None else ()

        def draw(width: int, height: int) -> Sequence[Line]:
            if VIEWS[self._view] == "processes":
                return self._process_lines(history, nodes, now_s, width)
            if VIEWS[self._view] == "ranks":
                return rank_view_lines(history, run, self._rank_quantity, width, height)
            if VIEWS[self._view] == "history":
                return history_lines(history, gpus, now_s, width, height)
            return [
                *self._gpu_lines(history, gpus, has_gpus, now_s, width, height),
                *gap_lines(gaps, has_gpus, width),
            ]

        words = f' · filter "{printable(" ".join(self._words))}"' if self._words else ""
        self.body.draw(VIEWS[self._view] + words, draw)

    def _show_heading(
        self,
        history: History,
        nodes: Sequence[str],
        gpus: Sequence[GpuKey],
        now_s: float,
        ended_s: float | None,
    ) -> None:
        width, run = self.app.size.width, self.context.run(self._target)
        num_nodes = run.resources.get("num_nodes") if run is not None else None
        told = source_lines(history, nodes, num_nodes if isinstance(num_nodes, int) else None, now_s)
        heading = [
            heading_line(history, gpus, VIEWS, self._view, ended_s, width, self.context.label),
            *(clip(row, width) for row in told),
        ]
        self.pane("#heading").fit_lines(heading)

    def _process_lines(
        self, history: History, nodes: Sequence[str], now_s: float, width: int
    ) -> Sequence[Line]:
        shown = [
            each
            for node in nodes
            for each in history.processes(node)
            if all(word in searched(each) for word in self._words)
        ]
        return process_lines(shown, now_s, width)

    def _matching(self, history: History) -> list[GpuKey]:
        found = [
            (node, gpu)
            for node, gpu in history.gpus
            if all(word in f"{node} gpu{gpu}".lower() for word in self._words)
        ]
        return sorted(found, key=lambda key: (natural(key[0]), key[1]))

    def _gpu_lines(
        self,
        history: History,
        gpus: Sequence[GpuKey],
        has_gpus: bool | None,
        now_s: float,
        width: int,
        height: int,
    ) -> list[Line]:
        if not gpus:
            why = " no GPU matches the filter" if self._words else " no GPU was measured"
            if self.context.run(self._target) is None:
                why += f"; {self.context.label('attach')} on the job measures inside it"
            return [line(muted(" no GPU was requested" if has_gpus is False else why))]
        fresh = newest_samples(history, gpus, now_s)
        samples = list(fresh.values())
        compared = [BLANK, *spread_lines(samples, len(gpus), width)] if len(gpus) > 1 else []
        compared += trouble_lines(history, gpus, now_s, width)
        if not self._is_heat(gpus):
            return [*grid_lines(history, gpus, now_s, width), *compared]
        heat = heat_map_lines(history, gpus, fresh, self._quantity, width, height)
        return [*(heat or grid_lines(history, gpus, now_s, width)), *compared]

    def _is_heat(self, gpus: Sequence[GpuKey]) -> bool:
        return len(gpus) > MAX_GRID and len({node for node, _ in gpus}) > 1

    def action_view(self) -> None:
        self._view = (self._view + 1) % len(VIEWS)
        self.body.scroll_to(y=0, animate=False)
        self.refresh_all()

    def action_quantity(self) -> None:
        history = self.context.session.history(self._target)
        if VIEWS[self._view] == "ranks" and len(history.ranks) > MAX_LISTED:
            shown = self._rank_quantity
            self._rank_quantity = (shown_quantity(history) if shown is None else shown) + 1
            self.refresh_all()
        elif VIEWS[self._view] == "gpus" and self._is_heat(self._matching(history)):
            self._quantity += 1
            self.refresh_all()
        else:
            key = self.context.label("quantity")
            self.note(f"{key} changes the quantity of a heat map: there is no heat map here")

    def action_explain(self) -> None:
        gpus = self._matching(self.context.session.history(self._target))
        self.want_explained(self._target, gpus=gpus)

    def action_filter(self) -> None:
        self.query_one(FilterLine).ask(self.body, " ".join(self._words), self._filter, WORDS)

    def _filter(self, text: str) -> None:
        self._words = tuple(text.lower().split())

    def on_input_changed(self, event: FilterLine.Changed) -> None:
        self.query_one(FilterLine).apply()
        self.refresh_all()

    def go_back(self) -> bool:
        filter_line = self.query_one(FilterLine)
        if not filter_line.display and not self._words:
            return False
        self._words = ()
        filter_line.close()
        self.refresh_all()
        return True
