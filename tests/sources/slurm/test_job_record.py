"""A job and its nodes as Slurm describes them, or why it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coach.sources.io import CommandResult, Query
from coach.sources.slurm.job_record import MAX_NODES, job_nodes, job_record
from tests.sources.fake_io import FakeIo


def answers(**told: str) -> Callable[[Query], CommandResult]:
    """Each client prints this on stdout; a client that is not named fails, or prints the text under
    `error`."""

    def answer(query: Query) -> CommandResult:
        text = told.get(query.argv[0])
        result = CommandResult(query, 0, (text or "").encode(), "", 0.0, 0.0)
        return result if text is not None else replace(result, returncode=1, stderr=told.get("error", ""))

    return answer


def test_a_job_record_comes_from_slurm_and_else_from_accounting() -> None:
    io = FakeIo()
    io.answers["job-record"] = answers(scontrol="JobId=17 JobName=vit\n")
    assert job_record(io, "17").text == "JobId=17 JobName=vit"
    io.answers["job-record"] = answers(sacct="JobID|State\n17|FAILED\n", error="Invalid job id specified")
    found = job_record(io, "17")
    assert (found.text, found.command[:11]) == ("JobID|State\n17|FAILED", "sacct -P -j")
    io.answers["job-record"] = answers(sacct="JobID|State\n", error="scontrol: error: Invalid job id")
    found = job_record(io, "17")
    assert (found.text, found.problem) == (None, "scontrol: Invalid job id; sacct: it knows no such job")


def test_hidden_nodes_are_reported_as_hidden_by_the_site() -> None:
    io = FakeIo()
    io.answers["job-nodes"] = answers(error="slurm_load_node error: Access/permission denied")
    assert job_nodes(io, "node[1-2]").problem == "nodes are hidden by the site (PrivateData)"
    assert "no node yet" in (job_nodes(io, None).problem or "")


def test_only_the_first_of_many_nodes_are_requested_in_one_query() -> None:
    io = FakeIo()
    asked: list[str] = []

    def answer(query: Query) -> bytes:
        asked.append(query.argv[-1])
        facts = "NodeName=node1 CPUTot=16 RealMemory=64000 State=IDLE+DRAIN"
        return f"{facts} Reason=bad fan [root@2026-11-21T12:00:00]".encode()

    io.answer("job-nodes", answer)
    found = job_nodes(io, "node[1-100]")
    assert asked == [f"node[1-{MAX_NODES}]"]
    assert (found.nodes[0].reason, found.problem) == ("bad fan", "68 more nodes are left out")
