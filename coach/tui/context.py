"""Data shared by the screens: the session, the last snapshot, and results derived from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.judging.ranking import RankedFinding, ranked_of
from coach.model.judging.finding import Diagnosis
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.model.training.run import Run
from coach.tui.keys import NOTHING_OFF, SHIPPED, Key, SwitchedOff, can_launch
from coach.tui.mode import Mode
from coach.tui.ports import Session
from coach.tui.question import Answers, Question
from coach.tui.training import Trainings

if TYPE_CHECKING:
    from coach.analysis.queueing.ahead import Standing
    from coach.tui.key_guard import TypedOn
    from coach.workflows.watching.first_start import Here
    from coach.workflows.watching.table_views import SavedView, View

if TYPE_CHECKING:
    from coach.workflows.watching.story import Story


@dataclass(slots=True)
class Context:
    """Data shared by the screens. The app updates it; screens read it, and change only the marks and the
    views."""

    session: Session
    mode: Mode
    """It can change while coach is open: the site, or the user, sets `readonly`."""
    user: str | None
    place: str
    """The backend and cluster or machine on the screens: `slurm · tiger`, `local · ws1`."""
    clock: Callable[[], float]
    """A monotonic clock, in seconds."""
    snapshot: Snapshot
    snapshot_time_s: float
    """When the snapshot arrived, on `clock`."""
    typed_on: TypedOn
    why_readonly: str | None = None
    """The setting that forbids changes, and its reason; None if coach was opened read-only."""
    switched_off: SwitchedOff = field(default_factory=lambda: NOTHING_OFF)
    """Functions that the site has switched off, with its reasons. It can change while coach is open."""
    key_time_s: float = 0.0
    """When the key that is being handled arrived, on `clock`."""
    key_table: Mapping[str, Key] = field(default_factory=lambda: SHIPPED)
    """All keys by id, as configured."""
    launch_keys: tuple[Key, ...] = ()
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    """The last diagnosis of each target that was followed in this session."""
    rates: dict[str, float] = field(default_factory=dict)
    """The last throughput of each run that was followed, in samples/s."""
    answers: Answers = field(default_factory=Answers)
    """Answers to questions that screens ask on demand."""
    found: dict[str, tuple[RankedFinding, ...]] = field(default_factory=dict)
    """The last findings of each target that was judged, with their cost in GPU-hours."""
    trainings: Trainings = field(default_factory=Trainings)
    """The last progress and rates of the targets that were followed."""
    kept: set[str] = field(default_factory=set)
    """Jobs in `found` whose verdicts were kept by an earlier session: their files need not be read again."""
    unread: list[str] = field(default_factory=list)
    """Jobs that ended within a day and have not been judged yet."""
    views: dict[str, View] = field(default_factory=dict)
    """Filter, order and columns of each table, by the table's id."""
    saved_views: dict[str, SavedView] = field(default_factory=dict)
    """Saved views of the queue, by name."""
    views_problem: str | None = None
    """Why the saved views could not be read as they were written."""
    here: Here | None = None
    """The text of the first start; None after the first key, and at later starts."""
    is_first_key_pressed: bool = False
    is_detail_hidden: bool = False
    """True if a wide terminal shows the list of the first screen without the detail beside it."""
    marked: list[str] = field(default_factory=list)
    are_all_shown: bool = False
    """True if the queue shows everybody's jobs; otherwise coach asks Slurm only for the user's own."""
    processor_limit_s: float | None = None
    """The machine's limit of processor time in seconds, once coach has used too much of it to go on judging
    jobs; else None."""
    asleep_s: float | None = None
    """Seconds without a key, if coach has stopped asking Slurm for that reason; else None."""
    story: Story | None = None
    """The captions of the demo; None outside it."""
    standing: tuple[object, object, Standing | None] = (None, None, None)
    """A cache of `job_place.py`: the queue, the job that was looked up last, and its place in the queue."""
    _jobs: tuple[object, Mapping[str, Job]] = (None, MappingProxyType({}))
    """A cache: the queue, and its jobs by id."""

    def label(self, key_id: str) -> str:
        """The label of a key: the user's choice in the config, else the shipped one. Each hint on a screen
        names its key by this."""
        return self.key_table[key_id].label

    @property
    def can_launch(self) -> bool:
        """True if neither the mode nor the site forbids launches."""
        return can_launch(self.mode, self.switched_off)

    @property
    def now_s(self) -> float:
        """The current time in Unix seconds by the data's clock, from which ages are counted. It also advances
        between two snapshots."""
        if not self.snapshot_time_s:
            return self.snapshot.now_s
        return self.snapshot.now_s + max(0.0, self.clock() - self.snapshot_time_s)

    @property
    def ended_jobs(self) -> Mapping[str, Job]:
        """Ended jobs that may have left the queue, by id; of several jobs with one id, the newest. Empty
        until a screen has asked for them."""
        return {past.job.job_id: past.job for past in reversed(self.answers.past_jobs)}

    def use_kept_verdicts(self) -> None:
        """Show the verdicts that coach has kept of ended jobs which were not judged in this session. Runs
        keep theirs in their own directories."""
        own = self.answers[Question.REMEMBERED].value
        if own is None:
            return
        for past in own.jobs:
            name, job = past.job.job_id, past.job
            diagnosis = own.verdicts.get(name)
            if diagnosis is None or name in self.found or self.run_of_job(name) is not None:
                continue
            self.kept.add(name)
            self.found[name] = ranked_of(diagnosis, TargetSnapshot(name, job.end_time_s, job=job))
            if not diagnosis.findings:
                self.diagnoses[name] = diagnosis

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
        runs = (run for run in self.snapshot.runs if job_id in run.job_ids)
        return next((run for run in runs if job is None or is_job_of(job, run)), None)

    def job_of_run(self, run: Run) -> Job | None:
        """The run's row in the queue, or the last row that was followed if the job has left the queue."""
        job = self.job(run.job_id)
        if job is not None and is_job_of(job, run):
            return job
        target = self.snapshot.targets.get(run.run_id)
        followed = target.job if target is not None else None
        return None if followed is not None and followed.job_id in run.earlier_job_ids else followed

    def forget_jobs_of_runs(self) -> None:
        """Drop the findings of jobs that were judged before their run was known. The run has the same
        findings."""
        judged = self.found.keys() | self.diagnoses.keys()
        # The target of a run has its job id earlier than the list of runs, which is read less often.
        followed = (target.run for target in self.snapshot.targets.values() if target.run is not None)
        for run in (*self.snapshot.runs, *followed):
            for job_id in judged.intersection(run.job_ids) - {run.run_id}:
                job = self.job(job_id) or self.ended_jobs.get(job_id)
                if job is not None and is_job_of(job, run):
                    self.found.pop(job_id, None)
                    self.diagnoses.pop(job_id, None)

    def state_of(self, run: Run) -> str | None:
        """The run's state from the best source: its followed target, then the queue, then its own file."""
        target = self.snapshot.targets.get(run.run_id)
        if target is not None and target.state is not None:
            return target.state
        job = self.job(run.job_id)
        return job.state if job is not None and is_job_of(job, run) else run.state
