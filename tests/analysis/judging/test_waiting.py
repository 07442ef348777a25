from __future__ import annotations

from coach.analysis.judging.waiting import explain_waiting
from coach.analysis.queueing.pending_reasons import NOTHING, explain_pending
from coach.model.slurm.cluster import Node
from tests.analysis.made_jobs import job


def _node(state: str, reason: str | None) -> Node:
    return Node("node2", state, reason, ("cpu",), 16, 0, 64000, 0, ())


def test_a_job_that_waits_for_a_drained_node_names_the_reason_of_the_drain() -> None:
    waiting = job(reason="ReqNodeNotAvail, UnavailableNodes:node2")
    why = explain_waiting(waiting, (), nodes={"node2": (_node("idle+drain", "bad disk"),)})
    assert why is not None
    assert "node2: it is drained: it takes no new jobs (reason: bad disk)" in why.meaning
    assert "reservation" not in why.advice
    back = explain_waiting(waiting, (), nodes={"node2": (_node("idle", None),)})
    assert back == explain_waiting(waiting, ())


def test_waiting_alone_is_no_advice_where_nodes_are_down() -> None:
    said = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert explain_pending(said).advice != NOTHING
