"""DST020: a gloo connection between two ranks was lost, or never came about."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.outcome import told_of_the_dead

_MAY_BE_A_PEER = re.compile(
    r"received errors|closed by peer|reset by peer|Broken pipe|Read error|Timed out waiting"
)


class GlooConnection(EndingRule):
    """A gloo connection between two ranks was lost, or never came about.

    What it sees
        Errors from gloo's transport: "Connection closed by peer [ADDRESS]", "Connection reset by peer",
        "Timed out waiting …ms for recv operation to complete", "Gloo connectFullMesh failed", "Unable to find
        address for: INTERFACE". Where torchrun's summary names another rank as the first failure, and that
        rank left no error, the finding is about that rank.
    Why it matters
        "closed by peer" is said by the rank that is left: the other one ended first, and its error is the
        cause. A connection that never came about is the network's choice: gloo takes the address that the
        node's own name resolves to.
    When it stays silent
        Where a logger gives it as a warning; info when the program went on. Any rank's own error before it is
        the cause.
    What to do
        Find the first error of another rank. If there is none, look for a rank that was killed without a word
        (out of memory). For connections that never came about, choose the interface (GLOO_SOCKET_IFNAME) and
        see that the node's name is not 127.0.1.1 in /etc/hosts.
    Sources
        gloo/transport/tcp/pair.cc, unbound_buffer.cc, device.cc; torch ProcessGroupGloo.
    """

    code = "DST020"
    name = "gloo-connection"
    cause = "gloo_connect"

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for hit in super().check(snapshot, history):
            yield told_of_the_dead(hit, snapshot)

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        words = next(
            (hit.fields[key] for key in ("what", "mesh", "reached", "wait", "device") if key in hit.fields),
            "",
        )
        return f"A gloo connection failed: {words.strip()[:160]}"

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if hit is None or _MAY_BE_A_PEER.search(hit.text):
            yield Fix("Look for the rank that ended first: its error, or a kill without a word, is the cause")
        else:
            yield Fix(
                "Choose the interface that all nodes share (ip -br address shows their names): "
                "GLOO_SOCKET_IFNAME=NAME"
            )
