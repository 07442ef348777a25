"""The names of array tasks in a command to Slurm, where the queue does not list all tasks; and why an action
is impossible."""

from __future__ import annotations

import pytest

from coach.analysis.jobs.eligible_jobs import names_for, parts_of, why_not
from coach.model.slurm.job_action import QueuedJob, Verb

CUT = ("17_[0-200000%5]", "17_[1,3,5...]", "17_[1,3,5")


@pytest.mark.parametrize("listed", CUT)
@pytest.mark.parametrize(
    ("verb", "target", "names"),
    [
        (Verb.CANCEL, "17_3", ("17_3",)),
        (Verb.CANCEL, "17_[3-8]", ("17_[3-8]",)),
        (Verb.HOLD, "17_3", ("17_3",)),
        (Verb.TIMELIMIT, "17_3", ()),
        (Verb.CANCEL, "17", ("17",)),
        (Verb.HOLD, "17", ()),
    ],
)
def test_a_task_of_a_list_that_is_cut_is_named_alone_and_never_its_array(
    listed: str, verb: Verb, target: str, names: tuple[str, ...]
) -> None:
    rows = [QueuedJob(listed, "17", "user", "PENDING")]
    named, left_out = names_for(verb, target, parts_of(target, rows), rows)
    assert named == names
    assert bool(left_out) is not bool(names)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("CANCELLED", None),
        ("TIMEOUT", None),
        ("NODE_FAIL", None),
        ("COMPLETED", "it has completed: nothing is left to do"),
        ("PENDING", "it is PENDING: only a run that has ended can be resumed"),
    ],
)
def test_only_a_run_that_ended_with_work_left_can_be_resumed(state: str, why: str | None) -> None:
    assert why_not(Verb.RESUME, state) == why
