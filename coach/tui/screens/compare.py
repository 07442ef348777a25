"""The Compare screen: the measured effect of a change, and the curves of the runs over each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.widget import Widget

from coach.analysis.comparing.two_runs import compare
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import SourceStatus
from coach.model.training.run import Run
from coach.render.text import BLANK, Line, beside, line, muted
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.render.compare import compare_lines, differing
from coach.tui.render.overlay import Overlaid, OverlayView, overlay_lines, summary_lines
from coach.tui.widgets.drawn import DrawnView

_WIDE = 160
BY_TIME = "by time"
_CURVES = ("by step", BY_TIME)
_LEAST_CURVE = 11
"""The least number of lines for the curves below a table. If there are fewer, a key switches between table
and curves."""


class CompareScreen(CoachScreen, screen="compare"):
    """Two runs as a table and as curves, the parent or the older run first; more than two runs only as
    curves."""

    def __init__(self, context: Context, before: str, after: str, *more: str) -> None:
        super().__init__(context, ("cluster", "compare"))
        run_ids = (before, after, *more)
        self._run_ids = run_ids
        self._view = 0
        self._views: tuple[str, ...] = _CURVES
        """The views through which the key `view` cycles. They depend on the size that was drawn last."""
        self._is_log = False
        self._quantity = 0
        self.targets = run_ids

    def compose_body(self) -> Iterator[Widget]:
        yield DrawnView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        runs = self._overlaid()
        table = self._table_lines if len(runs) == 2 else None

        def draw(width: int, height: int) -> Sequence[Line]:
            if table is None:
                self._views = _CURVES
                told = [*summary_lines(runs, width), BLANK]
                return [*told, *self._curve_lines(runs, width, height - len(told))]
            half = width // 2 - 1
            if width >= _WIDE:
                self._views = _CURVES
                curves = self._curve_lines(runs, half, height - 4)
                return beside(table(half), [*summary_lines(runs, half), BLANK, *curves], half, 2)
            return self._stacked_lines(table(width), runs, width, height)

        self.query_one(DrawnView).draw(f"{len(runs)} runs", draw)

    def _stacked_lines(
        self, rows: list[Line], runs: Sequence[Overlaid], width: int, height: int
    ) -> list[Line]:
        """The table above the curves if both fit, else one of them."""
        told = summary_lines(runs, width)
        room = height - len(rows) - len(told) - 1
        if room >= _LEAST_CURVE:
            self._views = _CURVES
            return [*rows, BLANK, *told, *self._curve_lines(runs, width, room)]
        self._views = ("the table", *_CURVES)
        if self._view % len(self._views) == 0:
            return [*rows, line(muted(f" {self.context.label('view')} shows their curves over each other"))]
        return [*told, *self._curve_lines(runs, width, height - len(told))]

    def _table_lines(self, width: int) -> list[Line]:
        snapshot, history = self.context.snapshot, self.context.session.history
        before, after = self._run_ids[:2]
        unread = [name for name in (before, after) if self._is_unread(name)]
        result = None
        if not unread:
            targets, diagnoses = snapshot.targets, snapshot.diagnoses
            result = compare(
                targets[before],
                history(before),
                targets[after],
                history(after),
                (diagnoses[before], diagnoses[after]),
            )
        return compare_lines(result, self._side(before), self._side(after), width, unread)

    def _is_unread(self, run_id: str) -> bool:
        """True while the metrics and the log of a run were not read, or not since it ended."""
        snapshot, history = self.context.snapshot, self.context.session.history(run_id)
        target, diagnosis = snapshot.targets.get(run_id), snapshot.diagnoses.get(run_id)
        if target is None or diagnosis is None or (target.has_ended and not is_final(diagnosis.state)):
            return True
        sources = [snapshot.sources.get(f"{kind}:{run_id}") for kind in ("metrics", "log")]
        if not any(sources) and not history.curve:
            return True
        end_s = target.now_s if target.has_ended else None
        return self._has_older(sources, end_s) or any(tail.unread_bytes for tail in target.log_tails)

    def _has_older(self, sources: Iterable[SourceStatus | None], end_s: float | None) -> bool:
        """True if one of the sources has not answered since the end of its run."""
        if end_s is None or end_s > self.context.snapshot.now_s:  # of a clock that is ahead
            return False
        answered = (each for each in sources if each is not None and each.error is None)
        return any(each.data_time_s is not None and each.data_time_s < end_s for each in answered)

    def _curve_lines(self, runs: Sequence[Overlaid], width: int, height: int) -> list[Line]:
        views = self._views
        now, then = views[self._view % len(views)], views[(self._view + 1) % len(views)]
        view = OverlayView(now == BY_TIME, self._is_log, self._quantity, then)
        return overlay_lines(runs, view, width, max(_LEAST_CURVE, height), self.context.label)

    def _overlaid(self) -> list[Overlaid]:
        known = [self.context.run(run_id) for run_id in self._run_ids]
        differ = differing([run for run in known if run is not None])
        return [
            Overlaid(
                run_id,
                self.context.state_of(run) if run is not None else None,
                self.context.session.history(run_id),
                differ.get(run_id, ""),
            )
            for run_id, run in zip(self._run_ids, known, strict=True)
        ]

    def _side(self, run_id: str) -> tuple[str, Run | None, str | None]:
        run = self.context.run(run_id)
        return run_id, run, self.context.state_of(run) if run is not None else None

    def action_view(self) -> None:
        self._view += 1
        self.refresh_all()

    def action_scale(self) -> None:
        self._is_log = not self._is_log
        self.refresh_all()

    def action_quantity(self) -> None:
        self._quantity += 1
        self.refresh_all()
