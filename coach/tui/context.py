"""What the screens share: the session, the last data, and what was learned from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.judging.ranking import RankedFinding
from coach.model.judging.finding import Diagnosis
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot
from coach.model.training.run import Run
from coach.tui.keys.key import Key
from coach.tui.keys.table import NOTHING_OFF, SHIPPED, SwitchedOff
from coach.tui.mode import Mode
from coach.tui.ports import Session
from coach.tui.question import Answers
from coach.tui.training import Trainings

if TYPE_CHECKING:
    from coach.analysis.queueing.ahead import Standing
    from coach.workflows.watching.first_start import Here
    from coach.workflows.watching.table_views import SavedView, View

if TYPE_CHECKING:
    from coach.workflows.watching.story import Story


@dataclass(slots=True)
class Context:
    """What the screens share. The app keeps it; screens read it, and change nothing in it but the marks and
    the views."""

    session: Session
    mode: Mode
    """It can change while coach is open: the site, or the user, sets `readonly`."""
    user: str | None
    place: str
    """Name of what is shown: `slurm · tiger`, `local · ws1`."""
    clock: Callable[[], float]
    """Monotonic."""
    snapshot: Snapshot
    snapshot_time_s: float
    """When it arrived, on `clock`."""
    why_readonly: str | None = None
    """The setting that allows no change, and its reason; None if coach was opened read-only."""
    switched_off: SwitchedOff = field(default_factory=lambda: NOTHING_OFF)
    """What the site has switched off, and its words for it. It can change while coach is open."""
    key_time_s: float = 0.0
    """When the key that is being handled arrived, on `clock`."""
    key_table: Mapping[str, Key] = field(default_factory=lambda: SHIPPED)
    """All keys by id, as they are in force."""
    launch_keys: tuple[Key, ...] = ()
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    """The last diagnosis of every target that was ever followed."""
    rates: dict[str, float] = field(default_factory=dict)
    """The last throughput of every run that was ever followed."""
    answers: Answers = field(default_factory=Answers)
    """What was asked on demand."""
    found: dict[str, tuple[RankedFinding, ...]] = field(default_factory=dict)
    """The last findings of every target that was ever judged, with what they cost."""
    trainings: Trainings = field(default_factory=Trainings)
    """The last numbers of the targets that were followed."""
    unread: list[str] = field(default_factory=list)
    """Jobs that ended within a day and have not been judged yet."""
    views: dict[str, View] = field(default_factory=dict)
    """How the tables are looked at, by their ids."""
    saved_views: dict[str, SavedView] = field(default_factory=dict)
    """Ways to look at the queue that were saved, by their names."""
    views_problem: str | None = None
    """Why they are not as they were kept."""
    here: Here | None = None
    """What is told at the first start; None after the first key, and at every other start."""
    is_first_key_pressed: bool = False
    is_detail_hidden: bool = False
    """Whether a wide terminal shows the list of the first screen alone."""
    marked: list[str] = field(default_factory=list)
    are_all_shown: bool = False
    """Whether the queue is everybody's: only then is it asked for."""
    processor_limit_s: float | None = None
    """The machine's limit of processor time, when so much of it is used up that jobs are not judged any
    more."""
    asleep_s: float | None = None
    """How long no key was pressed, once nothing is asked any more because of that."""
    story: Story | None = None
    """What the demo tells; None outside of it."""
    standing: tuple[object, object, Standing | None] = (None, None, None)
    """The queue, the job of it that was looked up last, and where that stands: kept by `job_place.py`."""
    _jobs: tuple[object, Mapping[str, Job]] = (None, MappingProxyType({}))
    """The queue, and its jobs by their ids."""

    def label(self, key_id: str) -> str:
        """The key with this id, as it is shown: the one that was chosen in the config, else the shipped
        one. Every hint on a screen names its key by it."""
        return self.key_table[key_id].label

    @property
    def now_s(self) -> float:
        """The present in the data's time: what ages are counted from. It goes on between two snapshots."""
        if not self.snapshot_time_s:
            return self.snapshot.now_s
        return self.snapshot.now_s + max(0.0, self.clock() - self.snapshot_time_s)

    @property
    def ended_jobs(self) -> Mapping[str, Job]:
        """Those that the queue may have forgotten, by their ids, the newest of each number; none before they
        were asked for."""
        return {past.job.job_id: past.job for past in reversed(self.answers.past_jobs)}

    def run(self, run_id: str) -> Run | None:
        target = self.snapshot.targets.get(run_id)
        if target is not None and target.run is not None:
            return target.run
        return next((run for run in self.snapshot.runs if run.run_id == run_id), None)

    def job(self, job_id: str | None) -> Job | None:
        return self.jobs_by_id.get(job_id) if job_id is not None else None

    @property
    def jobs_by_id(self) -> Mapping[str, Job]:
        if self._jobs[0] is not self.snapshot.jobs:
            self._jobs = (self.snapshot.jobs, {job.job_id: job for job in self.snapshot.jobs})
        return self._jobs[1]

    def run_of_job(self, job_id: str) -> Run | None:
        job = self.job(job_id)
        runs = (run for run in self.snapshot.runs if run.job_id == job_id)
        return next((run for run in runs if job is None or is_job_of(job, run)), None)

    def job_of_run(self, run: Run) -> Job | None:
        """The run's row in the queue; the last that was followed where the queue has forgotten it."""
        job = self.job(run.job_id)
        if job is not None and is_job_of(job, run):
            return job
        target = self.snapshot.targets.get(run.run_id)
        return target.job if target is not None else None

    def forget_jobs_of_runs(self) -> None:
        """Drop the findings of a job that was judged before its run was known: the run has the same ones."""
        judged = self.found.keys() | self.diagnoses.keys()
        # What follows a run knows its job before the list of runs was read again.
        followed = (target.run for target in self.snapshot.targets.values() if target.run is not None)
        for run in (*self.snapshot.runs, *followed):
            if run.job_id is None or run.job_id == run.run_id or run.job_id not in judged:
                continue
            job = self.job(run.job_id) or self.ended_jobs.get(run.job_id)
            if job is not None and is_job_of(job, run):
                self.found.pop(run.job_id, None)
                self.diagnoses.pop(run.job_id, None)

    def state_of(self, run: Run) -> str | None:
        """By whoever knows best: what follows the run, then the queue, then its own file."""
        target = self.snapshot.targets.get(run.run_id)
        if target is not None and target.state is not None:
            return target.state
        job = self.job(run.job_id)
        return job.state if job is not None and is_job_of(job, run) else run.state
