"""NCCL that takes TCP between nodes: a warning where a faster network is known, and nothing on one node."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.telemetry import HostSample, PortSample
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import run, scan, tail_of
from tests.rules.recorded import RECORDINGS

NODE1 = (
    "node1:4945:4945 [0] NCCL INFO NET/IB : No device found.\n"
    "node1:4945:4945 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>\n"
    "node1:4945:4945 [0] NCCL INFO Using network Socket\n"
)
NODE2 = NODE1.replace("node1", "node2")
IB = "node2:5120:5120 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.8<0>\n"


def of_log(text: str, nodes: int | None = None, seen: History | None = None) -> list[Finding]:
    launched = None if nodes is None else run(resources={"num_nodes": nodes}, state="RUNNING")
    snapshot = TargetSnapshot("run", None, run=launched, log_hits=scan(text), log_tails=(tail_of(text),))
    findings = Engine(build()).diagnose(snapshot, seen or History()).findings
    return [finding for finding in findings if finding.rule == "DST026"]


def ports(type_: str, state: str = "active") -> History:
    result = History()
    port = PortSample("node1", 1000.0, "mlx5_0/1", type=type_, state=state)
    result.add_samples([HostSample("node1", 1000.0), port])
    return result


def test_a_host_off_the_fabric_that_another_host_uses_is_a_warning() -> None:
    (finding,) = of_log((RECORDINGS / "typed/nccl-over-sockets.log").read_text())
    assert (finding.cause, finding.severity) == ("nccl_over_sockets", Severity.WARNING)
    assert finding.summary == (
        "NCCL uses TCP sockets between the nodes, on node1: a fabric exists and is not used"
    )
    assert [evidence.line for evidence in finding.evidence] == [2, 6]


@pytest.mark.parametrize("kind", ["infiniband", "roce"])
def test_a_fabric_that_the_sampler_found_makes_it_a_warning(kind: str) -> None:
    (finding,) = of_log(NODE1, nodes=2, seen=ports(kind))
    assert finding.severity is Severity.WARNING
    assert finding.evidence[1].text == f"the sampler on node1: port mlx5_0/1 ({kind})"


@pytest.mark.parametrize("seen", [None, ports("ethernet"), ports("infiniband", "down")])
def test_several_nodes_without_a_known_fabric_are_info(seen: History | None) -> None:
    (finding,) = of_log(NODE1 + NODE2, seen=seen)
    assert finding.severity is Severity.INFO
    assert finding.summary == "NCCL uses TCP sockets between the nodes, on node1, node2"


HEALTHY = {
    "one node, as the lines say": (NODE1, None),
    "one node, as the launch says": (NODE1, 1),
    "two names of one node": (NODE1 + NODE2, 1),
    "all on the fabric": (IB + IB.replace("node2", "node1"), 2),
    "a socket for the bootstrap of a host on the fabric": (
        IB + "node2:5120:5120 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.8<0>\n",
        2,
    ),
    "a plugin that is missing": ("node1:1:1 [0] NCCL INFO NET/Plugin: No plugin found\n", 2),
    "words without NCCL's head": ("No device found. Using network Socket\n", 2),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_start_is_silent_even_where_a_fabric_is_known(name: str) -> None:
    text, nodes = HEALTHY[name]
    assert not of_log(text, nodes, ports("infiniband"))
