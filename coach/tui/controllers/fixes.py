"""Fixes: show the changes of a fix, as the plan of a child run or as a diff of the user's own script, and
launch the child run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.launch import Submitted
from coach.model.snapshot import TargetSnapshot
from coach.tui import messages
from coach.tui.bases.screen import CoachScreen
from coach.tui.controllers.handlers import Handlers
from coach.tui.ports import FixPort
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.launch.resubmission import Resubmission
    from coach.model.slurm.cluster import Job
    from coach.model.training.run import Run
    from coach.tui.bases.decision import DecisionScreen
    from coach.tui.screens.fix import FixScreen
    from coach.tui.screens.foreign_fix import ForeignFixScreen
    from coach.workflows.launching.foreign_fix import ForeignFixes


class Fixes:
    """Handles the requests for fixes. Their number counts the fixes of all findings of a run, those of the
    primary finding first."""

    def __init__(
        self, stage: Stage, fixes: FixPort, show_launched: Callable[[CoachScreen, Submitted], object]
    ) -> None:
        self._stage = stage
        self._port = fixes
        self._show_launched = show_launched

    @property
    def handlers(self) -> Handlers:
        return {messages.FixRequested: self._show, messages.RelaunchRequested: self._relaunch}

    def _show(self, message: messages.FixRequested) -> None:
        if self._stage.is_overtaken(message):
            return
        context = self._stage.context
        run, diagnosis = context.run(message.run_id), context.diagnoses.get(message.run_id)
        findings = diagnosis.findings if diagnosis is not None else ()
        fixes = [(finding, fix) for finding in findings for fix in finding.fixes if fix.changes]
        if run is None:
            self._show_foreign(message.run_id, diagnosis, message.job)
        elif fixes:
            self._show_offer(message, run, fixes)
        elif any(finding.fixes for finding in findings):
            self._stage.open("finding", message.run_id)
        else:
            self._stage.note(UserError("this run has no fix any more"))

    def _show_offer(
        self, message: messages.FixRequested, run: Run, fixes: Sequence[tuple[Finding, Fix]]
    ) -> None:
        context = self._stage.context
        index = message.index % len(fixes)
        screen: FixScreen = (
            self._stage.asker(message) if message.stays else self._stage.open("fix", message.run_id, index)
        )
        screen.index = index
        history = context.session.history(message.run_id)
        present = replace(run, state=context.state_of(run))
        target = context.snapshot.targets.get(message.run_id) or TargetSnapshot(message.run_id, None)
        finding, fix = fixes[index]
        self._stage.ask(
            screen,
            lambda: self._port.offer_fix(present, finding, fix, target, history, message.is_trial),
            screen.set_offer,
            what="working out the fix",
        )

    def _show_foreign(self, job_id: str, diagnosis: Diagnosis | None, known: Job | None) -> None:
        """Show the form that submits again a job that coach did not launch, with the changes that a finding
        suggests. `known` is its row, also of a job that has left the queue."""
        context = self._stage.context
        target, history = context.snapshot.targets.get(job_id), context.session.history(job_id)
        known = known or (target.job if target is not None else None)
        judged = replace(target, job=target.job or known) if target is not None else None
        screen: ForeignFixScreen = self._stage.open("foreign_fix", job_id)

        def work() -> tuple[Resubmission | UserError, ForeignFixes | None, tuple[str, ...]]:
            again: Resubmission | UserError
            try:
                again = self._port.find_again(job_id)
            except UserError as error:
                again = error
            if judged is None or judged.job is None or diagnosis is None or not diagnosis.findings:
                return again, None, ()
            return again, *self._port.foreign_fixes(judged, history, diagnosis)

        self._stage.ask(screen, work, lambda made: screen.set_fixes(*made), what="working out the fix")

    def _relaunch(self, message: messages.RelaunchRequested) -> None:
        screen: DecisionScreen | None = self._stage.asker(message)
        if screen is not None:
            self._stage.change(
                screen,
                lambda: self._port.relaunch(message.offer, message.parent_choice),
                lambda done: self._show_launched(screen, done),
                "relaunching",
            )
