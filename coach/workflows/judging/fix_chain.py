"""Read and measure all runs that fixes made of one run, and name the one to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coach.analysis.comparing.fix_chain import Link, family, with_best
from coach.analysis.comparing.two_runs import measure
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.model.training.run import Run
from coach.rules.engine import Engine
from coach.sources.io import Io
from coach.workflows.judging.check import Checker
from coach.workflows.judging.judge import rules_of
from coach.workflows.judging.targets import Target, TargetKind, list_runs, run_index, run_or_job


@dataclass(frozen=True, slots=True)
class Chain:
    """The first run and all runs that fixes made of it, in the order of their launches."""

    links: tuple[Link, ...]
    before: str
    after: str
    """The ids of the run before and after a fix: of the named run and its parent, or, for a first run, of it
    and its newest child."""


def read_chain(text: str, settings: Settings, io: Io, backend: str) -> Chain:
    """The chain of a run. `text`: the run's id or short name, its job or its directory.

    Raises UserError if the run is no child of a fix and has none.
    """
    known = list_runs(io, settings.runs_root, run_index(settings))
    named = run_or_job(text, known)
    members = () if named is None else family(named, known)
    if named is None or len(members) < 2:
        raise UserError(
            f"{text}: neither a group of runs nor one of a chain of fixes",
            "one run is compared with another: coach compare RUN RUN; `coach runs` lists them",
        )
    checker = Checker(settings, io, Engine(rules_of(settings)), backend)
    links = with_best([_link(run, settings, checker) for run in members])
    return Chain(links, *_ends(named, members))


def _ends(named: Run, members: Sequence[Run]) -> tuple[str, str]:
    """The runs before and after the fix that the user asks about."""
    if any(run.run_id == named.parent_run_id for run in members):
        return str(named.parent_run_id), named.run_id
    return named.run_id, [run.run_id for run in members if run.parent_run_id == named.run_id][-1]


def _link(run: Run, settings: Settings, checker: Checker) -> Link:
    target = Target(run.run_id, TargetKind.RUN, settings.runs_root / run.run_id)
    snapshot, history, diagnosis = checker.by_itself(target)
    state = snapshot.state or run.state
    found = next((each.rule for each in diagnosis.findings if each.severity >= Severity.WARNING), None)
    is_well = state == "COMPLETED" and found is None
    fix, trial = (None, None) if run.fix is None else (run.fix.title, run.fix.trial_steps)
    throughput = measure(snapshot, history).throughput
    return Link(run.run_id, fix, state, trial, is_well, throughput, found=found)
