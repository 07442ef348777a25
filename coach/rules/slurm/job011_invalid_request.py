"""JOB011: Slurm refused the request, and nothing was started."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.aftermath import lines_after
from coach.rules.from_logs.ending_rule import EndingRule


class InvalidRequest(EndingRule):
    """Slurm refused the request: the job, or a step in it, was never started.

    What it sees
        The refusals of sbatch, srun and salloc: "Batch job submission failed: …", "Unable to allocate
        resources: …", "Unable to create step for job 17: …", limits by name (QOSMaxSubmitJobPerUserLimit,
        AssocMaxSubmitJobLimit), unknown options, a file that is not a batch script. The same messages in
        exceptions of a caller, such as submitit's FailedJobError.
    Why it matters
        The same request will be refused each time.
    When it stays silent
        If the controller did not answer or asks to try again later: the request may be valid. The finding is
        info if a job went on after it.
    What to do
        Read the text behind the colon: it names the partition, account, QOS, limit, memory or GPU type.
        `scontrol show partition`, `sacctmgr show assoc user=$USER` and `sinfo -o "%P %l %G %m %c"` show the
        valid values. "Requested node configuration is not available" means that no node has these resources,
        or that the account or reservation may not use the nodes that have them.
    Sources
        Slurm's slurm_errno.c; sbatch(1), srun(1); Slurm's page on resource limits.
    """

    code = "JOB011"
    name = "invalid-request"
    cause = "slurm_invalid_request"
    confidence = 0.95

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False if a later submission in the log succeeded."""
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
