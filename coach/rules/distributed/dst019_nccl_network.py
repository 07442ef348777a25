"""DST019: the network between the nodes failed beneath NCCL, UCX or MPI."""

from __future__ import annotations

import re

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.quoted_evidence import hits_of

_PEER_CLOSED = re.compile(r"closed by remote peer")
_NCCL_FAILED = re.compile(
    r"NCCL error|nccl\w{1,40}Error|NCCL INFO .{0,400} -> [1-7]\b|terminate called|Traceback"
    r"|ChildFailedError|^(?:srun|slurmstepd)\S*: error"
)


class NcclNetwork(EndingRule):
    """The network between the nodes failed beneath NCCL, UCX or MPI.

    What it sees
        ncclRemoteError, NCCL's warnings about a socket or an InfiniBand call that failed (NET/IB "Got
        completion … with error", connection refused, reset or timed out, no socket interface found), UCX
        errors of the ib transport, `ibv_… failed`, "Transport retry count exceeded"; MPI's "OFI poll failed",
        failed TCP connections to a peer, and lost daemons.
    Why it matters
        The communicator is lost on all ranks. If a peer closed the connection, that peer ended first, and its
        own error is the cause.
    When it stays silent
        On NCCL INFO, on "No device found" and missing plugins, after which NCCL takes sockets, and on
        "Resource temporarily unavailable". The finding is info if the program went on.
    What to do
        Look at the rank that the line names: if it ended with its own error, solve that. If no rank did:
        choose the network interface (NCCL_SOCKET_IFNAME, NCCL_IB_HCA, never lo or docker0), and check that
        locked memory is unlimited in the job (`ulimit -l`). If one node recurs in these errors, leave it out
        and report it to the site.
    Sources
        NCCL user guide: troubleshooting, environment variables; UCX; ibv_get_async_event(3), ibv_poll_cq(3).
    """

    code = "DST019"
    name = "nccl-network"
    cause = "nccl_network"
    waits_for_peers = True
    general = (
        Fix("Look first whether the peer that is named ended with an error of its own"),
        Fix(
            "Run once with NCCL_DEBUG=INFO, and see which interface it takes",
            {"env": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}},
        ),
    )
    sentences = by_field(
        otherwise="The network between the ranks failed: {what:.160}",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        # A rank that is done closes its connections before the others do. So does a rank whose GPU failed.
        if not _PEER_CLOSED.search(hit.text):
            return True
        if any(
            "Cuda failure" in said.text or "Failed to CUDA" in said.text
            for said in hits_of(snapshot, "DST004", "warn")
        ):
            return False
        return any(map(_NCCL_FAILED.search, snapshot.lines))
