from __future__ import annotations

import pytest

from coach.analysis.queueing.node_state import explain_state, split_state, why_no_job
from coach.model.slurm.cluster import Node


@pytest.mark.parametrize(
    ("state", "takes_jobs"),
    [
        ("idle", True),
        ("mixed", True),
        ("idle+cloud+powered_down", True),
        ("mixed+completing", True),
        ("idle~", True),
        ("allocated", False),
        ("mixed+drain", False),
        ("drng", False),
        ("idle+planned", False),
        ("mix-", False),
        ("idle+reserved", False),
        ("idle+maint", False),
        ("down*", False),
        ("down+not_responding", False),
        ("idle*", False),
        ("fail", False),
        ("idle+reboot_requested", False),
        ("idle@", False),
        ("down^", False),
        ("idle+power_down", False),
        ("idle!", False),
        ("idle+powering_up+cloud", False),
        ("idle#", False),
        ("unknown+drain+invalid_reg", False),
        ("future", False),
        ("idle+blocked", False),
        ("idle+drain+reserved", False),
        ("", False),
    ],
)
def test_only_a_node_that_could_start_a_job_now_takes_jobs(state: str, takes_jobs: bool) -> None:
    explained = explain_state(state)
    assert explained.takes_jobs is takes_jobs
    assert explained.unknown == ()


def test_a_state_of_a_newer_slurm_shows_as_itself_and_takes_no_jobs() -> None:
    explained = explain_state("IDLE+HIBERNATING")
    assert explained.unknown == ("hibernating",)
    assert not explained.takes_jobs
    assert "hibernating" in explained.meaning
    assert why_no_job(node("idle+hibernating")) == "its state is idle+hibernating"


def test_sinfo_s_suffixes_mean_the_flags_that_scontrol_spells_out() -> None:
    assert split_state("down*") == ("down", "not_responding")
    assert split_state("mix$") == ("mixed", "maint")
    assert split_state("MIXED+DRAIN+NOT_RESPONDING") == ("mixed", "drain", "not_responding")


def node(
    state: str = "mixed", cpus: int | None = 4, memory: int | None = 100, owner: str | None = None
) -> Node:
    return Node("n1", state, None, ("gpu",), 16, cpus, 64000, memory, (), owner=owner)


def test_a_node_without_cpus_or_memory_left_or_with_one_owner_takes_no_job() -> None:
    assert why_no_job(node()) is None
    assert why_no_job(node(cpus=None, memory=None)) is None
    assert why_no_job(node(cpus=16)) == "all its CPUs are in use"
    assert why_no_job(node(memory=64000)) == "all its memory is in use"
    assert why_no_job(node(owner="ada(1000)")) == "it is shared only among jobs of its present user"
    assert why_no_job(node("mixed+drain")) == "it is drained: it takes no new jobs"
    assert why_no_job(node("allocated", cpus=16)) == "all its CPUs are in use"
    assert why_no_job(node("allocated", cpus=None)) == "all of it is in use"
    drained = why_no_job(node("allocated+drain", cpus=16))
    assert drained == "all its CPUs are in use; it is drained: it takes no new jobs"
