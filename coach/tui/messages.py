"""Requests that screens post and the app answers, so that no screen imports another screen or a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from coach.model.judging.finding import Diagnosis
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.cluster import Job, Node
from coach.model.slurm.job_action import JobAction, Verb
from coach.model.snapshot import Snapshot
from coach.model.training.log_window import LogLook
from coach.model.training.stacks import StacksPlan
from coach.tui.ports import RelaunchOffer
from coach.tui.question import Question

if TYPE_CHECKING:
    from coach.analysis.queueing.arrays import FoldedJob
    from coach.model.training.run import Run
    from coach.workflows.launching.launchables import Launchable


class Updated(Message):
    """New data arrived. Posted from the session's thread."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Done(Message):
    """Work in a thread has ended. Posted from that thread."""

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self.callback = callback


class Request(Message):
    """Base of all requests of screens to the app. The app has one table of handlers by the type of
    request."""

    asked_by: object = None
    """The screen whose key was pressed."""


class ScreenOpened(Request):
    """Open the screen of this name; the arguments go to the constructor of its class."""

    def __init__(self, name: str, *arguments: object) -> None:
        super().__init__()
        self.name = name
        self.arguments = arguments


class ScreenShown(Request):
    """A screen came to the top: follow its runs and jobs."""


class ExplainWanted(Request):
    """Explain the row under the cursor, or the subject that is given here.

    `target`: the run or job whose finding belongs to the row. `is_finding_alone`: explain only that finding.
    `job`: the job of the row. `gpus`, `node`, `page` (a job's row and its run): the subject of a screen
    without rows.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        is_finding_alone: bool = False,
        job: Job | None = None,
        gpus: Sequence[tuple[str, int]] | None = None,
        node: Node | None = None,
        page: tuple[FoldedJob | None, Run | None] | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.is_finding_alone = is_finding_alone
        self.job = job
        self.gpus = gpus
        self.node = node
        self.page = page


class PlanOpened(Request):
    """Show the plan of a launch request that another screen filled in; `title` is the recipe's name."""

    def __init__(self, request: LaunchRequest, title: str) -> None:
        super().__init__()
        self.request = request
        self.title = title


class LaunchablesWanted(Request):
    """Look for programs and recipes to launch from the working directory."""


class LaunchableOpened(Request):
    """Show the plan of a row of the New Launch screen."""

    def __init__(self, row: Launchable) -> None:
        super().__init__()
        self.row = row


class RecipesWanted(Request):
    """Read all recipes."""


class RememberedWanted(Request):
    """Read the user's ended jobs from coach's memory: they may have left the queue."""


class ReportWanted(Request):
    """Run the doctor's checks of this cluster or machine."""


class RuleWanted(Request):
    """Look up the page of a rule."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code


class DrillsWanted(Request):
    """Read the drills, and the user's progress in them."""


class JudgementWanted(Request):
    """Read the learner's progress in the run of a drill."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class AnswerGiven(Request):
    """Judge the cause that the learner named; None: the learner gave up."""

    def __init__(self, run_id: str, cause: str | None) -> None:
        super().__init__()
        self.run_id = run_id
        self.cause = cause


class ScriptRequested(Request):
    """Make the script of a launch, and its diff from the recipe's defaults."""

    def __init__(self, request: LaunchRequest, edit: int) -> None:
        super().__init__()
        self.request = request
        self.edit = edit


class PlanRequested(Request):
    """Make the plan again from a changed request."""

    def __init__(self, request: LaunchRequest, edit: int) -> None:
        super().__init__()
        self.request = request
        self.edit = edit


class SubmitRequested(Request):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


class CopyRequested(Request):
    """Copy the findings of a job as Markdown; without a diagnosis its name."""

    def __init__(self, name: str, diagnosis: Diagnosis | None) -> None:
        super().__init__()
        self.name = name
        self.diagnosis = diagnosis


class LogWanted(Request):
    """Read a window of a log."""

    def __init__(
        self,
        look: LogLook,
        owner: int | None,
        counted: Mapping[str, tuple[int, int]],
        is_wanted: Callable[[], bool],
        on_progress: Callable[[LogLook, int, int], object],
    ) -> None:
        """`owner`: the uid for whom the files are opened; None: they may be anybody's. `counted` gives, for
        each file, the bytes that were read to judge the job and the number of lines in them.

        `is_wanted` may be called from any thread; False stops a search.
        """
        super().__init__()
        self.look = look
        self.owner = owner
        self.counted = counted
        self.is_wanted = is_wanted
        self.on_progress = on_progress


class PagerRequested(Request):
    """Show a file in the user's own pager."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file


class ActionRequested(Request):
    """Ask the user to confirm an action on jobs. `targets` are job ids, or run ids on the local backend;
    `label` is their text on the screen."""

    def __init__(self, verb: Verb, targets: Sequence[str], label: str) -> None:
        super().__init__()
        self.verb = verb
        self.targets = tuple(targets)
        self.label = label


class LimitEntered(Request):
    """Make the commands of a new time limit."""

    def __init__(self, targets: Sequence[str], time_limit_s: int) -> None:
        super().__init__()
        self.targets = tuple(targets)
        self.time_limit_s = time_limit_s


class ActionConfirmed(Request):
    def __init__(self, action: JobAction) -> None:
        super().__init__()
        self.action = action


class StacksWanted(Request):
    """Make the command that takes the stacks of a job."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target


class StacksRequested(Request):
    def __init__(self, plan: StacksPlan) -> None:
        super().__init__()
        self.plan = plan


class FixRequested(Request):
    """Show the changes of a fix. `index` counts through the fixes of all findings, primary first. A trial
    runs only a few steps.

    `stays`: show it on the screen that asks, not on a new one. `job`: the screen's row of a job that coach
    did not launch.
    """

    def __init__(
        self,
        run_id: str,
        index: int = 0,
        *,
        is_trial: bool = False,
        stays: bool = False,
        job: Job | None = None,
    ) -> None:
        super().__init__()
        self.run_id = run_id
        self.index = index
        self.is_trial = is_trial
        self.job = job
        self.stays = stays


class RelaunchRequested(Request):
    def __init__(self, offer: RelaunchOffer, parent_choice: str) -> None:
        super().__init__()
        self.offer = offer
        self.parent_choice = parent_choice


class SavedViewsChanged(Request):
    """The user saved or deleted a named view."""


class FirstLookWanted(Request):
    """The first screen is open. At the first start of coach, read what the config and the project file offer
    here."""


class FirstKeyPressed(Request):
    """The user pressed the first key: remove the text of the first start."""


class ViewsChanged(Request):
    """The user changed the view of a table: save it."""


class Wanted(Request):
    """A screen needs the answers to questions that are asked on demand. `is_anew`: ask even if the last
    answer is fresh."""

    def __init__(self, question: Question, *, is_anew: bool = False) -> None:
        super().__init__()
        self.question = question
        self.is_anew = is_anew
