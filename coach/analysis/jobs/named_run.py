"""Find the run that a person names, among the known runs.

One place decides what a name means. Otherwise the short name that a screen shows would work in one command
and be unknown in the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from coach import runs
from coach.model.errors import UserError
from coach.model.training.run import Run


def named_run(text: str, known: Sequence[Run]) -> Run | None:
    """The run with this id, directory or short name (the id without its date and time, as on the screens).
    Raises UserError if several runs have the short name."""
    exact = next((run for run in known if text in (run.run_id, run.run_dir)), None)
    if exact is not None or not text:
        return exact
    short = [run for run in known if runs.RUN_ID.match(run.run_id) and run.run_id.split("-", 2)[2] == text]
    if len(short) > 1:
        meant = " or ".join(run.run_id for run in short[:3])
        raise UserError(f"{text}: {len(short)} runs have this short name", f"which one: {meant}?")
    return short[0] if short else None


def run_or_job(text: str, known: Sequence[Run]) -> Run | None:
    """The run that is named by `named_run`, or by its job id. `known` is newest first: if several runs have
    the job id, the newest. Raises UserError."""
    named = named_run(text, known)
    return named or next((run for run in known if text and text in run.job_ids), None)


def runs_of_array(text: str, known: Sequence[Run]) -> tuple[Run, ...]:
    """The runs that are tasks of the array with this number, in the order of their launch. `known` is newest
    first: if the number was reused, the runs of the newest group."""
    tasks = [run for run in known if text.isdecimal() and (run.job_id or "").startswith(f"{text}_")]
    if not tasks:
        return ()
    group = _group_of(tasks[0])
    return tuple(sorted((run for run in tasks if _group_of(run) == group), key=_index_of))


def first_of_group(text: str, known: Sequence[Run]) -> Run | None:
    """The run that is named by `run_or_job`, or the first run of the array with this number."""
    return run_or_job(text, known) or next(iter(runs_of_array(text, known)), None)


def _group_of(run: Run) -> str | None:
    return run.sweep.group_id if run.sweep is not None else None


def _index_of(run: Run) -> int:
    return run.sweep.index if run.sweep is not None else 0
