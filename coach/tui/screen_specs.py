"""The table of screens, one line each: name, class, kinds, and the targets to follow while it is on top.

Keys, help, footer, palette and the app read this table. A new screen needs its file, its renderer and a line
here. Classes are given by name and imported when the screen is first opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any


class Kind(Enum):
    """The purpose of a screen. A key may work on all screens of a kind; a screen may be of several kinds."""

    ANY = "any"
    SHOW = "show"
    """Shows data: the keys that go to other screens and that launch work here."""
    LIST = "list"
    """Shows rows: Enter opens one, `/` filters them."""
    TABLE = "table"
    """Shows rows; the user chooses columns and order."""
    JOBS = "jobs"
    """Shows jobs: the keys for actions on jobs work here."""
    PANES = "panes"
    """Shows several panes; one can take the whole screen."""
    ASK = "ask"
    """Asks the user to confirm an action."""


class Follows(Enum):
    """The runs and jobs that are read repeatedly while a screen is on top."""

    TARGETS = "targets"
    """Only those that the screen names."""
    BEFORE = "before"
    """Those that the screen names, then those that were followed before it opened."""
    NEWEST_RUNS = "newest runs"
    LIVE_JOBS = "live jobs"
    """Those that the screen names, the user's running jobs, and the ended jobs that the home screen's
    verdicts need."""
    RECENT_JOBS = "recent jobs"
    """The user's jobs that run or ended within a day."""


SHOWS = frozenset({Kind.ANY, Kind.SHOW})
LISTS = SHOWS | {Kind.LIST}
ASKS = frozenset({Kind.ANY, Kind.ASK})


@dataclass(frozen=True, slots=True)
class ScreenSpec:
    """The declaration of a screen."""

    name: str
    path: str
    """Its class, as `module:Class`."""
    kinds: frozenset[Kind]
    follows: Follows
    title: str = ""
    """Its title in the help, if other than its name."""

    @property
    def word(self) -> str:
        return self.title or self.name

    def binding_id(self, key_id: str) -> str:
        """Textual's id of a key on this screen."""
        return f"{self.name}.{key_id}"

    def load(self) -> Any:
        """The class."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)


def _spec(
    name: str,
    path: str,
    kinds: frozenset[Kind] = frozenset({Kind.ANY}),
    follows: Follows = Follows.TARGETS,
    title: str = "",
) -> ScreenSpec:
    return ScreenSpec(name, f"coach.tui.screens.{path}", kinds, follows, title)


HOME = _spec(
    "cluster", "cluster:ClusterScreen", LISTS | {Kind.TABLE, Kind.JOBS, Kind.PANES}, Follows.LIVE_JOBS
)
"""The screen below all others."""

SCREENS: tuple[ScreenSpec, ...] = (
    HOME,
    _spec("runs", "runs:RunsScreen", LISTS, Follows.NEWEST_RUNS),
    _spec("job", "job:JobScreen", SHOWS | {Kind.JOBS, Kind.PANES}, Follows.LIVE_JOBS),
    _spec("log", "log:LogScreen", SHOWS),
    _spec("gpus", "gpus:GpusScreen", SHOWS),
    _spec("node", "node:NodeScreen", SHOWS, Follows.BEFORE),
    _spec("where", "where:WhereScreen", SHOWS, Follows.BEFORE),
    _spec("history", "history:HistoryScreen", LISTS | {Kind.TABLE}, Follows.BEFORE),
    _spec("findings", "findings:FindingsScreen", LISTS, Follows.RECENT_JOBS),
    _spec("finding", "finding:FindingScreen", SHOWS),
    _spec("foreign_fix", "foreign_fix:ForeignFixScreen", ASKS, title="fix"),
    _spec("rule", "rule:RuleScreen", SHOWS, Follows.BEFORE),
    _spec("explained", "explained:ExplainedScreen", SHOWS, Follows.BEFORE, title="what it says"),
    _spec("compare", "compare:CompareScreen", SHOWS),
    _spec("group", "group:GroupScreen", SHOWS, title="compare"),
    _spec("new_launch", "new_launch:NewLaunchScreen", LISTS, Follows.BEFORE, title="new launch"),
    _spec("recipes", "recipes:RecipesScreen", LISTS, Follows.BEFORE),
    _spec("drills", "drills:DrillsScreen", LISTS, Follows.BEFORE),
    _spec("cohort", "cohort:CohortScreen", LISTS, Follows.BEFORE),
    _spec("plan", "plan:PlanScreen", ASKS, Follows.BEFORE),
    _spec("confirm", "confirm:ConfirmScreen", ASKS, Follows.BEFORE),
    _spec("fix", "fix:FixScreen", ASKS),
    _spec("stacks", "stacks:StacksScreen", ASKS, Follows.BEFORE),
    _spec("answer", "answer:AnswerScreen", ASKS),
    _spec("reservations", "reservations:ReservationsScreen", SHOWS, Follows.BEFORE),
    _spec("doctor", "doctor:DoctorScreen", follows=Follows.BEFORE),
    _spec("help", "help:HelpScreen", follows=Follows.BEFORE),
)


def by_name() -> Mapping[str, ScreenSpec]:
    """The screens by their names."""
    return {spec.name: spec for spec in SCREENS}
