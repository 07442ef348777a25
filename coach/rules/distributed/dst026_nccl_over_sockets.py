"""DST026: NCCL found no InfiniBand and uses TCP sockets between the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.base import Need, Rule
from coach.rules.from_logs.quoted_evidence import hits_of, quote

_MAX_HOSTS_SHOWN = 8
_FABRICS = ("infiniband", "roce")


class NcclOverSockets(Rule):
    """NCCL uses TCP sockets between the nodes of a job.

    What it sees
        "NET/IB : No device found", "NET/Socket : Using" and "Using network Socket" of NCCL_DEBUG=INFO, in a
        job of several nodes, by the launch, by the queue, or by the host names in the lines.
    Why it matters
        Each collective between nodes then passes through the kernel's TCP stack. On a cluster with InfiniBand
        or RoCE that is several times slower than the fabric. The job does not fail, it only takes longer.
    When it stays silent
        On one node, which needs no network, and if the same host also prints "NET/IB : Using" or "Using
        network IB". It is a warning only if a fabric is known: the sampler found an active InfiniBand or RoCE
        port on a node of the job, or NCCL named one on another host. Else it is info: a cluster with only
        Ethernet has nothing faster.
    What to do
        List the devices that NCCL could use, on a node of the job (`ibv_devinfo`). Pass /dev/infiniband and
        the rdma-core libraries into containers. Remove NCCL_IB_DISABLE=1 and NCCL_NET=Socket from the
        environment, and name in NCCL_IB_HCA only devices that the nodes have.
    Sources
        NCCL user guide: environment variables (NCCL_IB_DISABLE, NCCL_IB_HCA, NCCL_NET); NCCL's
        transport/net_ib and net_socket; public logs of two-node runs.
    """

    code = "DST026"
    name = "nccl-over-sockets"
    cause = "nccl_over_sockets"
    severity = Severity.WARNING
    needs = (Need.LOG,)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        on_fabric = hits_of(snapshot, self.code, "fabric")
        fast = {hit.fields["host"] for hit in on_fabric}
        slow = [hit for hit in hits_of(snapshot, self.code, "socket") if hit.fields["host"] not in fast]
        hosts = sorted({hit.fields["host"] for hit in slow})
        if not slow or not _is_of_several_nodes(snapshot, {*hosts, *fast}):
            return
        proof = _fabric(on_fabric, history)
        more = f" and {len(hosts) - _MAX_HOSTS_SHOWN} more" if len(hosts) > _MAX_HOSTS_SHOWN else ""
        yield Hit(
            summary="NCCL uses TCP sockets between the nodes, on "
            f"{', '.join(hosts[:_MAX_HOSTS_SHOWN])}{more}"
            + (": a fabric exists and is not used" if proof else ""),
            evidence=(quote(slow[0]), *proof),
            confidence=0.85 if proof else 0.5,
            fixes=(
                Fix(
                    "See which network NCCL finds and why: one short run with these variables",
                    {"env": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}},
                ),
                Fix(
                    "Remove NCCL_IB_DISABLE=1 and NCCL_NET=Socket from the environment; in a container pass "
                    "/dev/infiniband in"
                ),
            ),
            severity=Severity.WARNING if proof else Severity.INFO,
            since_s=slow[0].time_s,
        )


def _is_of_several_nodes(snapshot: TargetSnapshot, hosts: set[str]) -> bool:
    """True if the launch, the queue or the lines themselves name more than one node."""
    asked = snapshot.run.resources.get("num_nodes") if snapshot.run is not None else None
    if not isinstance(asked, int):
        asked = snapshot.job.num_nodes if snapshot.job is not None else None
    return asked > 1 if asked is not None else len(hosts) > 1


def _fabric(on_fabric: Sequence[LogHit], history: History) -> tuple[Evidence, ...]:
    """Evidence that the cluster has a fabric; empty if none is known."""
    ports = [
        newest
        for node in history.nodes
        for _, newest in history.ports(node)
        if newest.type in _FABRICS and (newest.state or "").lower() in ("", "active")
    ]
    of_sampler = [
        Evidence(f"the sampler on {port.node}: port {port.name} ({port.type})") for port in ports[:2]
    ]
    return (*of_sampler, *(quote(hit) for hit in on_fabric[:1]))
