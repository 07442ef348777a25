"""Every screen, one line each: its name, its class, what it is for, and what is followed while it is on top.

Keys, help, footer, palette and the app read this table. A new screen is its file, its renderer and its line
here. The classes are named, not imported: a screen is loaded when it is first opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any


class Kind(Enum):
    """What a screen is for. A key may work on all screens of a kind; a screen may be of several kinds."""

    ANY = "any"
    SHOW = "show"
    """Shows data: from here one may go anywhere, and launch."""
    LIST = "list"
    """Shows rows: Enter opens one, `/` filters them."""
    TABLE = "table"
    """Shows rows by columns and an order that can be chosen."""
    JOBS = "jobs"
    """Shows jobs that something can be done to."""
    PANES = "panes"
    """Shows several panes: one can be given the whole screen."""
    ASK = "ask"
    """Asks before something is done."""


class Follows(Enum):
    """Which runs and jobs are read again and again while a screen is on top."""

    TARGETS = "targets"
    """Those that the screen names, and no others."""
    BEFORE = "before"
    """Those that the screen names, then those that were followed before it opened."""
    NEWEST_RUNS = "newest runs"
    LIVE_JOBS = "live jobs"
    """Those that the screen names, then one's own jobs that run, and what the home screen's verdicts are made
    of."""
    RECENT_JOBS = "recent jobs"
    """One's own jobs that run or ended within a day."""


SHOWS = frozenset({Kind.ANY, Kind.SHOW})
LISTS = SHOWS | {Kind.LIST}
ASKS = frozenset({Kind.ANY, Kind.ASK})


@dataclass(frozen=True, slots=True)
class ScreenSpec:
    """What a screen declares."""

    name: str
    path: str
    """Its class, as `module:Class`."""
    kinds: frozenset[Kind]
    follows: Follows
    title: str = ""
    """What the help calls it, if not by its name."""

    @property
    def word(self) -> str:
        return self.title or self.name

    def binding_id(self, key_id: str) -> str:
        """What Textual calls a key of this screen."""
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
    _spec("doctor", "doctor:DoctorScreen", follows=Follows.BEFORE),
    _spec("help", "help:HelpScreen", follows=Follows.BEFORE),
)


def by_name() -> Mapping[str, ScreenSpec]:
    """The screens by their names."""
    return {spec.name: spec for spec in SCREENS}
