"""Actions on jobs: a key names the action, the screen names the jobs, the app asks for confirmation.

If the screen's data already exclude an action, the reason is shown beside the keys and Slurm is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coach.analysis.jobs.eligible_jobs import tasks_together, why_not
from coach.model.slurm.cluster import Job, is_final
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.tui.array_tasks import sweep_of
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.fix_way import fix_way
from coach.tui.messages import ActionRequested, ScreenOpened
from coach.tui.render.finding import cause_place
from coach.tui.render.queue import is_own
from coach.tui.training import worst_of

_ONE_AT_A_TIME = frozenset({Verb.RESUBMIT, Verb.RESUME, Verb.SHELL, Verb.ATTACH})


@dataclass(frozen=True, slots=True)
class Chosen:
    """One chosen job. `target` is its job id, or the run's id."""

    target: str
    label: str
    state: str | None
    reason: str | None = None
    is_array: bool = False
    """True for a row of several array tasks, each of which has its own state."""
    why_not_mine: str | None = None
    """Why coach does not change the job; None if it may."""
    is_others: bool = False
    """True for another user's job. Its log is shown if the file may be read."""
    job: Job | None = None
    """Its row in the queue or in accounting, if the screen has it."""


class JobChoice:
    """Asks the app to apply an action to the chosen jobs, or shows beside the keys why it cannot."""

    def __init__(
        self,
        screen: CoachScreen,
        chosen: Callable[[], Sequence[Chosen]],
        deselect: Callable[[], object] = lambda: None,
    ) -> None:
        """`chosen` returns the selected jobs, else the job under the cursor. `deselect` ends the selection,
        which holds for one action."""
        self._screen = screen
        self._chosen = chosen
        self._deselect = deselect

    def _label(self, key_id: str) -> str:
        return self._screen.context.label(key_id)

    def act(self, verb: Verb) -> None:
        if self._screen.is_off(verb.value):
            return
        chosen = self._chosen()
        if verb is Verb.RESUBMIT and len(chosen) > 1:
            chosen = _as_tasks(chosen)
        if not chosen:
            self._screen.note("there is no job here: the cursor of the queue names one")
        elif len(chosen) > 1 and verb in _ONE_AT_A_TIME:
            of_array = ", or tasks of one array" if verb is Verb.RESUBMIT else ""
            self._screen.note(f"one job at a time{of_array}: Esc clears the selection")
        elif len(chosen) == 1 and (why := self._why_not(verb, chosen[0])) is not None:
            self._screen.note(why)
        else:
            label = chosen[0].label if len(chosen) == 1 else ", ".join(each.target for each in chosen)
            self._screen.post_message(ActionRequested(verb, tuple(each.target for each in chosen), label))
            self._deselect()

    def show_stacks(self) -> None:
        """Open the stacks of the chosen job's ranks."""
        if self._screen.is_off("stacks"):
            return
        chosen = self._chosen()
        if len(chosen) != 1:
            self._screen.note(f"{self._label('stacks')} shows the stacks of the ranks of one job")
        elif chosen[0].why_not_mine is not None:
            self._screen.note(chosen[0].why_not_mine)
        elif chosen[0].state != "RUNNING":
            self._screen.note(f"{chosen[0].label}: only a running job has stacks")
        else:
            self._screen.post_message(ScreenOpened("stacks", chosen[0].target, chosen[0].label))

    def show_gpus(self) -> None:
        """Open the GPUs of the chosen job."""
        self._show_part("gpus", "shows the GPUs of one job", "each task of an array has GPUs of its own")

    def show_log(self) -> None:
        """Open the log of the chosen job, at the line of the cause if one was found."""
        self._show_part("log", "shows the log of one job", "each task of an array has a log of its own")

    def compare(self) -> None:
        """Compare two chosen runs, or one chosen run with its parent, its newest child, or the runs of its
        sweep."""
        screen, context = self._screen, self._screen.context
        found = [_run_of(each, context) for each in self._chosen()]
        runs = [run for run in found if run is not None]
        if len(runs) == len(found) == 2:
            screen.post_message(ScreenOpened("compare", *sorted(run.run_id for run in runs)))
        elif len(found) != 1:
            screen.note(f"{self._label('compare')} compares the run of one job, or those of two")
        elif not runs:
            screen.note("only runs that coach launched can be compared")
        elif (way := _comparison_of(runs[0], context)) is not None:
            screen.post_message(way)
        else:
            screen.note(
                f"no parent or child to compare with; {self._label('mark')} on the Runs screen marks two runs"
            )

    def fix(self) -> None:
        """Open the changes that a fix makes to the chosen run's launch. For a job that coach did not launch,
        open the form that submits it again."""
        if self._screen.is_off("fix"):
            return
        chosen = self._chosen()
        if len(chosen) != 1:
            self._screen.note(f"{self._label('fix')} fixes one job: the cursor names it")
        elif chosen[0].job is not None and chosen[0].why_not_mine is not None:
            self._screen.note(chosen[0].why_not_mine)
        else:
            target = _fixed_target(chosen[0], self._screen.context)
            is_read = target in self._screen.targets
            self._screen.go(fix_way(self._screen.context, target, job=chosen[0].job, is_read=is_read))

    def _show_part(self, part: str, of_one: str, of_tasks: str) -> None:
        """Open a screen about one job. `part` is the name of the screen and of its key; `of_one` and
        `of_tasks` are the notes for several jobs and for an array."""
        chosen = self._chosen()
        if len(chosen) != 1:
            self._screen.note(f"{self._label(part)} {of_one}")
        elif chosen[0].why_not_mine is not None and not (part == "log" and chosen[0].is_others):
            self._screen.note(chosen[0].why_not_mine)
        elif chosen[0].is_array:
            self._screen.note(f"{of_tasks}: {self._label('unfold')} in the queue shows the tasks")
        else:
            context, target = self._screen.context, chosen[0].target
            run = context.run(target) or context.run_of_job(target)
            if part == "gpus" and run is None and self._has_ended_unmeasured(chosen[0]):
                self._screen.note(f"job {target} has ended, and no GPU of it was measured")
                return
            target = run.run_id if run is not None else target
            place = cause_place(context.diagnoses.get(target)) if part == "log" else None
            self._screen.post_message(ScreenOpened(part, target, *([place] if place else [])))

    def _has_ended_unmeasured(self, chosen: Chosen) -> bool:
        history = self._screen.context.session.history(chosen.target)
        return is_final(chosen.state or "") and not history.gpus and not history.nodes

    def _why_not(self, verb: Verb, chosen: Chosen) -> str | None:
        if chosen.why_not_mine is not None:
            return chosen.why_not_mine
        if verb is Verb.ATTACH and self._is_measured(chosen.target):
            return f"{chosen.label}: a step in it measures it already"
        if chosen.state is None or chosen.is_array:
            return None
        why = why_not(verb, chosen.state, chosen.reason)
        return f"{chosen.label}: {why}" if why is not None else None

    def _is_measured(self, target: str) -> bool:
        """True if a measuring step inside the job is sending data."""
        run = self._screen.context.run_of_job(target)
        stream = self._screen.context.snapshot.sources.get(
            f"stream:{run.run_id if run is not None else target}"
        )
        return stream is not None and stream.error is None


class JobKeys:
    """The actions behind the keys of jobs, for a screen with a JobChoice."""

    job_choice: JobChoice

    def action_act(self, name: str) -> None:
        self.job_choice.act(Verb(name))

    def action_stacks(self) -> None:
        self.job_choice.show_stacks()

    def action_gpus(self) -> None:
        self.job_choice.show_gpus()

    def action_compare(self) -> None:
        self.job_choice.compare()

    def action_fix(self) -> None:
        self.job_choice.fix()

    def action_open_log(self) -> None:
        self.job_choice.show_log()


def _as_tasks(chosen: Sequence[Chosen]) -> Sequence[Chosen]:
    """Several own tasks of one array as one choice; other jobs unchanged."""
    tasks = tasks_together(each.target for each in chosen)
    if tasks is None or any(each.why_not_mine for each in chosen):
        return chosen
    return [Chosen(tasks, tasks, None, is_array=True, job=chosen[0].job)]


def _fixed_target(chosen: Chosen, context: Context) -> str:
    """The target that the fix key is about. For an array that coach launched it is the first run of the sweep
    with a finding, or the first run if none has one; otherwise it is the chosen target."""
    rows = (chosen.job,) if chosen.is_array and chosen.job is not None else ()
    runs = [run.run_id for run in sweep_of(rows, context.snapshot.runs)]
    wrong = (run_id for run_id in runs if worst_of(context.found.get(run_id, ())) is not None)
    return next(wrong, None) or next(iter(runs), chosen.target)


def _run_of(chosen: Chosen, context: Context) -> Run | None:
    """The run of the chosen job; of an array that coach launched, one run of its sweep."""
    run = context.run(chosen.target) or context.run_of_job(chosen.target)
    if run is None and chosen.is_array and chosen.job is not None:
        return next(iter(sweep_of((chosen.job,), context.snapshot.runs)), None)
    return run


def _comparison_of(run: Run, context: Context) -> ScreenOpened | None:
    children = [each.run_id for each in context.snapshot.runs if each.parent_run_id == run.run_id]
    if run.parent_run_id:
        return ScreenOpened("compare", run.parent_run_id, run.run_id)
    if children:
        return ScreenOpened("compare", run.run_id, max(children))
    return ScreenOpened("group", run.sweep.group_id) if run.sweep is not None else None


def choose_job(context: Context, job: Job, target: str, *, is_array: bool = False) -> Chosen:
    """A job in the queue as a Chosen; `target` is its job id or its run's id."""
    is_mine = is_own(job, context.user)
    return Chosen(
        target,
        f"{job.job_id} {job.name} ({job.state})",
        job.state,
        job.reason,
        is_array,
        None if is_mine else f"job {job.job_id} is {job.user}'s, not yours: coach changes nothing of it",
        not is_mine,
        job,
    )


def choose_run(context: Context, run: Run) -> Chosen:
    """The job of a run as a Chosen."""
    state = context.state_of(run)
    job = context.job(run.job_id)
    standing = run.submission.words if run.submission is not None else "has no job yet"
    why = None if run.job_id is not None else f"this run: {standing}"
    return Chosen(
        run.run_id,
        f"{run.run_id} ({state})",
        state,
        job.reason if job else None,
        why_not_mine=why,
    )


def choose_target(context: Context, target: str, past: Job | None = None) -> Chosen | None:
    """The run or the job of this name as a Chosen; None if neither is known. `past` is the row in accounting
    of a job that has left the queue."""
    run = context.run(target)
    if run is not None:
        return choose_run(context, run)
    followed = context.snapshot.targets.get(target)
    job = past or context.job(target) or (followed.job if followed is not None else None)
    job = job or context.ended_jobs.get(target)
    return choose_job(context, job, target) if job is not None else None
