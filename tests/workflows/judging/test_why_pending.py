"""Why jobs of a queue wait, as seen from each other."""

from __future__ import annotations

import pytest

from coach.workflows.judging.why_pending import explainer, waiting_of
from tests.analysis.made_jobs import job
from tests.sources.fake_io import FakeIo

STUCK = job("20", reason="DependencyNeverSatisfied", dependency="afterok:19(failed)")
NEXT = job("21", reason="Dependency", dependency="afterok:20(unfulfilled)")
LAST = job("22", reason="Dependency", dependency="afterany:21(unfulfilled)")


def advice_for(last: str, *dependencies: str) -> str:
    """For the job `last` of a chain that begins with a job that never starts."""
    jobs = [STUCK, NEXT, LAST]
    jobs += [
        job(str(number), reason="Dependency", dependency=text) for number, text in enumerate(dependencies, 23)
    ]
    why = explainer(jobs)(next(each for each in jobs if each.job_id == last))
    assert why is not None
    return why.advice


@pytest.mark.parametrize("last", ["21", "22"])
def test_a_job_behind_one_that_never_starts_does_not_start_by_itself(last: str) -> None:
    assert advice_for(last) == (
        "job 20 never starts as it is: change that one first, or cancel it: coach cancel 20"
    )


@pytest.mark.parametrize("dependency", ["afterok:18", "afterok:20?afterok:18", "afterok:23", "singleton"])
def test_a_job_that_another_may_free_starts_by_itself(dependency: str) -> None:
    assert advice_for("23", dependency) == "nothing: it starts by itself"


@pytest.mark.parametrize(
    ("excluded", "state", "partition", "meaning"),
    [
        ("node3", "IDLE", "gpu", "in use; its own --exclude leaves out node3, where node3 takes jobs now"),
        ("node3", "DOWN", "gpu", "in use; its own --exclude leaves out node3"),
        ("node3", "IDLE", "cpu", "in use; its own --exclude leaves out node3"),
        ("(null)", "IDLE", "gpu", "in use"),
    ],
)
def test_a_job_that_waits_for_nodes_tells_those_that_its_own_exclude_leaves_out(
    excluded: str, state: str, partition: str, meaning: str
) -> None:
    io = FakeIo()
    told = f"JobId=17 JobName=ExcNodeList=node9\n   ReqNodeList=(null) ExcNodeList={excluded}\n"
    io.answer("job-excludes", lambda _: told.encode())
    node = f"NodeName=node3 CPUTot=16 CPUAlloc=0 RealMemory=64000 State={state} Partitions={partition}"
    io.answer("job-nodes", lambda _: node.encode())
    waiting = waiting_of(job(reason="Resources"), io, {}.get)
    assert waiting is not None
    assert waiting["meaning"].endswith(meaning)
    assert ("ExcNodeList=" in waiting["advice"]) is ("takes jobs now" in meaning)
