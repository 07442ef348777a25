"""JOB011: Slurm refused the request, and nothing was started."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import is_below
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.outcome import was_never_started

_SUBMITTED = re.compile("^Submitted batch job")


class InvalidRequest(EndingRule):
    """Slurm refused the request: the job, or a step in it, was never started.

    What it sees
        The refusals of sbatch, srun and salloc: "Batch job submission failed: …", "Unable to allocate
        resources: …", "Unable to create step for job 17: …", limits by name (QOSMaxSubmitJobPerUserLimit,
        AssocMaxSubmitJobLimit), unknown options, a file that is not a batch script. The same messages in
        exceptions of a caller, such as submitit's FailedJobError; what a site's own check says through
        sbatch, salloc or srun. Ranks that MPI did not start: mpirun's "not enough slots", a PMI that Slurm or
        the program lacks. A job with the state FAILED and the reason
        BadConstraints that never had a node. A request that qsub refuses.
    Why it matters
        The same request will be refused each time.
    When it stays silent
        If the controller did not answer or asks to try again later: the request may be valid. The finding is
        info if a job went on after it.
    What to do
        If a step asks for more than its job has, start fewer tasks, or ask for more by sbatch. Else read the
        text behind the colon: it names the partition, account, QOS, limit, memory or GPU type.
        `scontrol show partition`, `sacctmgr show assoc user=$USER` and `sinfo -o "%P %l %G %m %c"` show the
        valid values. "Requested node configuration is not available" means that no node has these resources,
        or that the account or reservation may not use the nodes that have them.
    Sources
        Slurm's slurm_errno.c; sbatch(1), srun(1); Slurm's page on resource limits.
    """

    code = "JOB011"
    name = "invalid-request"
    cause = "slurm_invalid_request"
    general = (
        Fix("See what the partitions offer", command="sinfo -o '%P %a %l %D %c %m %G'"),
        Fix("Correct the option that the words name, and submit again"),
    )
    confidence = 0.95
    sentences = by_field(
        launch="The ranks were not started: {words:.200}",
        foreign="The scheduler refused the request: {words:.200}",
        job="Slurm refused a step of the job: {why:.200}",
        why="Slurm refused the request: {why:.200}",
        words="Slurm refused the request: {words:.200}",
        option="Slurm refused the request: {option:.200}",
        otherwise="Slurm refused the request",
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if was_never_started(snapshot):
            yield self._never_started(snapshot)
        else:
            yield from super().check(snapshot, history)

    def _never_started(self, snapshot: TargetSnapshot) -> Hit:
        job = snapshot.job
        assert job is not None
        where = f"of partition {job.partition} " if job.partition else ""
        asked = {"nodes": job.num_nodes, "CPUs": job.num_cpus, "GPUs": job.num_gpus}
        words = [f"{value} {name if value > 1 else name[:-1]}" for name, value in asked.items() if value]
        return Hit(
            summary=f"Slurm never started the job: no node {where}fits its request",
            evidence=(
                Evidence(f"state FAILED, reason {job.reason}, no node was ever assigned"),
                *([Evidence(f"asked for: {', '.join(words)}")] if words else []),
            ),
            confidence=self.confidence,
            fixes=(
                Fix(
                    "See which demand no node meets: the nodes that it names or leaves out (--nodelist, "
                    "--exclude), or its memory, CPUs, GPUs and features; change that one and submit it again",
                    command=f"scontrol show job {job.job_id} | "
                    "grep -E 'TRES=|MinCPUs|Features|[qc]NodeList'; "
                    "sinfo -o '%P %D %c %m %G %f'",
                ),
            ),
        )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False if a later submission in the log succeeded."""
        return not is_below(_SUBMITTED, hit, snapshot)
