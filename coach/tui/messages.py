"""What screens ask for. The app answers; no screen knows another one, or a workflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.message import Message

from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.job_action import JobAction, Verb
from coach.model.snapshot import Snapshot
from coach.model.training.stacks import StacksPlan
from coach.tui.ports import RelaunchOffer
from coach.tui.question import Question


class Updated(Message):
    """New data arrived. Sent from the session's thread."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Done(Message):
    """Work of the desk came to its end. Sent from its thread."""

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self.callback = callback


class ScreenShown(Message):
    """A screen came to the top: what it shows is to be followed."""


class ScreenAsked(Message):
    """Base of what a screen asks for: it leads to another screen, or is answered to the one that asked."""

    asked_by: object = None
    """The screen whose key was pressed."""


class RunOpened(ScreenAsked):
    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class JobOpened(ScreenAsked):
    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id


class FindingsOpened(ScreenAsked):
    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class GpusOpened(ScreenAsked):
    """Show the GPUs of a run or job that is followed; `label` names it as it is shown."""

    def __init__(self, target: str, label: str) -> None:
        super().__init__()
        self.target = target
        self.label = label


class CompareOpened(ScreenAsked):
    """`before` is the parent, or the older of two marked runs."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__()
        self.before = before
        self.after = after


class GroupOpened(ScreenAsked):
    """Show the runs of a sweep as one table."""

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id


class PlanOpened(ScreenAsked):
    """Show the plan of a launch as it was filled in elsewhere; `title` is the recipe's name."""

    def __init__(self, request: LaunchRequest, title: str) -> None:
        super().__init__()
        self.request = request
        self.title = title


class RecipesWanted(ScreenAsked):
    """Read all recipes."""


class ReportWanted(ScreenAsked):
    """Look at this place, as the doctor does."""


class DrillsWanted(ScreenAsked):
    """Read the drills, and how far their user is."""


class AnswerOpened(ScreenAsked):
    """Show the short list of a drill's run, or what was told of the answer."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class AnswerGiven(ScreenAsked):
    """Judge the cause that was named; None: given up."""

    def __init__(self, run_id: str, cause: str | None) -> None:
        super().__init__()
        self.run_id = run_id
        self.cause = cause


class ScriptRequested(Message):
    """Make the script of a launch, and what it changes from the recipe's defaults."""

    def __init__(self, request: LaunchRequest, edit: int) -> None:
        super().__init__()
        self.request = request
        self.edit = edit


class PlanRequested(Message):
    """Make the plan again from a changed request."""

    def __init__(self, request: LaunchRequest, edit: int) -> None:
        super().__init__()
        self.request = request
        self.edit = edit


class SubmitRequested(ScreenAsked):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


class ActionRequested(ScreenAsked):
    """Ask whether to do something to jobs: their ids, or run ids on the local backend. `label` names them as they are shown."""

    def __init__(self, verb: Verb, targets: Sequence[str], label: str) -> None:
        super().__init__()
        self.verb = verb
        self.targets = tuple(targets)
        self.label = label


class LimitEntered(ScreenAsked):
    """Make the commands of a new time limit."""

    def __init__(self, targets: Sequence[str], time_limit_s: int) -> None:
        super().__init__()
        self.targets = tuple(targets)
        self.time_limit_s = time_limit_s


class ActionConfirmed(ScreenAsked):
    def __init__(self, action: JobAction) -> None:
        super().__init__()
        self.action = action


class LogOpened(ScreenAsked):
    """Show the log of an own job. `target` is what is followed: a job id, or a run id."""

    def __init__(self, target: str, label: str) -> None:
        super().__init__()
        self.target = target
        self.label = label


class StacksOpened(ScreenAsked):
    """Show where every rank of a running job stands: a job id, or a run id."""

    def __init__(self, target: str, label: str) -> None:
        super().__init__()
        self.target = target
        self.label = label


class StacksWanted(ScreenAsked):
    """Make the command that takes the stacks of a job."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target


class StacksRequested(ScreenAsked):
    def __init__(self, plan: StacksPlan) -> None:
        super().__init__()
        self.plan = plan


class FixRequested(ScreenAsked):
    """Show what a fix would change; `index` counts through the fixes of all findings, primary first. A trial takes a few steps only."""

    def __init__(self, run_id: str, index: int = 0, *, is_trial: bool = False) -> None:
        super().__init__()
        self.run_id = run_id
        self.index = index
        self.is_trial = is_trial


class RelaunchRequested(ScreenAsked):
    def __init__(self, offer: RelaunchOffer, parent_choice: str) -> None:
        super().__init__()
        self.offer = offer
        self.parent_choice = parent_choice


class ViewsChanged(Message):
    """Somebody looks at a table in another way, and wants it kept."""


class NodeOpened(ScreenAsked):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class PastJobOpened(ScreenAsked):
    """Show a job that has ended, as the history knows it."""

    def __init__(self, past: PastJob) -> None:
        super().__init__()
        self.past = past


class Wanted(Message):
    """A screen shows what is asked only on demand. `is_anew`: also when a fresh answer is there."""

    def __init__(self, question: Question, *, is_anew: bool = False) -> None:
        super().__init__()
        self.question = question
        self.is_anew = is_anew
