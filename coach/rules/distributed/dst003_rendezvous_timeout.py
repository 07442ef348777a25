"""DST003: the ranks did not find each other in time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import first_node_as_address
from coach.rules.from_logs.aftermath import num_alive_after, tail_of
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.quoted_evidence import hits_of

_JAX_TASK = re.compile(r"/task:(\d{1,6})")
_MIN_WAITS = 3
"""torch prints the first such line after some seconds, and the next ones each ten."""


class RendezvousTimeout(EndingRule):
    """The ranks did not find each other in time.

    What it sees
        "The client socket has timed out … while trying to connect to (HOST, PORT)", "Timed out after 601
        seconds waiting for clients. 1/2 clients joined", the store based barrier, torchrun's
        RendezvousTimeoutError and RendezvousConnectionError; a lost connection to the store
        ("DistNetworkError: Broken pipe", in old torch "RuntimeError: Connection reset by peer"); JAX's
        "Barrier timed out", "cluster registration failed" and an unanswered RegisterTask; the corresponding
        messages of Ray and Horovod; a log that ends in the lines of a rank that waits in the store's barrier.
    Why it matters
        A rank is missing: it failed earlier, or it connects to another address. The rank that reports the
        timeout is one that waited.
    When it stays silent
        On single attempts that are repeated. If a rank failed earlier with another error, that error is the
        cause, and this finding is its consequence.
    What to do
        Look for the first error on the nodes that did not join. MASTER_ADDR must be the same on all nodes
        (`scontrol show hostnames $SLURM_JOB_NODELIST | head -1`) and reachable from all. Each node must run
        exactly one torchrun (`--ntasks-per-node=1`) with the same `--nnodes` and `--rdzv-endpoint`. A longer
        timeout helps only if a rank is known to start late.
    Sources
        torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp; torch/distributed/elastic/rendezvous.
    """

    code = "DST003"
    name = "rendezvous-timeout"
    cause = "rendezvous_timeout"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """False for a rank that waits, if more was printed, or if it has not waited long."""
        if hit.signature != "waiting":
            return True
        waits, tail = hits_of(snapshot, self.code, "waiting"), tail_of(hit, snapshot)
        last = max(waits, key=lambda each: each.line)
        return tail is not None and len(waits) >= _MIN_WAITS and num_alive_after(last, tail) == 0

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if "workers" in hit.fields:
            workers, world = hit.fields["workers"], hit.fields["world"]
            return f"The log ends while {workers} of {world} ranks wait for the others"
        if missing := _missing(hit):
            return f"The tasks {missing} did not come to the coordinator's barrier in time"
        fields = _count(snapshot) or hit.fields
        if "joined" in fields:
            return (
                f"Only {fields['joined']} of {fields['expected']} ranks joined the rendezvous in "
                f"{fields['seconds']} s"
            )
        if "refused" in fields:
            return f"{fields['refused'].replace(', ', ':')} refused the connection, or could not be reached"
        if "address" in fields:
            return f"{fields['address'].replace(', ', ':')} could not be reached in {fields['after']}"
        return "The ranks did not find each other in time"

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if missing := _missing(hit):
            yield Fix(f"Look at the first error of task {missing}, which did not come: it is the cause")
            yield Fix(
                "Give all processes the same coordinator_address and num_processes, and each its process_id: "
                "on Slurm jax.distributed.initialize() without arguments takes them from srun's tasks"
            )
            return
        if "workers" in hit.fields:
            yield Fix(
                f"Start {hit.fields['world']} ranks, as WORLD_SIZE says: without srun in front of it only "
                "one process starts",
                command=f"srun --ntasks={hit.fields['world']} python PROGRAM",
            )
        if (count := _count(snapshot)) is not None:
            yield Fix(
                f"See if the job starts {count['expected']} ranks, as WORLD_SIZE says: srun's --ntasks, or "
                "torchrun's --nnodes times --nproc-per-node"
            )
        yield Fix("Look at the first error of the ranks that did not join: it is the cause")
        yield from first_node_as_address("Give all nodes the same address, of the first node of the job")


def _missing(hit: LogHit) -> str | None:
    """The tasks that JAX's coordinator waited for in vain, as its message lists them; None for another
    message."""
    message = hit.block.message if hit.block is not None else hit.text
    tasks = sorted(set(map(int, _JAX_TASK.findall(message)))) if "arrier timed out" in message else []
    return ", ".join(map(str, tasks)) or None


def _count(snapshot: TargetSnapshot) -> Mapping[str, str] | None:
    """The fields of the line that counts the ranks that joined; another rank's error may stand above it."""
    counted = (hit.fields for hit in hits_of(snapshot, RendezvousTimeout.code) if "joined" in hit.fields)
    return next((fields for fields in counted if fields["joined"] != fields["expected"]), None)
