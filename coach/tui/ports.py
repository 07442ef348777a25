"""What the screens need from the rest of coach, as protocols.

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
    from coach.model.slurm.cluster import Job
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.tui.question import Question
    from coach.workflows.launching.foreign_fix import ForeignFixes
    from coach.workflows.launching.launchables import Launchable, Launchables
    from coach.workflows.launching.recipes import Page
    from coach.workflows.teaching.drill_answer import Judgement
    from coach.workflows.teaching.drills import DrillEntry

OnUpdate = Callable[[Snapshot], None]


class Session(Protocol):
    """Live data. `on_update` is called from a thread of the session's own, never from the screens'."""

    @property
    def snapshot(self) -> Snapshot: ...

    def start(self, on_update: OnUpdate) -> None: ...

    def watch(self, watch: Watch) -> None: ...

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None: ...

    def history(self, target: str) -> History:
        """Its series as they stand, to be read alone. The same value until something is new."""
        ...

    def glance(self, target: str) -> Glance:
        """What a line of a list shows of its history. The same value until something is new."""
        ...

    def refresh_soon(self, *, is_cluster_only: bool = False) -> None: ...

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Learn if the user looks: the session asks less while nobody does, and nothing after a long time."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecipeKey:
    """A recipe that can be launched from any screen."""

    key: str | None
    """The digit that launches it; None: only the palette and the list of recipes do."""
    name: str
    """What a launch calls it: its name, or its path."""
    title: str

    @property
    def word(self) -> str:
        """What the footer calls it."""
        return self.name.rpartition("/")[2].removesuffix(".toml").rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class RuleTitle:
    """A rule or a topic whose page can be opened."""

    code: str
    """Of a topic its name."""
    title: str
    """Its name and its first sentence; of a topic its first line."""
    kind: str = "rule"


PARENT_CHOICES = ("cancel", "keep", "wait")
"""What may become of a running parent."""


class RecipePort(Protocol):
    """The recipes."""

    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        """All recipes, first those with a key."""
        ...

    def recipe_pages(self) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
        """All recipes in the order of the ladder, and what is wrong with those that cannot be read."""
        ...


class LaunchablePort(Protocol):
    """What can be launched from the working directory. It changes nothing."""

    def launchables(self) -> Launchables:
        """The project's trainings, earlier commands, files and recipes."""
        ...

    def request_of(self, row: Launchable) -> LaunchRequest:
        """Raises UserError for a file that cannot be launched."""
        ...


class LaunchPort(Protocol):
    """Plans and submissions."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        """`run_id` keeps the name of a plan that is being changed."""
        ...

    def preview(self, request: LaunchRequest) -> tuple[tuple[str, ...], str]:
        """Lines of a diff: what the request's parameters change in the recipe's script; and the script."""
        ...

    def submit(self, plan: Plan) -> Submitted: ...


class FixPort(Protocol):
    """What a fix would change, and the relaunch by it."""

    def offer_fix(
        self,
        run: Run,
        finding: Finding,
        fix: Fix,
        target: TargetSnapshot,
        history: History,
        is_trial: bool = False,
    ) -> RelaunchOffer:
        """`run` carries its present state."""
        ...

    def find_again(self, job_id: str, known: Job | None) -> Resubmission:
        """What submits a job again that coach did not launch. `known` is the job as it was last seen. Raises
        UserError where nobody has its script."""
        ...

    def foreign_fixes(
        self, target: TargetSnapshot, history: History, diagnosis: Diagnosis
    ) -> tuple[ForeignFixes, tuple[str, ...]]:
        """What would mend a job that coach did not launch, and what ending it now would lose. It changes
        nothing."""
        ...

    def relaunch(self, offer: RelaunchOffer, parent_choice: str) -> Submitted: ...


class JobActionPort(Protocol):
    """What is done to jobs, planned before it is done."""

    def plan_action(self, verb: Verb, targets: Sequence[str], time_limit_s: int | None = None) -> JobAction:
        """The exact commands that `perform` will run, to be shown before, and the jobs that are left out."""
        ...

    def plan_resubmit(self, target: str) -> LaunchRequest | JobAction:
        """To launch a run again, or to submit again a job that coach did not launch."""
        ...

    def perform(self, action: JobAction) -> Outcome: ...

    def attach(self, action: JobAction, target: str) -> tuple[StreamSource, ...]:
        """What `Session.attach` will follow `target` by; nothing has been started yet."""
        ...

    def copy(self, text: str) -> bool:
        """Put text into tmux's buffer. False where there is no tmux."""
        ...

    def open_pager(self, file: str) -> int:
        """Give the terminal to the person's pager until it is left; its exit status.

        Raises UserError where there is no pager.
        """
        ...

    def open_shell(self, action: JobAction) -> int:
        """Give the terminal away until the shell is left; its exit status. Called where the screens have let
        go of the terminal."""
        ...


class NoticePort(Protocol):
    """How the user is told of jobs beside the screens."""

    def show_in_tmux(self, text: str) -> bool:
        """A line of tmux's. False where there is no tmux."""
        ...

    def run_command(self, notice: Notice) -> None:
        """The command of the user's config, to its end. Raises UserError when it fails."""
        ...


class StacksPort(Protocol):
    """Where every rank of a job stands. It need not wait for its turn."""

    def plan_stacks(self, target: str) -> StacksPlan:
        """The exact command that `take_stacks` will run."""
        ...

    def take_stacks(self, plan: StacksPlan) -> Stacks:
        """Where every rank stands now; fifteen seconds at most."""
        ...


class LogPort(Protocol):
    """Windows of log files. It changes nothing, and need not wait for its turn."""

    def read_log(
        self,
        look: LogLook,
        counted: Mapping[str, tuple[int, int]],
        heed: Callable[[int, int], bool],
    ) -> LogWindow | None:
        """`counted` is of each file a size in bytes, and how many lines it has up to there. `heed` is told
        the progress in bytes, and of how many; False stops: then None comes back."""
        ...


class DrillPort(Protocol):
    """Planted faults, and what a learner answers."""

    def drills(self) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
        """All drills, and what is wrong with those that cannot be read."""
        ...

    def judgement(self, run_id: str) -> Judgement:
        """How far a learner is with a drill's run."""
        ...

    def answer_drill(self, run_id: str, cause: str | None) -> Judgement:
        """Judge and keep the cause that is named; None: given up."""
        ...


class QuestionPort(Protocol):
    """What is asked only when a screen shows it. It changes nothing, so it need not wait for its turn."""

    def answer(self, question: Question) -> Any:
        """The value that `Question` says for each of its members."""
        ...

    def explain_rule(self, code: str) -> str:
        """The page of a rule or a topic, as `coach explain` prints it. Raises UserError."""
        ...

    def rule_titles(self) -> tuple[RuleTitle, ...]:
        """All rules, by code; then all topics."""
        ...

    def examine(self) -> Report:
        """What works here."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All that the controllers ask of the rest of coach. A method may take long or raise UserError: it is
    called in a worker's thread."""

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
