"""The Doctor screen: the parts of this cluster or machine that work, those that do not, and what to do."""

from __future__ import annotations

from coach.model.errors import UserError
from coach.model.judging.doctor_report import Report
from coach.render.text import Line, Span, line
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.messages import ReportWanted
from coach.tui.render.doctor import report_lines
from coach.tui.render.error import error_lines


class DoctorScreen(PageScreen, screen="doctor"):
    """The doctor's report. It examines the current machine, even while a recording is shown."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._report: Report | None = None
        self._error: UserError | None = None

    def on_mount(self) -> None:
        self.post_message(ReportWanted())

    def ask_again(self) -> bool:
        self._report = self._error = None
        self.refresh_all()
        self.post_message(ReportWanted())
        return True

    def set_report(self, report: Report) -> None:
        self._report = report
        self.refresh_all()

    def refuse(self, error: UserError) -> None:
        self._error = error
        self.refresh_all()

    def lines(self, width: int) -> list[Line]:
        if self._error is not None:
            return error_lines(self._error, width)
        if self._report is None:
            return [line(Span(" checking everything, five seconds at most…", "accent"))]
        return report_lines(self._report, width)
