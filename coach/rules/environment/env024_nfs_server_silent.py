"""ENV024: the job waits for a file server that does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.aftermath import tail_of, went_on
from coach.rules.from_logs.quoted_evidence import hits_of, quote


class NfsServerSilent(Rule):
    """The job waits for a file server that does not answer.

    What it sees
        The kernel's "nfs: server NAME not responding, still trying", or "timed out" on a soft mount, without
        a later "nfs: server NAME OK" in the same log. In a running job the wait must have lasted `waits_s`,
        counted from the line's own time, or else from the time at which the log was last written.
    Why it matters
        On a hard mount each process that touches a file of this server stands still until it answers, and
        cannot even be killed. The job keeps its GPUs and does nothing until its time limit.
    When it stays silent
        If the server answers again, if the program went on (losses follow, the log ends well), and if the job
        completed.
    What to do
        Try the server from the login node (`df` on its directory, with a timeout) and tell the administrators
        its name and the time. If it answers there, the network of one node is at fault: leave the node out. A
        hard mount goes on by itself when the server is back. If that takes long, cancel the job and resume
        from the last checkpoint.
    Sources
        nfs(5), hard and soft mounts; Linux, net/sunrpc/clnt.c; public kernel logs.
    """

    code = "ENV024"
    name = "nfs-server-silent"
    cause = "nfs_server_silent"
    severity = Severity.WARNING
    needs = (Need.LOG,)
    waits_s = Threshold(60, "seconds", "a busy server is late for seconds, and answers then")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for server, silent in _unanswered(hits_of(snapshot, self.code)):
            if self._is_too_new(silent[0], snapshot) or went_on(silent[-1], snapshot, False):
                continue
            times = Evidence("lines in which the server did not answer", value=len(silent), unit="lines")
            yield Hit(
                summary=f"The job waits for its file server: {server} does not answer",
                evidence=(quote(silent[0]), *([times] if len(silent) > 1 else [])),
                confidence=0.85,
                fixes=(
                    Fix(
                        f"Tell the administrators that {server} does not answer; on a hard mount the job "
                        "goes on by itself when it does"
                    ),
                    Fix(
                        "If it answers elsewhere, leave this job's node out; if it stays away, cancel the "
                        "job and resume from the last checkpoint"
                    ),
                ),
                since_s=silent[0].time_s,
            )

    def _is_too_new(self, first: LogHit, snapshot: TargetSnapshot) -> bool:
        """True while a running job has not waited long enough. What has ended never got its answer."""
        if snapshot.state is None or snapshot.has_ended or snapshot.now_s is None:
            return False
        tail = tail_of(first, snapshot)
        began = first.time_s if first.time_s is not None else tail.written_s if tail is not None else None
        return began is not None and snapshot.now_s - began < self.waits_s


def _unanswered(hits: list[LogHit]) -> Iterable[tuple[str, list[LogHit]]]:
    """Each server with its lines since it last answered, in one log; without those that answered."""

    def source(hit: LogHit) -> tuple[str, str]:
        return hit.fields["server"], hit.file

    told: set[str] = set()
    for (server, _), group in groupby(sorted(hits, key=source), key=source):
        silent: list[LogHit] = []
        for hit in group:
            silent = [*silent, hit] if hit.signature == "silent" else []
        if silent and server not in told:
            told.add(server)
            yield server, silent
