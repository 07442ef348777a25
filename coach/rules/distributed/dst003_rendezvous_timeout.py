"""DST003: the ranks did not find each other in time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.rules.from_logs.ending_rule import UNHEEDED, EndingRule

_TIMEOUT = re.compile(
    UNHEEDED + r"(?!.*?gai error).*?(?:"
    r"The client socket has timed out after (?P<after>\S+) while trying to connect to "
    r"\(?(?P<address>[^,)\s]+(?:, \d+)?)"
    r"|The client socket has failed to connect to any network address of \((?P<refused>[^)]+)\)"
    r"|Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) "
    r"clients joined"
    r"|Timed out initializing process group in store based barrier on rank:? ?(?P<rank>\d+)"
    r"|RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError"
    r"|DistStoreError: (?:wait timeout|Socket Timeout|Timeout waiting for key)"
    r"|(?:Error|Exception): (?:(?>.*?TCPStore).*?)?(?:Socket Timeout|[Cc]onnection timed out"
    r"|wait\(\) timed out|connect\(\) timed out\..*|Connection refused)\s*$"
    r"|DistNetworkError: (?!.*?(?:EADDRINUSE|failed to listen))|RuntimeError: (?:Connection reset by peer"
    r"|Broken pipe)\s*$"
    r"|(?:Error|what\(\)).*?(?:Barrier timed out|barrier timed out|Some workers failed to join the cluster)"
    r"|DEADLINE_EXCEEDED: (?:Barrier timed out|GetKeyValue\(\) timed out with key)"
    r"|RPC: /tensorflow\.CoordinationService/RegisterTask|Stopping coordination service as cluster "
    r"registration failed"
    r"|Error: Unable to meet other processes at the rendezvous store|Timed out waiting for [\w ]{1,60}\. "
    r"Please check connectivity between servers"
    r")"
)


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
    causal_rank = 4
    consequence_of = ("DST021", "DST002", "CUD005")
    signatures = (
        Signature(
            "DST003",
            "timeout",
            (
                "client socket has timed out",
                "to any network address of",
                "waiting for clients",
                "store based barrier on rank",
                "RendezvousTimeoutError",
                "RendezvousConnectionError",
                "RendezvousClosedError",
                "DistStoreError",
                "DistNetworkError",
                "Socket Timeout",
                "onnection timed out",
                "wait() timed out",
                "connect() timed out",
                "Connection refused",
                "Connection reset by peer",
                "Broken pipe",
                "arrier timed out",
                "failed to join the cluster",
                "cluster registration failed",
                "GetKeyValue() timed out",
                "CoordinationService/RegisterTask",
                "processes at the rendezvous store",
                "check connectivity between servers",
            ),
            _TIMEOUT,
        ),
    )

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
