"""Compare two runs, or all runs that fixes made of one run. Each is judged by its own content alone: what
other runs show is no effect of the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coach.analysis.comparing.fix_chain import Link, family, with_best
from coach.analysis.comparing.two_runs import Comparison, compare, measure
from coach.analysis.spelling.printable import printable
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Severity
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.judging.check import Checker
from coach.workflows.judging.targets import Target, TargetKind, known_runs, run_or_job


def compare_targets(before: Target, after: Target, settings: Settings, io: Io, backend: str) -> Comparison:
    """The effect of a change, with the findings of both runs. Raises UserError if one of them cannot be read
    or has no steps."""
    checker = Checker(settings, io, backend, is_alone=True)
    old, new = (checker.read_and_judge(target) for target in (before, after))
    for checked in (old, new):
        if checked.snapshot.run is None and not checked.history.ranks:
            name = printable(checked.snapshot.target)
            raise UserError(
                f"{name}: no loss and no step was found in its logs and metric files",
                f"`coach check {name}` names the files that were read",
            )
    diagnoses = old.diagnosis, new.diagnosis
    return compare(old.snapshot, old.history, new.snapshot, new.history, diagnoses)


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
    known = known_runs(settings, io)
    named = run_or_job(text, known)
    members = () if named is None else family(named, known)
    if named is None or len(members) < 2:
        raise UserError(
            f"{text}: neither a group of runs nor one of a chain of fixes",
            "one run is compared with another: coach compare RUN RUN; `coach runs` lists them",
        )
    checker = Checker(settings, io, backend, is_alone=True)
    links = with_best([_link(run, settings, checker) for run in members])
    return Chain(links, *_ends(named, members))


def _ends(named: Run, members: Sequence[Run]) -> tuple[str, str]:
    """The runs before and after the fix that the user asks about."""
    if any(run.run_id == named.parent_run_id for run in members):
        return str(named.parent_run_id), named.run_id
    return named.run_id, [run.run_id for run in members if run.parent_run_id == named.run_id][-1]


def _link(run: Run, settings: Settings, checker: Checker) -> Link:
    target = Target(run.run_id, TargetKind.RUN, settings.runs_root / run.run_id)
    checked = checker.read_and_judge(target)
    state = checked.snapshot.state or run.state
    loud = (each.rule for each in checked.diagnosis.findings if each.severity >= Severity.WARNING)
    found = next(loud, None)
    is_well = state == "COMPLETED" and found is None
    fix, trial = (None, None) if run.fix is None else (run.fix.title, run.fix.trial_steps)
    throughput = measure(checked.snapshot, checked.history).throughput
    return Link(run.run_id, fix, state, trial, is_well, throughput, found=found)
