"""JOB018: Slurm took the job's resources away for another job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coach.lookback.history import History
from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.slurm.ended_by_slurm import REQUEUES, EndedBySlurm


class Preempted(EndedBySlurm):
    """Slurm ended the job to give its resources to another one.

    What it sees
        The state PREEMPTED; slurmstepd's "CANCELLED AT … DUE TO PREEMPTION"; submitit's "this job is
        preempted"; LSF's TERM_PREEMPT; and "DUE TO JOB REQUEUE" at the end of a log.
    Why it matters
        The program is not at fault. All work since the last checkpoint is lost, and in such a partition or
        QOS it can happen again.
    When it stays silent
        On a preempted attempt of a requeued job that goes on, and on a job that requeued itself. If something
        critical came before it.
    What to do
        Prepare for it: `--requeue`, checkpoints, and a handler for the first signal (SIGTERM, followed by
        SIGKILL after GraceTime; or `--signal=B:USR1@120`). Or submit to a partition without preemption.
    Sources
        slurmstepd (req.c, SIG_PREEMPTED); Slurm's page on preemption (PreemptMode, GraceTime); submitit's
        signal handler.
    """

    code = "JOB018"
    name = "preempted"
    cause = "slurm_preempted"
    states = frozenset({"PREEMPTED"})

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """A requeued job goes on, into the same log or another. The line counts only at the end of a log, and
        only if the job did not requeue itself."""
        if hit.signature != "requeued":
            return True
        tails = [tail for tail in snapshot.log_tails if tail.file == hit.file]
        is_asked_for = any(REQUEUES.search(line) for tail in tails for line in tail.plain)
        return bool(tails) and snapshot.state is None and not is_asked_for and not was_outlived(hit, snapshot)

    def summary(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> str:
        if all(hit.signature == "requeued" for hit in hits) and snapshot.state not in self.states:
            return "The job was ended and requeued, as Slurm does with one that is preempted"
        return "The job was preempted: Slurm gave its resources to another one"

    def fixes(self, snapshot: TargetSnapshot, history: History) -> Iterable[Fix]:
        if snapshot.run is not None and snapshot.checkpoints:
            yield Fix("Launch it again: it resumes from its newest checkpoint")
        yield Fix("Be ready for the next time: --requeue, and a checkpoint when the signal comes")
        yield Fix("Or submit to a partition or QOS whose jobs are not preempted")
