"""Protocols for the parts of coach that the screens use.

Screens and controllers are written against these; `live_ports.py` fills them with the real workflows,
`tests/tui/fake_ports.py` with scripted fakes. Each theme has its own protocol: a controller for launches is
not given the drills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Report
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.politeness import Attention
from coach.model.slurm.job_action import JobAction, Outcome, Verb
from coach.model.snapshot import Snapshot, TargetSnapshot, Watch
from coach.model.training.log_window import LogLook, LogWindow
from coach.model.training.run import Run
from coach.model.training.stacks import Stacks, StacksPlan
from coach.workflows.launching.relaunch_offer import RelaunchOffer as RelaunchOffer

if TYPE_CHECKING:
    from coach.analysis.jobs.notices import Notice
    from coach.launch.resubmission import Resubmission
    from coach.lookback.glance import Glance
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.tui.question import Question
    from coach.workflows.launching.foreign_fix import ForeignFixes
    from coach.workflows.launching.launchables import Launchable, Launchables
    from coach.workflows.launching.recipes import Page
    from coach.workflows.teaching.drill_answer import Judgement
    from coach.workflows.teaching.drills import DrillEntry

OnUpdate = Callable[[Snapshot], None]


class Session(Protocol):
    """Live data. `on_update` is called from a thread of the session, never from the screens' thread."""

    @property
    def snapshot(self) -> Snapshot: ...

    def start(self, on_update: OnUpdate) -> None: ...

    def watch(self, watch: Watch) -> None: ...

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None: ...

    def history(self, target: str) -> History:
        """The target's series, read-only. Returns the same object until there are new data."""
        ...

    def glance(self, target: str) -> Glance:
        """The summary of the target's history for a line of a list. Returns the same object until there are
        new data."""
        ...

    def refresh_soon(self, *, is_cluster_only: bool = False) -> None: ...

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Take the user's idle time in seconds and the focus. The session asks Slurm less often while the
        user is idle, and stops after a long time."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecipeKey:
    """A recipe that can be launched from any screen."""

    key: str | None
    """The digit that launches it; None if only the palette and the list of recipes do."""
    name: str
    """How a launch names it: by its name or its path."""
    title: str

    @property
    def word(self) -> str:
        """Its name in the footer."""
        return self.name.rpartition("/")[2].removesuffix(".toml").rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class RuleTitle:
    """A rule or a topic whose page can be opened."""

    code: str
    """The rule's code; for a topic, its name."""
    title: str
    """The rule's name and its first sentence; for a topic, its first line."""
    kind: str = "rule"


PARENT_CHOICES = ("cancel", "keep", "wait")
"""What a relaunch does with a running parent: cancels it, keeps it, or waits for it."""


class RecipePort(Protocol):
    """The recipes."""

    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        """All recipes, first those with a key."""
        ...

    def recipe_pages(self) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
        """All recipes in the order of the ladder, and an error for each one that cannot be read."""
        ...


class LaunchablePort(Protocol):
    """The launches that the working directory offers. It changes nothing."""

    def launchables(self) -> Launchables:
        """The project's trainings, earlier commands, files and recipes."""
        ...

    def request_of(self, row: Launchable) -> LaunchRequest:
        """The launch request of a row. Raises UserError for a file that cannot be launched."""
        ...


class LaunchPort(Protocol):
    """Plans and submissions."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        """The plan of a launch. `run_id` keeps the id of a plan that is being edited."""
        ...

    def preview(self, request: LaunchRequest) -> tuple[tuple[str, ...], str]:
        """The diff, in lines, between the script of the recipe's defaults and the request's script; and the
        request's script."""
        ...

    def submit(self, plan: Plan) -> Submitted: ...


class FixPort(Protocol):
    """The changes that a fix makes, and the relaunch with them."""

    def offer_fix(
        self,
        run: Run,
        finding: Finding,
        fix: Fix,
        target: TargetSnapshot,
        history: History,
        is_trial: bool = False,
    ) -> RelaunchOffer:
        """The relaunch that a fix offers. `run` has its current state."""
        ...

    def find_again(self, job_id: str) -> Resubmission:
        """The commands that submit again a job that coach did not launch. Raises UserError if its script
        cannot be found."""
        ...

    def foreign_fixes(
        self, target: TargetSnapshot, history: History, diagnosis: Diagnosis
    ) -> tuple[ForeignFixes, tuple[str, ...]]:
        """The fixes of a job that coach did not launch, and the work that ending it now would lose. It
        changes nothing."""
        ...

    def relaunch(self, offer: RelaunchOffer, parent_choice: str) -> Submitted: ...


class JobActionPort(Protocol):
    """Actions on jobs. Each is planned and shown before it runs."""

    def plan_action(self, verb: Verb, targets: Sequence[str], time_limit_s: int | None = None) -> JobAction:
        """The exact commands that `perform` will run, to be shown first, and the jobs that are left out."""
        ...

    def plan_resubmit(self, target: str) -> LaunchRequest | JobAction:
        """The request that launches a run again, or the action that submits a job again that coach did not
        launch; of an array with failed tasks, these."""
        ...

    def perform(self, action: JobAction) -> Outcome: ...

    def attach(self, action: JobAction, target: str) -> tuple[StreamSource, ...]:
        """The sources by which `Session.attach` follows `target`. It starts nothing."""
        ...

    def copy(self, text: str) -> bool:
        """Put text into tmux's buffer. Returns False if coach does not run in tmux."""
        ...

    def open_pager(self, file: str) -> int:
        """Give the terminal to the user's pager. Returns its exit status.

        Raises UserError if there is no pager.
        """
        ...

    def open_shell(self, action: JobAction) -> int:
        """Give the terminal to a shell. Returns its exit status. Called while the screens have released the
        terminal."""
        ...


class NoticePort(Protocol):
    """Notices about jobs outside the screens."""

    def show_in_tmux(self, text: str) -> bool:
        """Show a text in tmux's status line. Returns False if coach does not run in tmux."""
        ...

    def run_command(self, notice: Notice) -> None:
        """Run the command of the user's config and wait for it. Raises UserError if it fails."""
        ...


class StacksPort(Protocol):
    """Stacks of all ranks of a job. It may run beside other work."""

    def plan_stacks(self, target: str) -> StacksPlan:
        """The exact command that `take_stacks` will run."""
        ...

    def take_stacks(self, plan: StacksPlan) -> Stacks:
        """The stack of each rank now. Takes 15 seconds at most."""
        ...


class LogPort(Protocol):
    """Windows of log files. It changes nothing, and may run beside other work."""

    def read_log(
        self,
        look: LogLook,
        owner: int | None,
        counted: Mapping[str, tuple[int, int]],
        heed: Callable[[int, int], bool],
    ) -> LogWindow | None:
        """A window of a log that is opened for `owner`, or None if it was stopped. `counted` gives, for each
        file, a size in bytes and the number of lines up to there. `heed` is called with the bytes read and
        the bytes in all; if it returns False, reading stops."""
        ...


class DrillPort(Protocol):
    """Drills: planted faults, and the learner's answers."""

    def drills(self) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
        """All drills, and an error for each one that cannot be read."""
        ...

    def judgement(self, run_id: str) -> Judgement:
        """The learner's progress in a drill's run."""
        ...

    def answer_drill(self, run_id: str, cause: str | None) -> Judgement:
        """Judge and record the cause that the learner named; None: the learner gave up."""
        ...


class QuestionPort(Protocol):
    """Questions that are asked only when a screen shows the answer. It changes nothing, and may run beside
    other work."""

    def answer(self, question: Question) -> Any:
        """The answer, of the type that `Question` names for each member."""
        ...

    def stop(self, question: Question) -> None:
        """End the commands of a question whose answer nobody waits for. Returns at once."""
        ...

    def explain_rule(self, code: str) -> str:
        """The page of a rule or a topic, as `coach explain` prints it. Raises UserError."""
        ...

    def rule_titles(self) -> tuple[RuleTitle, ...]:
        """All rules, by code; then all topics."""
        ...

    def examine(self) -> Report:
        """The doctor's report on this cluster or machine."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports of the controllers. A method may take long or raise UserError, so it is called in a worker's
    thread."""

    recipes: RecipePort
    launches: LaunchPort
    fixes: FixPort
    job_actions: JobActionPort
    stacks: StacksPort
    logs: LogPort
    drills: DrillPort
    questions: QuestionPort
    launchables: LaunchablePort
    notices: NoticePort
