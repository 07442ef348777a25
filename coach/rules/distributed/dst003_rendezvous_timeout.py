"""DST003: the ranks did not find each other in time."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule


class RendezvousTimeout(EndingRule):
    """The ranks did not find each other in time.

    What it sees
        "The client socket has timed out … while trying to connect to (HOST, PORT)", "Timed out after 601
        seconds waiting for clients. 1/2 clients joined", the store based barrier, torchrun's
        RendezvousTimeoutError and RendezvousConnectionError; a store that was lost ("DistNetworkError: Broken
        pipe", of old torch "RuntimeError: Connection reset by peer"); of JAX "Barrier timed out", "cluster
        registration failed" and a RegisterTask that nobody answered; of Ray and Horovod their own words for
        it.
    Why it matters
        A rank that never came is missing: it failed earlier, or it looks at another address. The one that
        says so is the one that waited.
    When it stays silent
        On single attempts that are repeated. Other errors of a rank that came earlier are the cause, and this
        the consequence.
    What to do
        Look at the nodes that did not join: their first error counts. MASTER_ADDR is the same on all,
        `scontrol show hostnames $SLURM_JOB_NODELIST | head -1`, and reachable from all; each node runs
        exactly one torchrun (`--ntasks-per-node=1`) with the same `--nnodes` and `--rdzv-endpoint`. A longer
        timeout only helps where a rank is known to start late.
    Sources
        torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp; torch/distributed/elastic/rendezvous.
    """

    code = "DST003"
    name = "rendezvous-timeout"
    cause = "rendezvous_timeout"

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        fields = hit.fields
        if "joined" in fields:
            return (
                f"Only {fields['joined']} of {fields['expected']} ranks came to the rendezvous in "
                f"{fields['seconds']} s"
            )
        if "refused" in fields:
            return f"{fields['refused'].replace(', ', ':')} refused the connection, or could not be reached"
        if "address" in fields:
            return f"{fields['address'].replace(', ', ':')} could not be reached in {fields['after']}"
        return "The ranks did not find each other in time"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Look at the first error of the ranks that did not come: it is the cause")
        yield Fix(
            "Give all nodes the same address, of the first node of the job",
            command='MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)',
        )
