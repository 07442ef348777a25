from __future__ import annotations

import threading
import time

import pytest

from coach.sources.rpc_budget import (
    ACT_S,
    ACT_SHARE_PER_MIN,
    ACTIVE_PER_MIN,
    BURST,
    HELD_UP_S,
    IDLE_PER_MIN,
    RpcBudget,
    cost_of,
)
from coach.sources.slurm.configuration import RateLimitSource
from coach.sources.slurm.nodes import NODES_QUERY, PARTITIONS_QUERY
from coach.sources.slurm.queue import jobs_query
from tests.sources.scripted_io import ScriptedIo
from tests.waiting import wait_until


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def asked_times(budget: RpcBudget, clock: Clock, costs: list[int], until_s: float) -> list[tuple[float, int]]:
    """Times at which each of these requests is let through, if it is repeated without a pause."""
    asked = []
    while clock.now_s < until_s:
        for cost in costs:
            while (wait_s := budget._wait_s(cost)) > 0:
                clock.now_s += wait_s
            asked.append((clock.now_s, cost))
            budget._take(cost)
    return asked


def most_in_a_minute(asked: list[tuple[float, int]]) -> int:
    return max(sum(cost for time_s, cost in asked if 0 <= time_s - start_s < 60) for start_s, _ in asked)


@pytest.mark.parametrize(
    ("is_active", "limit"), [(True, ACTIVE_PER_MIN - ACT_SHARE_PER_MIN), (False, IDLE_PER_MIN)]
)
def test_no_minute_exceeds_the_limit_under_any_demand(is_active: bool, limit: float) -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    budget.set_active(is_active)
    asked = asked_times(budget, clock, [3, 2, 2, 1], 1200)
    assert most_in_a_minute(asked) <= limit
    assert sum(cost for _, cost in asked) >= 0.8 * limit * 20, "the budget can be used"


def test_a_minute_that_turns_from_active_to_idle_stays_within_the_limit() -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    budget._take(24)
    clock.now_s = 30.0
    budget.set_active(False)
    assert budget._wait_s(2) > 0
    assert budget.spending().limit_per_min == IDLE_PER_MIN


def test_a_site_that_refills_four_rpcs_a_minute_gets_one_request_a_minute() -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    budget.limit_by_site(4 / 60)
    asked = asked_times(budget, clock, [3, 2, 1], 3600)
    assert asked[2][0] == 0.0, "the first full picture waits for nothing"
    assert sum(cost for _, cost in asked) <= BURST + 60 + 6


def test_a_generous_site_changes_nothing_and_one_without_a_limit_takes_it_back() -> None:
    budget = RpcBudget(Clock())
    budget.limit_by_site(100.0)
    assert budget.limit_per_min == ACTIVE_PER_MIN
    budget.limit_by_site(0.1)
    assert budget.limit_per_min == pytest.approx(1.5)
    budget.limit_by_site(None)
    assert budget.limit_per_min == ACTIVE_PER_MIN


def test_acts_of_the_user_never_wait_and_do_not_delay_the_queue() -> None:
    budget = RpcBudget(Clock())
    for _ in range(10):
        budget.charge(4)
    assert budget.spending().num_rpcs == 40
    assert budget._wait_s(2) == 0.0


def test_under_a_low_site_limit_the_sources_wait_for_the_users_acts() -> None:
    budget = RpcBudget(Clock())
    budget.limit_by_site(4 / 60)
    for _ in range(10):
        budget.charge(4)
    assert budget._wait_s(2) > 60.0


def test_requests_of_screens_keep_to_their_share_and_do_not_delay_the_queue() -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    assert budget.ask(3)
    assert budget.ask(5)
    assert budget._wait_s(3) == 0.0, "the sources have a purse of their own"
    assert budget._share_wait_s(1) == pytest.approx(60.0)
    spent_by_sources(budget, clock)
    assert budget.spending().num_rpcs <= ACTIVE_PER_MIN
    clock.now_s = 61.0
    assert budget._share_wait_s(20) == 0.0, "a question dearer than the share is asked when it is full"


def test_a_waiting_request_is_shown_and_made_once_the_share_has_room() -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    assert budget.ask(int(ACT_SHARE_PER_MIN))
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(budget.ask(3)))
    waiting.start()
    wait_until(lambda: budget._waits, 5, "the question waits")
    assert not budget.spending().is_waiting, "a moment holds nobody up"
    clock.now_s = HELD_UP_S
    assert budget.spending().is_waiting
    clock.now_s = 61.0
    budget.note_act()  # wakes who waits
    waiting.join(5)
    assert answers == [True]
    assert not budget.spending().is_waiting


@pytest.mark.parametrize("refill", [None, 4 / 60])
def test_a_request_whose_answer_nobody_waits_for_leaves_its_turn_to_others(refill: float | None) -> None:
    """Under a low limit of the site there is no share for acts, and it waits with the sources."""
    budget, is_over, answers = RpcBudget(), threading.Event(), []
    budget.limit_by_site(refill)
    budget._take(100)
    budget.ask(int(ACT_SHARE_PER_MIN), lambda: refill is not None)
    waiting = threading.Thread(target=lambda: answers.append(budget.ask(3, is_over.is_set)))
    waiting.start()
    wait_until(lambda: budget._waits, 5, "the question waits")
    is_over.set()
    waiting.join(10)
    assert answers == [False]


def spent_by_sources(budget: RpcBudget, clock: Clock) -> None:
    """All RPCs that the sources may spend in the minute that begins now."""
    while budget._wait_s(1) == 0.0:
        budget._take(1)


def test_a_job_just_launched_is_seen_at_once_even_if_the_budget_is_spent() -> None:
    clock = Clock()
    budget = RpcBudget(clock)
    budget._take(int(ACTIVE_PER_MIN - ACT_SHARE_PER_MIN))
    budget.charge(4)  # the launch
    assert budget._wait_s(3) > ACT_S
    budget.note_act()
    looks = [budget._wait_s(3)]
    for cost in (3, 2, 3):
        assert budget._wait_s(cost) == 0.0
        assert budget.acquire(cost)
        looks.append(budget._wait_s(3))
    assert looks[0] == 0.0
    assert looks[-1] > ACT_S, "more than its share is not to be had by acting"
    assert budget.spending().num_rpcs <= ACTIVE_PER_MIN + 4
    clock.now_s += 61.0
    assert budget._wait_s(3) == 0.0, "a minute later all is as before"


def test_idle_or_at_a_strict_site_nothing_is_reserved_for_acts() -> None:
    budget = RpcBudget(Clock())
    budget.set_active(False)
    budget.note_act()
    budget.charge(12)
    assert budget._wait_s(1) > 0
    budget = RpcBudget(Clock())
    budget.limit_by_site(4 / 60)
    budget.note_act()
    budget.charge(8)
    assert budget._wait_s(1) > 0


def test_a_source_that_waits_for_its_turn_ends_at_once_when_coach_closes() -> None:
    budget = RpcBudget()
    budget._take(100)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(budget.acquire(2)))
    waiting.start()
    wait_until(lambda: budget._waits, 5, "the question waits")
    start_s = time.monotonic()
    budget.close()
    waiting.join(5)
    assert answers == [False]
    assert time.monotonic() - start_s < 1.0
    assert not budget.acquire(0)


def test_the_cost_of_a_query_equals_the_controllers_count() -> None:
    assert cost_of(jobs_query(None).argv) == 2
    assert cost_of(jobs_query("me").argv) == 3
    assert (NODES_QUERY.num_rpcs, PARTITIONS_QUERY.num_rpcs) == (2, 1)
    assert cost_of(("scontrol", "-o", "show", "job", "17", "-d")) == 3
    assert cost_of(("scontrol", "-M", "lion", "-o", "show", "nodes")) == 2
    assert cost_of(("/opt/slurm/bin/sinfo", "-h")) == 2
    assert cost_of(("sbatch", "--test-only", "x.sh")) == 2
    assert cost_of(("sbatch", "x.sh")) == 1
    assert cost_of(("scontrol", "hold", "17")) == 1
    assert cost_of(("git", "rev-parse", "HEAD")) == cost_of(("sacct", "-X")) == cost_of(()) == 0


def test_the_site_s_limit_is_read_once_and_a_controller_that_is_away_is_asked_again() -> None:
    io = ScriptedIo({"config": (1, "down")})
    limits: list[float | None] = []
    source = RateLimitSource(io, limits.append)
    assert list(source.poll()) == []
    assert limits == []
    words = "rl_enable,rl_bucket_size=40,rl_refill_rate=4,rl_refill_period=60"
    io.answers["config"] = f"SlurmctldParameters     = {words}\n".encode()
    for _ in range(3):
        assert list(source.poll()) == []
    assert limits == [pytest.approx(4 / 60)]
    assert io.asked == ["config", "config"]
