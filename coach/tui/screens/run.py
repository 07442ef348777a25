"""The Run screen: what is wrong on top, then how it goes, then what its nodes do and its log says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.containers import Horizontal
from textual.widget import Widget

from coach.analysis.comparing.steady_state import newest_step
from coach.analysis.judging.no_finding import why_no_fix
from coach.model.snapshot import TargetSnapshot
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_run
from coach.tui.keys.key import Key
from coach.tui.messages import FixRequested, ScreenOpened
from coach.tui.mode import Mode
from coach.tui.render.finding import cause_place, findings_lines, outcome_lines
from coach.tui.render.nodes import node_lines, rank_lines
from coach.tui.render.run import (
    loss_points,
    recent_rate,
    step_time_lines,
    summary_lines,
    throughput_points,
)
from coach.tui.render.runs import short_id
from coach.tui.render.text import BLANK
from coach.tui.widgets.curve import Curve
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView

WIDE = 110


class RunScreen(JobKeys, CoachScreen, screen="run"):
    """One run, live."""

    def __init__(self, context: Context, run_id: str) -> None:
        super().__init__(context, ("cluster", f"run {short_id(run_id)}"))
        self.job_choice = JobChoice(self, self._chosen)
        self.run_id = run_id
        self.targets = (run_id,)
        self._log: str | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="summary", can_focus=False)
        yield LinesView(id="findings", classes="pane")
        with Horizontal(id="curves"):
            yield Curve("loss", id="loss")
            yield Curve("throughput", unit="samples/s", starts_at_zero=True, id="throughput")
        with Horizontal(id="devices"):
            yield LinesView(id="nodes", classes="pane")
            yield LinesView(id="ranks", classes="pane")
        yield LogView(id="log")

    def on_mount(self) -> None:
        self.pane("#findings").set_title("findings")
        self.pane("#nodes").set_title("step and nodes")
        self.pane("#ranks").set_title("ranks")
        self.query_one("#log").focus()

    def show(self) -> None:
        context = self.context
        run, target = context.run(self.run_id), context.snapshot.targets.get(self.run_id)
        history = context.session.history(self.run_id)
        width, height = self.app.size
        is_wide = width >= WIDE
        state = context.state_of(run) if run is not None else target.state if target else None
        newest = newest_step(history)
        rate = recent_rate(history.curve)
        if rate is not None:
            context.rates[self.run_id] = rate
        summary = summary_lines(run, target, state, newest, context.now_s, width)
        self.pane("#summary").styles.height = max(1, len(summary))
        self.pane("#summary").set_lines(summary)

        self._show_cause(width, height, has_curves=bool(history.curve))
        self.query_one("#curves").display = bool(history.curve)
        self.query_one("#curves").styles.height = 5 if height < 30 else max(7, height // 4)
        self.query_one("#loss", Curve).set_points(loss_points(history.curve))
        self.query_one("#throughput", Curve).set_points(throughput_points(history.curve))

        ranks = rank_lines(history, width // 2 - 1 if is_wide else width - 1)
        self.query_one("#ranks").display = is_wide
        if is_wide:
            self.pane("#ranks").set_lines(ranks)
        gaps = target.sensor_gaps if target else ()
        has_gpus = None if run is None or run.num_gpus is None else run.num_gpus > 0
        pane_width = width // 2 - 1 if is_wide else width - 1
        device = step_time_lines(history.curve, pane_width)
        device += node_lines(history, gaps, has_gpus, context.now_s, pane_width)
        self.query_one("#devices").styles.height = 1 + min(
            max(len(device), len(ranks) if is_wide else 0), 4 if height < 30 else max(5, height // 5)
        )
        self.pane("#nodes").set_lines(device if is_wide else [*device, BLANK, *ranks])
        self._show_log(target)

    def _show_cause(self, width: int, height: int, *, has_curves: bool) -> None:
        """What ended it; where nothing was measured it has the room of the curves too."""
        diagnosis = self.context.diagnoses.get(self.run_id)
        rows = outcome_lines(diagnosis, width - 1)
        rows += findings_lines(diagnosis, width - 1, self.context.mode is Mode.LIVE)
        most = (3 if has_curves else 8) if height < 30 else (6 if has_curves else 12)
        self.pane("#findings").styles.height = 1 + min(max(1, len(rows)), most)
        self.pane("#findings").set_lines(rows)

    def _show_log(self, target: TargetSnapshot | None) -> None:
        tails = {tail.file.rsplit("/", 1)[-1]: tail for tail in (target.log_tails if target else ())}
        place = cause_place(self.context.diagnoses.get(self.run_id))
        proof = next((name for name, tail in tails.items() if place and tail.file == place[0]), None)
        name = self._log or proof or _first_log(tails)
        marked = place[1] if place is not None and name == proof else None
        self.query_one("#log", LogView).set_tail(tails.get(name), name, marked)

    def action_log(self, name: str) -> None:
        self._log = name
        self.refresh_all()
        self.query_one("#log").focus()

    def action_open(self) -> None:
        self.post_message(ScreenOpened("finding", self.run_id))

    def keys(self) -> tuple[Key, ...]:
        run, keys = self.context.run(self.run_id), super().keys()
        is_drill = run is not None and run.drill is not None
        return tuple(key for key in keys if is_drill or key.id != "answer")

    def action_answer(self) -> None:
        run = self.context.run(self.run_id)
        if run is None or run.drill is None:
            self.note("this is no drill: P lists them")
        else:
            self.post_message(ScreenOpened("answer", self.run_id))

    def action_gpus(self) -> None:
        self.post_message(ScreenOpened("gpus", self.run_id, self.crumbs[-1]))

    def action_fix(self) -> None:
        if self.is_off("fix"):
            return
        diagnosis = self.context.diagnoses.get(self.run_id)
        fixes = [fix for finding in (diagnosis.findings if diagnosis else ()) for fix in finding.fixes]
        if any(fix.changes for fix in fixes):
            self.post_message(FixRequested(self.run_id))
        elif fixes:
            self.post_message(ScreenOpened("finding", self.run_id))
        else:
            self.note(why_no_fix(diagnosis))

    def action_compare(self) -> None:
        run = self.context.run(self.run_id)
        children = [r.run_id for r in self.context.snapshot.runs if r.parent_run_id == self.run_id]
        if run is not None and run.parent_run_id:
            self.post_message(ScreenOpened("compare", run.parent_run_id, self.run_id))
        elif children:
            self.post_message(ScreenOpened("compare", self.run_id, max(children)))
        elif run is not None and run.sweep is not None:
            self.post_message(ScreenOpened("group", run.sweep.group_id))
        else:
            self.note("no parent or child to compare with; m on the Runs screen marks two runs")

    def action_why(self) -> None:
        run = self.context.run(self.run_id)
        if run is not None and run.job_id is not None:
            self.post_message(ScreenOpened("job", run.job_id))
        else:
            self.note("this run has no job in the queue")

    def _chosen(self) -> list[Chosen]:
        run = self.context.run(self.run_id)
        return [choose_run(self.context, run)] if run is not None else []


def _first_log(tails: Mapping[str, object]) -> str:
    return "stdout.log" if "stdout.log" in tails or not tails else next(iter(tails))
