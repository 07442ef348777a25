"""Saved views: the user's jobs, everybody's jobs, jobs that failed today, each partition, and the user's
named views.

The user types a name into a palette, as for `:`. A new name saves the current view under it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from coach.analysis.jobs.belonging import run_as_job
from coach.analysis.judging.ranking import RECENT_S, RankedFinding
from coach.model.judging.finding import Severity
from coach.model.slurm.cluster import Job, has_failed, is_final
from coach.render.text import printable
from coach.tui.context import Context
from coach.tui.palette import GoTo, Place
from coach.workflows.watching.table_views import BUILT_IN, SavedView, View, is_view_name

_MAX_PARTITIONS = 100


def views_of(context: Context) -> Iterator[SavedView]:
    """All views that can be chosen."""
    yield from BUILT_IN
    yield from context.saved_views.values()
    names = (partition.name for partition in context.snapshot.partitions[:_MAX_PARTITIONS])
    for name in dict.fromkeys(names):
        yield SavedView(f"partition {name}", View(filter=f"part:{name}"), is_all=True)


def view_named(context: Context, name: str) -> SavedView | None:
    """The first view of this name; None if there is none."""
    return next((each for each in views_of(context) if each.name == name), None)


def name_of(context: Context, shown: SavedView) -> str | None:
    """The name of a view of the queue: `failed today`, or the name given by the user; None without a name."""
    alike = (name for name, each in context.saved_views.items() if (each.view, each.is_all) == _key(shown))
    name = "failed today" if shown.is_failed_today else next(alike, None)
    return printable(name) if name is not None else None


def saved_words(context: Context, name: str) -> str:
    """The message after a view was saved."""
    kept = "" if context.mode.is_live else ", until coach is left"
    return f"saved as {name}{kept}: {context.label('views')} chooses it"


def _key(view: SavedView) -> tuple[View, bool]:
    return view.view, view.is_all


def ended_critically(causes: Iterable[Sequence[RankedFinding]]) -> frozenset[str]:
    """The targets that ended with a critical cause, whatever their state; a completed run may be one of
    them."""
    return frozenset(
        each.target
        for group in causes
        for each in group
        if each.ended_s is not None and each.finding.severity is Severity.CRITICAL
    )


def failed_today(context: Context, jobs: Sequence[Job], critical: Collection[str]) -> list[Job]:
    """The user's jobs that failed within a day, by their state or by a critical cause: jobs in the queue,
    then jobs in coach's memory, then runs. `critical` are targets."""
    since_s, runs = context.now_s - RECENT_S, context.snapshot.runs
    here = [job for job in jobs if job.user == context.user]
    known = {job.job_id for job in here}
    past = [each.job for each in context.answers.past_jobs if each.job.job_id not in known]
    failed = [
        job
        for job in (*here, *past)
        if (has_failed(job.state) and (job.end_time_s is None or job.end_time_s >= since_s))
        or (is_final(job.state) and context.trainings.target_of(job, runs) in critical)
    ]
    known.update(job.job_id for job in past)
    return [*failed, *_forgotten(context, known, critical)]


def _forgotten(context: Context, known: Collection[str], critical: Collection[str]) -> list[Job]:
    """The critical targets that are neither in the queue nor in coach's memory, as rows made from the
    followed target or from the run directory."""
    found = []
    for target in sorted(critical, reverse=True):
        run, followed = context.run(target), context.snapshot.targets.get(target)
        job = followed.job if followed is not None else None
        if job is None and run is not None:
            job = replace(run_as_job(run), user=context.user or run.user or "")
        if job is not None and job.job_id not in known:
            found.append(job)
    return found


class ViewChoice(GoTo):
    """The palette that asks for the name of a view."""

    def __init__(
        self,
        context: Context,
        show: Callable[[str], object],
        save: Callable[[str], object],
        forget: Callable[[str], object],
    ) -> None:
        places = [Place(each.name, _about(each), partial(show, each.name)) for each in views_of(context)]
        super().__init__(places, show, "a view, or a new name for the rows shown…")
        self._names = {place.name for place in places}
        self._saved, self._save, self._forget = frozenset(context.saved_views), save, forget

    def best(self, query: str, limit: int) -> list[tuple[float, Place]]:
        name = query.strip()
        found = [each for each in super().best(query, limit) if not name.isdecimal() or each[1].kind != "job"]
        if name in self._saved:
            found.append((0.1, Place(name, "forget this view", partial(self._forget, name))))
            found.append((0.1, Place(name, "keep this view under this name", partial(self._save, name))))
        elif is_view_name(name) and name not in self._names:
            found.append((0.1, Place(name, "keep this view under this name", partial(self._save, name))))
        return found


def _about(each: SavedView) -> str:
    if each.is_failed_today:
        return "your jobs that ended badly, or with a critical cause, within a day"
    whose = "everybody's jobs" if each.is_all else "your jobs"
    parts = [each.view.filter, f"by {each.view.sort}" if each.view.sort else "", each.view.columns]
    return " · ".join([whose, *filter(None, parts)])
