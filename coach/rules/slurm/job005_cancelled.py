"""JOB005: the job was cancelled by its user, an administrator or a tool. The program did not fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coach.lookback.history import History
from coach.model.judging.finding import PRIMARY, Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.base import Threshold
from coach.rules.from_logs.aftermath import was_outlived
from coach.rules.from_logs.outcome import KILL
from coach.rules.from_logs.quoted_evidence import hits_of
from coach.rules.slurm.ended_by_slurm import EndedBySlurm

_DEPENDENCY = "DependencyNeverSatisfied"
_SRUN_ENDS_IT = "srun: Force Terminated "


class Cancelled(EndedBySlurm):
    """The job was cancelled; the program did not fail.

    What it sees
        The state CANCELLED, of a job that never started also Slurm's reason DependencyNeverSatisfied;
        slurmstepd's "*** JOB 17 ON node1 CANCELLED AT … ***" without a reason, or with "DUE to SIGNAL
        Terminated"; srun's "Force Terminated"; salloc's "Job allocation 17 has been revoked".
    Why it matters
        The messages that the tasks print afterwards (KeyboardInterrupt, killed workers, lost connections) are
        consequences, not faults.
    When it stays silent
        If the line has another reason (time limit, preemption, node failure, requeue), and if srun ended a
        step because one of its tasks failed or was killed: in a job that FAILED, srun's "Force Terminated"
        alone is no cancellation. If something went wrong before, that is the cause: people cancel
        jobs that do not train.
    What to do
        Nothing, if you cancelled it: with Slurm's state CANCELLED this finding and its consequences are only
        info. Else `sacct -j JOB -o State%30` shows the user id ("CANCELLED by 1000"): an administrator, or a
        tool of the site that ends idle jobs.
    Sources
        slurmstepd (req.c); scancel(1); srun's launch plugin; sacct(1), State.
    """

    code = "JOB005"
    name = "cancelled"
    cause = "slurm_cancelled"
    states = frozenset({"CANCELLED"})
    lines_until_tasks_fail = Threshold(
        5,
        "lines",
        "srun's and slurmstepd's lines about one end come within a few lines of each other, in any order",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if hit.signature == "ended" and hit.fields["what"] == "JOB":
            return True
        if hit.signature == "revoked" and was_outlived(hit, snapshot):
            return False
        if hit.signature == "task_failed" or self._follows_a_killed_task(hit, snapshot):
            return False
        # If a task failed before the line or shortly after it, srun ended the step because of that. A task
        # that failed later was ended with the step.
        return all(
            failed.file == hit.file and failed.line > hit.line + self.lines_until_tasks_fail
            for failed in hits_of(snapshot, self.code, "task_failed")
        )

    def _follows_a_killed_task(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """True if srun ended a step because one of its tasks had been killed. srun writes the same line after
        a scancel, so in a job that FAILED the line alone is no proof of one."""
        is_of_srun = hit.text.startswith(_SRUN_ENDS_IT)
        if is_of_srun and snapshot.state == "FAILED":
            return True
        killed = [each.line for each in hits_of(snapshot, KILL, "killed") if _is_task_of(each, hit)]
        near = self.lines_until_tasks_fail
        return any(line < hit.line and (is_of_srun or hit.line - line <= near) for line in killed)

    def summary(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> str:
        job = snapshot.job
        if job is not None and job.nodes is None and (job.reason or "").startswith(_DEPENDENCY):
            on = f" ({job.dependency})" if job.dependency else ""
            return (
                f"The job was cancelled before its start: a job that it depends on did not end as asked{on}"
            )
        at = next((hit.fields["at"] for hit in hits if "at" in hit.fields), None)
        return f"The job was cancelled{f' at {at}' if at else ''}; nothing in the program ended it"

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        # Mostly users cancel their own jobs. In the queue an administrator's scancel looks the same.
        is_intended = snapshot.state in self.states
        for hit in super().check(snapshot, history):
            yield replace(hit, is_intended=True, fixes=()) if is_intended else hit

    def fixes(self, snapshot: TargetSnapshot, history: History) -> Iterable[Fix]:
        yield Fix("If it was not you, ask who cancelled it", needs=(PRIMARY,))


def _is_task_of(killed: LogHit, hit: LogHit) -> bool:
    """True if srun reports in the same log that a task was killed."""
    return killed.file == hit.file and "srun: error: " in killed.text
