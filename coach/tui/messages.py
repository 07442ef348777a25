"""Requests that screens post and the app answers, so that no screen imports another screen or a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from coach.model.judging.finding import Diagnosis
from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.cluster import Job, Node
from coach.model.slurm.job_action import JobAction, Verb
from coach.model.snapshot import Snapshot
from coach.model.training.log_window import LogLook
from coach.model.training.stacks import StacksPlan
from coach.tui.question import Question
from coach.workflows.launching.relaunch_offer import RelaunchOffer

if TYPE_CHECKING:
    from coach.analysis.queueing.arrays import FoldedJob
    from coach.model.training.run import Run
    from coach.workflows.launching.launchables import Launchable


@dataclass(eq=False)
class Updated(Message):
    """New data arrived. Posted from the session's thread."""

    snapshot: Snapshot


@dataclass(eq=False)
class Done(Message):
    """Work in a thread has ended. Posted from that thread."""

    callback: Callable[[], object]


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


@dataclass(eq=False)
class ExplainWanted(Request):
    """Explain the row under the cursor, or the subject that is given here.

    `target`: the run or job whose finding belongs to the row. `is_finding_alone`: explain only that finding.
    `job`: the job of the row. `gpus`, `node`, `page` (a job's row and its run): the subject of a screen
    without rows.
    """

    target: str | None = None
    is_finding_alone: bool = False
    job: Job | None = None
    gpus: Sequence[tuple[str, int]] | None = None
    node: Node | None = None
    page: tuple[FoldedJob | None, Run | None] | None = None


@dataclass(eq=False)
class PlanOpened(Request):
    """Show the plan of a launch request that another screen filled in; `title` is the recipe's name."""

    request: LaunchRequest
    title: str


@dataclass(eq=False)
class LadderOpened(Request):
    """Show the plan of the ladder that has this recipe as a rung; `recipe` is its name in a launch."""

    recipe: str


class LaunchablesWanted(Request):
    """Look for programs and recipes to launch from the working directory."""


@dataclass(eq=False)
class LaunchableOpened(Request):
    """Show the plan of a row of the New Launch screen."""

    row: Launchable


class RecipesWanted(Request):
    """Read all recipes."""


class RememberedWanted(Request):
    """Read the user's ended jobs from coach's memory: they may have left the queue."""


class ReportWanted(Request):
    """Run the doctor's checks of this cluster or machine."""


@dataclass(eq=False)
class RuleWanted(Request):
    """Look up the page of a rule."""

    code: str


class DrillsWanted(Request):
    """Read the drills, and the user's progress in them."""


@dataclass(eq=False)
class JudgementWanted(Request):
    """Read the learner's progress in the run of a drill."""

    run_id: str


@dataclass(eq=False)
class AnswerGiven(Request):
    """Judge the cause that the learner named; None: the learner gave up."""

    run_id: str
    cause: str | None


@dataclass(eq=False)
class ScriptRequested(Request):
    """Make the script of a launch, and its diff from the recipe's defaults."""

    request: LaunchRequest
    edit: int


@dataclass(eq=False)
class PlanRequested(Request):
    """Make the plan again from a changed request."""

    request: LaunchRequest
    edit: int


@dataclass(eq=False)
class SubmitRequested(Request):
    """Submit the launch that the plan shows."""

    plan: Plan


@dataclass(eq=False)
class CopyRequested(Request):
    """Copy the findings of a job as Markdown; without a diagnosis its name."""

    name: str
    diagnosis: Diagnosis | None


@dataclass(eq=False)
class LogWanted(Request):
    """Read a window of a log.

    `owner`: the uid for whom the files are opened; None: they may be anybody's. `counted` gives, for each
    file, the bytes that were read to judge the job and the number of lines in them. `is_wanted` may be called
    from any thread; False stops a search.
    """

    look: LogLook
    owner: int | None
    counted: Mapping[str, tuple[int, int]]
    is_wanted: Callable[[], bool]
    on_progress: Callable[[LogLook, int, int], object]


@dataclass(eq=False)
class PagerRequested(Request):
    """Show a file in the user's own pager."""

    file: str


@dataclass(eq=False)
class ActionRequested(Request):
    """Ask the user to confirm an action on jobs. `targets` are job ids, or run ids on the local backend;
    `label` is their text on the screen."""

    verb: Verb
    targets: tuple[str, ...]
    label: str


@dataclass(eq=False)
class LimitEntered(Request):
    """Make the commands of a new time limit."""

    targets: tuple[str, ...]
    time_limit_s: int


@dataclass(eq=False)
class ActionConfirmed(Request):
    """Perform the action that the user confirmed."""

    action: JobAction


@dataclass(eq=False)
class StacksWanted(Request):
    """Make the command that takes the stacks of a job."""

    target: str


@dataclass(eq=False)
class StacksRequested(Request):
    """Take the stacks by the command that was shown."""

    plan: StacksPlan


@dataclass(eq=False)
class FixRequested(Request):
    """Show the changes of a fix. `index` counts through the fixes of all findings, primary first. A trial
    runs only a few steps.

    `stays`: show it on the screen that asks, not on a new one. `job`: the screen's row of a job that coach
    did not launch.
    """

    run_id: str
    index: int = 0
    is_trial: bool = False
    stays: bool = False
    job: Job | None = None


@dataclass(eq=False)
class RelaunchRequested(Request):
    """Launch the child run of a fix; `parent_choice` says what happens to a running parent."""

    offer: RelaunchOffer
    parent_choice: str


class SavedViewsChanged(Request):
    """The user saved or deleted a named view."""


class FirstLookWanted(Request):
    """The first screen is open. At the first start of coach, read what the config and the project file offer
    here."""


class FirstKeyPressed(Request):
    """The user pressed the first key: remove the text of the first start."""


class ViewsChanged(Request):
    """The user changed the view of a table: save it."""


@dataclass(eq=False)
class Wanted(Request):
    """A screen needs the answers to questions that are asked on demand. `is_anew`: ask even if the last
    answer is fresh."""

    question: Question
    is_anew: bool = False
