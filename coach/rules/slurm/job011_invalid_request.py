"""JOB011: Slurm refused what was asked of it; nothing was started."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import lines_after
from coach.rules.from_logs.ending_rule import EndingRule


class InvalidRequest(EndingRule):
    """Slurm refused what was asked of it: the job, or a step inside of it, was never started.

    What it sees
        The refusals of sbatch, srun and salloc: "Batch job submission failed: …", "Unable to allocate
        resources: …", "Unable to create step for job 17: …", limits by name (QOSMaxSubmitJobPerUserLimit,
        AssocMaxSubmitJobLimit), unknown options, a script that is no batch script; also in the words of an
        exception of who called them (submitit's FailedJobError, whatever sbatch said).
    Why it matters
        It never runs as it was asked, however often it is submitted.
    When it stays silent
        Where the controller did not answer or asks to try again later: the request may be in order. Info
        where a job went on after it.
    What to do
        Read the words behind the colon: they name the partition, account, QOS, limit, memory or GPU type.
        `scontrol show partition`, `sacctmgr show assoc user=$USER` and `sinfo -o "%P %l %G %m %c"` show what
        there is. "Requested node configuration is not available" is a shape that no node has, or an account
        or reservation that may not use those that have it.
    Sources
        Slurm's slurm_errno.c; sbatch(1), srun(1); Slurm's page on resource limits.
    """

    code = "JOB011"
    name = "invalid-request"
    cause = "slurm_invalid_request"
    confidence = 0.95

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """What was refused, and then submitted otherwise, ended nothing."""
        return not any(
            line.startswith("Submitted batch job")
            for tail in snapshot.log_tails
            if tail.file == hit.file
            for line in lines_after(hit, tail)
        )

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = hit.fields.get("why") or hit.fields.get("words") or hit.fields.get("option") or ""
        return f"Slurm refused the request: {words.strip()[:200]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        text = hit.text if hit is not None else ""
        if re.search(r"[Aa]ssoc|QOS|account|qos|policy", text):
            yield Fix("See your accounts, QOS and their limits", command="sacctmgr -s show assoc user=$USER")
        else:
            yield Fix("See what the partitions offer", command="sinfo -o '%P %a %l %D %c %m %G'")
        yield Fix("Correct the option that the words name, and submit again")
