"""DST020: a gloo connection between two ranks was lost, or could not be established."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.outcome import first_failure

_MAY_BE_A_PEER = re.compile(
    r"received errors|closed by peer|reset by peer|Broken pipe|Read error|Timed out waiting"
)


class GlooConnection(EndingRule):
    """A gloo connection between two ranks was lost, or could not be established.

    What it sees
        Errors from gloo's transport: "Connection closed by peer [ADDRESS]", "Connection reset by peer",
        "Timed out waiting …ms for recv operation to complete", "Gloo connectFullMesh failed", "Unable to find
        address for: INTERFACE". If torchrun's summary names another rank as the first failure, and that rank
        left no error, the finding is about that rank.
    Why it matters
        The surviving rank reports "closed by peer": the other rank ended first, and its error is the cause. A
        connection that could not be established is mostly a matter of the network address: gloo takes the one
        that the node's own name resolves to.
    When it stays silent
        When a logger reports it only as a warning. The finding is info if the program went on. If a rank
        failed earlier with its own error, that is the cause.
    What to do
        A timeout with no rank that ended: see where each rank waits. Else find the first error of another
        rank. If there is none, look for a rank that was killed silently (out
        of memory). For connections that could not be established, choose the interface (GLOO_SOCKET_IFNAME),
        and check that /etc/hosts does not map the node's name to 127.0.1.1.
    Sources
        gloo/transport/tcp/pair.cc, unbound_buffer.cc, device.cc; torch ProcessGroupGloo.
    """

    code = "DST020"
    name = "gloo-connection"
    cause = "gloo_connect"
    waits_for_peers = True
    sentences = by_field(what="A gloo connection failed: {what:.160}", otherwise="A gloo connection failed")

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _waited_for_the_living(hit, snapshot):
            yield Fix(
                "See where each rank waits while it hangs, in a copy of the job: `coach stacks JOB`, or "
                "py-spy dump. A collective that only some ranks call, as inside `if rank == 0:`, is the "
                "usual cause"
            )
        elif _MAY_BE_A_PEER.search(hit.text):
            yield Fix(
                "Look for the rank that ended first: its error, or its kill without a message, is the cause"
            )
        else:
            yield Fix(
                "Choose the interface that all nodes share (ip -br address shows their names): "
                "GLOO_SOCKET_IFNAME=NAME"
            )


def _waited_for_the_living(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if a rank waited in vain, and no other rank is known to have ended before it. gloo reports a peer
    that ended by other words."""
    first = first_failure(snapshot)
    is_alone = first is None or hit.rank is None or first.rank == hit.rank
    return "Timed out waiting" in hit.text and is_alone
