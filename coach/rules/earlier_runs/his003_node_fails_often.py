"""HIS003: a node on which the user's jobs fail more often than on other nodes."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote as shell_quote

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.judging.verdict import NodeRecord
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.remedies import leave_out
from coach.rules.base import Rule, Threshold
from coach.rules.earlier_runs.wording import when

_MAX_TOLD = 5


class NodeFailsOften(Rule):
    """A node of this run fails more often than its peers.

    What it sees
        All of your runs and jobs that coach recorded, with their nodes: the share on this node that ended
        because of the machine (the node failed, an Xid, memory errors, a driver too old, GPUs busy or
        missing, a stale file handle), compared with the share on all other nodes. A failed run on several
        nodes counts for the node that its finding names.
    Why it matters
        A half-broken node gets job after job, because it is the free one.
    When it stays silent
        On fewer than three such failures, with too few runs on other nodes, and unless Wilson's 95 % interval
        of the node's failure rate, widened for the number of compared nodes, lies above the rate of its
        peers.
    What to do
        Exclude the node from the next launches (--exclude), and send the listed jobs to the site's
        administrators.
    Sources
        Wilson (1927); slurmpast (failure rate of a node, with its interval).
    """

    code = "HIS003"
    name = "node-fails-often"
    cause = "node_fails_often"
    severity = Severity.WARNING
    min_failures = Threshold(3, "failures", "two happen by chance", at_least=1)
    min_runs_elsewhere = Threshold(10, "runs", "with fewer, the rate of the peers is unknown", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for record in snapshot.across.nodes if snapshot.across is not None else ():
            if record.num_failed < self.min_failures:
                continue
            if record.num_runs_peers < self.min_runs_elsewhere or record.low <= record.rate_of_peers:
                continue
            is_victim = snapshot.across is not None and snapshot.across.this in record.failed
            if snapshot.has_ended and not is_victim:
                continue  # this run succeeded: nothing to do any more
            yield Hit(
                summary=_summary(record),
                evidence=tuple(_evidence(record)),
                confidence=0.9,
                severity=None if is_victim else Severity.INFO,
                subject=Subject(node=record.node),
                since_s=record.failed[0].ended_s,
                fixes=(
                    *leave_out(snapshot.run, record.node, "until its administrators have looked at it"),
                    Fix(
                        f"See what Slurm says of {record.node} now",
                        command=f"scontrol show node {shell_quote(record.node)}",
                    ),
                ),
            )


def _summary(record: NodeRecord) -> str:
    return (
        f"{record.node} failed under {record.num_failed} of {record.num_runs} of your runs"
        f" ({record.low:.0%} to {record.high:.0%}), the other nodes under {record.num_failed_peers} of "
        f"{record.num_runs_peers}"
    )


def _evidence(record: NodeRecord) -> Iterable[Evidence]:
    yield Evidence(
        f"Wilson's 95 % interval of {record.node}: {record.low:.3f} to {record.high:.3f}",
        value=round(record.num_failed / record.num_runs, 3),
    )
    yield Evidence("rate of the other nodes", value=round(record.rate_of_peers, 3))
    for past in record.failed[-_MAX_TOLD:]:
        yield Evidence(f"{past.target}, {when(past)}: {past.cause}")
