"""List what was tried before: the chain of fixes, measured, and other attempts at the same work.

Kept apart from the ticket, which only shows the list: here runs are read again to be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.analysis.comparing.earlier_runs import past_run
from coach.analysis.comparing.fix_chain import family
from coach.analysis.comparing.tried_words import Tried, attempt, found_in, how_made, measured_words
from coach.analysis.comparing.two_runs import compare
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.verdict_files import verdict_of_run
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.earlier_runs import PastRuns
from coach.workflows.judging.targets import known_runs

if TYPE_CHECKING:
    from coach.model.judging.verdict import PastRun

MAX_FAMILY = 8
"""Runs of a chain of fixes that are read and compared at most, the newest."""
MAX_ATTEMPTS = 8


def what_was_tried(checked: Checked, settings: Settings, io: Io, backend: str) -> tuple[Tried, ...]:
    """The chain of fixes in the order of its launches, without the target if it is alone in it; then other
    attempts, newest first."""
    if checked.parts:
        return ()
    this = past_run(checked.snapshot, checked.history, checked.diagnosis, ())
    if this is None:
        return ()
    others = PastRuns(settings).attempts(this)
    judged = {past.target: past for past in others} | {this.target: this}
    run = checked.snapshot.run
    members = () if run is None else family(run, known_runs(settings, io))[-MAX_FAMILY:]
    chain: tuple[Tried, ...] = ()
    if len(members) > 1:
        checker = Checker(settings, io, backend, is_alone=True)
        chain = tuple(_chain(members, judged, {run.run_id: _read(run, checker) for run in members}))
    told = {each.target for each in chain}
    rest = [attempt(past, this) for past in others if past.target not in told]
    return (*chain, *rest[:MAX_ATTEMPTS])


def _read(run: Run, checker: Checker) -> Checked | None:
    """The run by its files alone; None if they are gone or cannot be read."""
    try:
        return checker.ended_run(Path(run.run_dir))
    except UserError:
        return None


def _chain(
    members: Sequence[Run], judged: Mapping[str, PastRun], read: Mapping[str, Checked | None]
) -> Iterator[Tried]:
    for run in members:
        past, verdict = judged.get(run.run_id), verdict_of_run(Path(run.run_dir))
        found = _first_finding(verdict) if verdict is not None else found_in(past)
        is_judged = verdict is not None or (past is not None and past.is_judged)
        before, after = read.get(run.parent_run_id or ""), read[run.run_id]
        measured: list[str] = []
        if before is not None and after is not None:
            rows = compare(before.snapshot, before.history, after.snapshot, after.history).rows
            measured = measured_words(rows)
        yield Tried(run.run_id, run.state, run.ended_time_s, found, is_judged, how_made(run), measured)


def _first_finding(verdict: Mapping[str, Any]) -> str | None:
    findings = verdict.get("findings")
    first = next(iter(findings), None) if isinstance(findings, list) else None
    return f"{first.get('rule')} {first.get('summary')}" if isinstance(first, dict) else None
