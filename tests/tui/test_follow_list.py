"""Which ended jobs are read first, and for how long."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from coach.model.judging.finding import Diagnosis
from coach.model.slurm.cluster import Job
from coach.tui.context import Context
from coach.tui.follow_list import MAX_ENDED, SETTLE_S, FollowList
from coach.tui.key_guard import TypedOn
from coach.tui.mode import Mode
from coach.tui.screen_specs import Follows
from tests.tui.fake_session import NOW_S, FakeSession, make_job, make_snapshot


class Clock:
    """Seconds that pass only when they are turned."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def ended(number: int, state: str, ago_s: float) -> Job:
    job = replace(make_job(str(number), "ada"), raw_job_id=str(number), state=state)
    return replace(job, end_time_s=NOW_S - ago_s)


def context_of(*jobs: Job) -> tuple[Context, Clock]:
    clock = Clock()
    snapshot = make_snapshot(runs=(), jobs=jobs, targets={}, diagnoses={})
    context = Context(
        FakeSession(snapshot, {}), Mode.LIVE, "ada", "slurm", clock, snapshot, clock.now_s, TypedOn()
    )
    return context, clock


def targets(follow_list: FollowList, *named: str) -> tuple[str, ...]:
    return follow_list.targets(Follows.LIVE_JOBS, named, ())


def test_failed_jobs_are_read_before_completed_ones_and_the_newest_first() -> None:
    context, _ = context_of(
        ended(1, "COMPLETED", 10), ended(2, "FAILED", 300), ended(3, "TIMEOUT", 20), ended(4, "COMPLETED", 5)
    )
    assert targets(FollowList(context)) == ("3", "2", "4", "1")
    assert context.unread == ["3", "2", "4", "1"]


def test_the_job_that_is_looked_at_is_the_first() -> None:
    context, _ = context_of(*(ended(number, "FAILED", number) for number in range(1, 30)))
    followed = targets(FollowList(context), "29")
    assert followed[:2] == ("29", "1")
    assert len(followed) == 1 + MAX_ENDED


def judge(context: Context, *names: str) -> None:
    """As the app does when a picture with these verdicts comes."""
    context.found.update(dict.fromkeys(names, ()))
    verdicts = {name: Diagnosis(name, "FAILED", (), ()) for name in names}
    context.snapshot = replace(context.snapshot, diagnoses=MappingProxyType(verdicts))


def test_a_job_that_ended_a_while_ago_is_judged_once() -> None:
    context, _ = context_of(ended(1, "FAILED", SETTLE_S + 1))
    follow_list = FollowList(context)
    assert targets(follow_list) == ("1",)
    judge(context, "1")
    assert targets(follow_list) == ()
    assert context.unread == []


def test_a_job_with_a_kept_verdict_is_not_read_until_it_runs_again() -> None:
    context, _ = context_of(ended(1, "FAILED", SETTLE_S + 1))
    context.kept.add("1")
    context.found["1"] = ()
    follow_list = FollowList(context)
    assert (targets(follow_list), context.unread) == ((), [])
    context.kept.clear()  # as the app does when it was judged anew
    assert targets(follow_list) == ("1",)


def test_jobs_that_have_just_ended_make_room_at_their_verdict_and_are_looked_at_once_more() -> None:
    context, clock = context_of(
        *(ended(number, "FAILED", 0.1 * number) for number in range(1, MAX_ENDED + 3))
    )
    follow_list = FollowList(context)
    first = targets(follow_list)
    assert first == tuple(map(str, range(1, MAX_ENDED + 1)))
    judge(context, *first)
    last = (str(MAX_ENDED + 1), str(MAX_ENDED + 2))
    assert targets(follow_list) == (*last, *map(str, range(1, MAX_ENDED - 1)))
    assert context.unread == [*last]
    judge(context, *last)
    clock.now_s += SETTLE_S + 1
    assert {*targets(follow_list)} == {*first}, "the first verdicts were too early to be the last"
    judge(context, *first)
    assert targets(follow_list) == ()
