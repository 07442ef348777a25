"""Remember how runs ended, judge earlier runs that nobody judged, and add findings about the past to a
diagnosis.

A run is judged by itself first. Its result is kept as one line in the cache. The rules about the past get
only those lines and the jobs seen in the queue: they read no log again, ask Slurm nothing, and work when the
logs are gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coach import runs
from coach.analysis.comparing.earlier_runs import across, past_run, seen_run, work_of
from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.judging.verdict import PAST_FAMILY, PastRun
from coach.model.reading import JobList
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.node.secret_words import mask_text
from coach.rules.engine import Engine
from coach.sources.machine.user import user_name
from coach.sources.runs.run_sizes import size_of_tree
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdicts import Verdicts
from coach.sources.slurm.node_sets import expand_nodes

if TYPE_CHECKING:
    from coach.rules.base import Rule

MAX_CAUGHT_UP = 8
"""Earlier runs without a verdict that one command reads at most, the newest first."""
MAX_CAUGHT_UP_BYTES = 32 << 20
"""A run that wrote more is not read only to learn how it ended."""
LIVE_INTERVAL_S = 60.0
"""Seconds between two looks at the earlier runs of a run that goes on: they do not change faster."""


@dataclass(slots=True)
class _Look:
    """The facts about a target at a time, and the findings that were made of them."""

    time_s: float
    this: PastRun | None
    findings: tuple[Finding, ...] | None = None


class PastRuns:
    """One user's memory of past runs, and the findings from it. Used by one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._user = user_name()
        self._verdicts = Verdicts(settings.cache_dir)
        self._seen: tuple[Job, ...] | None = None
        self._seen_runs: list[PastRun] | None = None
        self._looks: dict[str, _Look] = {}

    def note(self, snapshot: TargetSnapshot, history: History, diagnosis: Diagnosis) -> PastRun | None:
        """The facts to remember about this target; they are kept if it has ended. None if it is neither a run
        nor a job, or belongs to another user. Those of a target that goes on are renewed once a minute."""
        look, now_s = self._looks.get(snapshot.target), snapshot.now_s
        age_s = now_s - look.time_s if look is not None and now_s is not None else math.inf
        if look is not None and not snapshot.has_ended and 0 <= age_s < LIVE_INTERVAL_S:
            return look.this
        this = self._facts(snapshot, history, diagnosis)
        self._looks[snapshot.target] = _Look(now_s or 0.0, this)
        return this

    def _facts(self, snapshot: TargetSnapshot, history: History, diagnosis: Diagnosis) -> PastRun | None:
        whose = snapshot.run or snapshot.job
        if whose is not None and whose.user not in (None, self._user):
            return None
        nodes = expand_nodes(snapshot.job.nodes) if snapshot.job is not None else ()
        this = past_run(snapshot, history, diagnosis, nodes)
        if this is not None:
            this = replace(this, summary=mask_text(this.summary or "") or None)  # it quotes a log
            self._verdicts.keep(this)
        return this

    def findings(self, rules: Iterable[Rule], snapshot: TargetSnapshot, this: PastRun) -> tuple[Finding, ...]:
        """Findings of the rules about the past, made once for the same facts."""
        look = self._looks.get(snapshot.target)
        if look is not None and look.this is this and look.findings is not None:
            return look.findings
        looked_at = replace(snapshot, across=across(this, self._known()))
        engine = Engine([rule for rule in rules if rule.code.startswith(PAST_FAMILY)])
        found = engine.diagnose(looked_at, History()).findings
        if look is not None:
            look.findings = found
        return found

    def attempts(self, this: PastRun) -> list[PastRun]:
        """All other attempts at the same work: first those that go on, then those that ended, the latest
        first."""
        same = [past for past in self._known() if past.work == this.work and past.target != this.target]
        return sorted(same, key=lambda past: past.ended_s or math.inf, reverse=True)

    def forget(self, target: str) -> None:
        self._looks.pop(target, None)

    def catch_up(self, this: PastRun, known: Iterable[Run], judge: Callable[[Run | Job], object]) -> None:
        """Judge its earlier attempts that nobody has judged yet. `known` are runs, newest first;
        `judge` notes the end of one."""
        judged = {past.target for past in self._verdicts.read().values() if past.is_judged}
        left_out = judged | {this.target}
        earlier: list[Run | Job] = [
            run
            for run in known
            if run.run_id not in left_out
            and work_of(run, None) == this.work
            and _has_ended_before(this, run.state, run.ended_time_s)
            and _is_small(run)
        ]
        earlier += [
            job
            for job in self._seen_jobs()
            if job.job_id not in left_out
            and job.stdout is not None
            and work_of(None, job) == this.work
            and _has_ended_before(this, job.state, job.end_time_s)
        ]
        for each in earlier[:MAX_CAUGHT_UP]:
            try:
                judge(each)
            except UserError:
                continue  # its files are gone or cannot be read: nothing is known of it
        self._looks.clear()  # findings made before would lack these attempts

    def _known(self) -> list[PastRun]:
        """Runs that were judged, and jobs that were only seen in the queue."""
        judged = self._verdicts.read()
        own = str(self._settings.runs_root)
        if self._seen_runs is None:  # built once: an array of hundreds asks for each task
            self._seen_runs = [
                past
                for job in self._seen_jobs()
                if not (job.command or "").startswith(own)
                if (past := seen_run(job, expand_nodes(job.nodes), job.end_time_s)) is not None
            ]
        seen = (past for past in self._seen_runs if (past.target, past.submitted_s) not in judged)
        return [*judged.values(), *seen]

    def _seen_jobs(self) -> tuple[Job, ...]:
        if self._seen is None:
            remembered = SeenJobs(self._settings.cache_dir).read()[0]
            self._seen = tuple(each.job for each in remembered if each.job.start_time_s is not None)
        return self._seen


def _has_ended_before(this: PastRun, state: str | None, ended_s: float | None) -> bool:
    begin_s = this.submitted_s or this.started_s or 0.0
    return is_final(state) and (ended_s or begin_s) < begin_s


def note_accounting(settings: Settings, told: Iterable[PastJob]) -> None:
    """Keep accounting's record of jobs that coach did not launch: their nodes, and the memory they requested
    and used, which no log reports."""
    pasts = []
    for each in told:
        past = seen_run(each.job, expand_nodes(each.job.nodes), each.job.end_time_s)
        if past is None or each.source != "sacct" or each.run_id is not None:
            continue
        num_nodes = each.job.num_nodes or 1
        asked, used = each.efficiency.memory_asked_mib, each.efficiency.memory_used_mib
        past = replace(past, memory_asked_mib=None if asked is None else asked / num_nodes)
        pasts.append(replace(past, memory_used_mib=None if used is None else used / num_nodes))
    Verdicts(settings.cache_dir).keep(*reversed(pasts))


def joined(diagnosis: Diagnosis, found: tuple[Finding, ...]) -> Diagnosis:
    """Append the findings about the past to those about the run itself; put them first if the run has only
    info findings and they are graver."""
    if not found:
        return diagnosis
    first, second = diagnosis.findings, found
    if not any(each.severity > Severity.INFO for each in first) and found[0].severity > Severity.INFO:
        first, second = found, diagnosis.findings
    rest = tuple(replace(each, is_primary=not first and each.is_primary) for each in second)
    return replace(diagnosis, findings=(*first, *rest))


def rows_of(each: Run | Job) -> JobList:
    """The queue's answer to assume for a past run or job, so that Slurm is not asked about it again."""
    return JobList((each,) if isinstance(each, Job) else (), False)


def _is_small(run: Run) -> bool:
    paths = runs.RunPaths(run.run_dir)
    read = (paths.stdout_log, paths.stderr_log, paths.metrics_dir, paths.telemetry_dir)
    sizes = [size_of_tree(path) for path in read]
    return None not in sizes and sum(filter(None, sizes)) <= MAX_CAUGHT_UP_BYTES
