"""Every controller of the app, and one table of the handlers of all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coach.tui.controllers.drills import Drills
from coach.tui.controllers.handlers import Controller, Handlers
from coach.tui.controllers.job_actions import JobActions, Logs, RankStacks
from coach.tui.controllers.launches import Fixes, Launches, NewLaunches
from coach.tui.controllers.notices import JobNotices
from coach.tui.controllers.questions import Questions
from coach.tui.controllers.views import FirstStart, Views
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.tui.wiring import Opening


class Controllers:
    """All controllers. Those that the app calls by name are public."""

    def __init__(self, stage: Stage, opening: Opening, own: Handlers) -> None:
        """`own`: handlers of the app itself."""
        ports = opening.ports
        self.launches = Launches(stage, ports.recipes, ports.launches, opening.backend)
        self.questions = Questions(stage, ports.questions, opening.backend)
        self.notices = JobNotices(stage, ports.notices, opening.notices, opening.offered)
        each: tuple[Controller, ...] = (
            self.launches,
            self.questions,
            Fixes(stage, ports.fixes, self.launches.show_launched),
            JobActions(stage, ports.job_actions, self.launches.open_plan),
            RankStacks(stage, ports.stacks),
            Logs(stage, ports.logs),
            Drills(stage, ports.drills),
            Views(stage, opening.views),
            FirstStart(stage, opening.first_start, opening.settings),
            NewLaunches(stage, ports.launchables, self.launches.open_plan, opening.backend),
        )
        tables = (own, *(controller.handlers for controller in each))
        self.handlers: Handlers = {kind: call for table in tables for kind, call in table.items()}
