"""DST021: a host name could not be resolved to an address."""

from __future__ import annotations

import re

from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import first_node_as_address
from coach.rules.from_logs.aftermath import is_below, was_outlived
from coach.rules.from_logs.ending_rule import EndingRule, by_field
from coach.rules.from_logs.failed_connections import is_of_a_download
from coach.rules.from_logs.quoted_evidence import hits_of

_COMMAND = re.compile(r"(?:ssh|scp|rsync|curl|wget|ping|git|fatal)\b")
"""Shell commands: a script goes on without them."""
_LAUNCHER_GAVE_UP = re.compile(
    r"^(?:ORTE|PRTE|An ORTE daemon|mpirun) (?:was unable to|has unexpectedly|does not know)"
)


class HostnameResolution(EndingRule):
    """A host name could not be resolved to an address.

    What it sees
        c10d's "network addresses of (HOST, PORT) cannot be retrieved (gai error: -2 - Name or service not
        known)", Python's `socket.gaierror`, "Temporary failure in name resolution", "Failed to resolve
        'HOST'", as the error that ended the program.
    Why it matters
        The nodes do not know the host name in MASTER_ADDR or in another setting of the program.
    When it stays silent
        On c10d's warnings about one address family, and when a logger reports it only as a warning (a tracker
        that keeps trying). On hosts outside of the cluster: a download without internet access is ENV021. The
        finding is info if the program went on.
    What to do
        Set MASTER_ADDR to the output of `scontrol show hostnames $SLURM_JOB_NODELIST | head -1`; a node list
        such as node[1-2] is not a host name.
    Sources
        torch/csrc/distributed/c10d/socket.cpp; getaddrinfo(3); urllib3 NameResolutionError.
    """

    code = "DST021"
    name = "hostname-resolution"
    cause = "hostname_resolution"
    general = tuple(first_node_as_address("Take the first node's name as the address"))
    sentences = by_field(
        host="The host name {host} has no address, seen from the job",
        otherwise="A host name has no address, seen from the job",
    )

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        # c10d only warns about an unknown name, and later reports that the connection timed out.
        if hit.signature == "nccl":
            return True
        if hit.signature == "unknown":
            if is_of_a_download(hit):
                return False
            is_outlived = _COMMAND.match(hit.text) and was_outlived(hit, snapshot)
            return not is_outlived or is_below(_LAUNCHER_GAVE_UP, hit, snapshot)
        given_up = {found.fields["host"] for found in hits_of(snapshot, self.code, "gave_up")}
        return hit.signature == "warned" and hit.fields["host"] in given_up
