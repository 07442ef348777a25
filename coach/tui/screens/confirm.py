"""The question before an action on jobs: the exact commands, confirmed by `y`, never by Enter."""

from __future__ import annotations

from collections.abc import Iterator

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Static

from coach.analysis.spelling.slurm import whole_minutes
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, Verb
from coach.render.text import line, muted
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.messages import ActionConfirmed, LimitEntered
from coach.tui.render.action import action_lines, heading
from coach.tui.render.training import progress_words
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.text_field import TextField


class ConfirmScreen(DecisionScreen, screen="confirm"):
    """The question for one action on one or more jobs. For a new time limit, the user first types it here."""

    def __init__(self, context: Context, verb: Verb, targets: tuple[str, ...], label: str) -> None:
        title = f"{verb} {targets[0]}" if len(targets) == 1 else f"{verb} {len(targets)} jobs"
        super().__init__(context, ("cluster", title), "preparing the command…")
        self._verb = verb
        self._targets = targets
        self._label = label
        self._action: JobAction | None = None
        self.entered: str | None = None
        """The text of the time limit for which the commands were requested."""
        if self._needs_limit:
            self._busy = None

    @property
    def _needs_limit(self) -> bool:
        return self._verb is Verb.TIMELIMIT and self._action is None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        if self._verb is Verb.TIMELIMIT:
            with Horizontal(id="limit"):
                yield Static(" new time limit", classes="plan-label", markup=False)
                yield TextField(
                    placeholder="30:00 or 1-12:00:00", restrict=r"[0-9:\-]*", classes="plan-field"
                )
        yield LinesView(id="body")
        yield LinesView(id="answer", can_focus=False)

    def on_mount(self) -> None:
        self.query_one("#body" if self._verb is not Verb.TIMELIMIT else TextField).focus()

    def set_action(self, action: JobAction) -> None:
        self._action = action
        if self._verb is Verb.RESUBMIT and action.jobs:  # of an array row only some tasks may be submitted
            self._label = f"{', '.join(action.job_ids)} {action.jobs[0].name}"
        self.ask()

    def refuse(self, error: UserError) -> None:
        super().refuse(error)
        for field in self.query(TextField):
            field.focus()

    def on_input_changed(self, event: TextField.Changed) -> None:
        """Close the guard: the shown commands no longer match the typed limit."""
        if event.input.value != self.entered:
            self.entered, self._action = None, None
            self.ask()

    def on_input_submitted(self, event: TextField.Submitted) -> None:
        self.entered = event.value
        try:
            limit_s = whole_minutes(parse_time(event.value, "new time limit"))
        except UserError as error:
            self.refuse(error)
            return
        self.query_one("#body").focus()
        self.work("preparing the command…")
        self.post_message(LimitEntered(self._targets, limit_s))

    def show(self) -> None:
        width = self.app.size.width
        self.pane("#heading").set_lines([heading(self._verb, self._label, len(self._targets), width)])
        rows = []
        if self._action is not None:
            rows = action_lines(self._action, width, self._progress(self._action))
        self.pane("#body").set_lines(rows)
        if self._needs_limit and self._error is None and not self.is_busy:
            answer = [line(muted(" Enter shows the exact command · Esc leaves with nothing done"))]
        else:
            answer = self.answer_lines("y", "runs exactly this", width)
        self.pane("#answer").fit_lines(answer)

    def _progress(self, action: JobAction) -> dict[str, str]:
        """Job id → how far the job is, for the jobs whose files are read."""
        trainings, found = self.context.trainings, {}
        for job in action.jobs:
            run = self.context.run_of_job(job.job_id)
            found[job.job_id] = progress_words(trainings.of(run.run_id if run is not None else job.job_id))
        return found

    def action_confirm(self) -> None:
        if self._action is None or not self.admits_key():
            return
        if any(field.value != self.entered for field in self.query(TextField)):
            return
        self.work(f"{self._verb}…")
        self.post_message(ActionConfirmed(self._action))
