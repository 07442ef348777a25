"""Fixes are launched in one way: typed changes only, tried short if asked, and never round in circles."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from coach.analysis.comparing.fix_chain import MAX_FIXES, Link, ancestry, siblings, why_no_further, with_best
from coach.analysis.comparing.steady_state import Estimate
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix, Severity, Subject
from coach.model.launching.launch import AppliedFix, LaunchRequest, Plan
from coach.model.training.run import Run
from coach.workflows.launching import possible_fixes
from coach.workflows.launching.fix_offer import as_trial, remedies
from coach.workflows.launching.possible_fixes import judged, numbered
from tests.launch.examples import CLUSTER
from tests.rules.examples import run
from tests.tui.fake_session import make_plan
from tests.workflows.test_launching import World

MILD = Fix("workers", {"num_workers": 2})


def finding(*fixes: Fix, rule: str = "GPU005", is_primary: bool = True) -> Finding:
    return Finding(
        rule,
        "input-bound",
        "input_bound",
        Severity.WARNING,
        0.9,
        is_primary,
        None,
        Subject(),
        "slow",
        (),
        fixes,
        None,
    )


def test_a_fix_in_words_or_of_another_recipe_cannot_be_launched() -> None:
    parent = replace(run(), recipe="baseline", launch={"recipe": "baseline"}, why_not_mine=None)
    found = remedies(parent, [finding(Fix("look at the disk"), MILD, Fix("buckets", {"bucket_cap_mb": 50}))])
    assert [each.fix.title for each in found] == ["workers"]
    assert found[0].request.set["num_workers"] == 2
    assert found[0].request.fix == AppliedFix("GPU005", "workers", {"num_workers": 2})


def test_fixes_beyond_the_limits_of_the_partition_come_last_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(possible_fixes, "look_at_site", lambda *_: CLUSTER)
    parent = replace(world.parent(), state="FAILED", resources={"cpus_per_task": 16})
    changes = {"cpus_per_task": 9999}, {"mem": "90000G"}, {"time": "900-00:00:00"}, {"num_workers": 1}
    rows = numbered(remedies(parent, [finding(*(Fix(str(each), each) for each in changes))]))
    told = judged(rows, parent, world.settings, world.env, world.io)
    assert [each.number for each in told] == [4, 1, 2, 3]
    assert told[0].why_not is None
    for each, words in zip(told[1:], ("tried before", "MiB of memory", "longest time limit"), strict=True):
        assert words in (each.why_not or "")


def test_a_fix_that_a_node_can_give_only_some_of_its_cpus_still_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(possible_fixes, "look_at_site", lambda *_: CLUSTER)
    parent = replace(world.parent(), state="FAILED", resources={"cpus_per_task": 1})
    rows = numbered(remedies(parent, [finding(Fix("20 CPUs", {"cpus_per_task": 20}), MILD)]))
    told = judged(rows, parent, world.settings, world.env, world.io)
    assert [(each.number, each.why_not) for each in told] == [(1, None), (2, None)]


def test_cpus_and_ranks_are_changes_of_the_launch() -> None:
    parent = replace(run(), recipe="ddp", launch={"recipe": "ddp"}, why_not_mine=None)
    (found,) = remedies(parent, [finding(Fix("more", {"cpus_per_task": 8, "nproc_per_node": 4}))])
    assert (found.request.cpus_per_task, found.request.nproc_per_node) == (8, 4)


def test_a_trial_is_short_by_steps_and_by_time_and_says_that_it_is_one() -> None:
    whole = LaunchRequest(
        "baseline", time_limit_s=36_000, fix=AppliedFix("GPU005", "workers", {"num_workers": 2})
    )
    trial = as_trial(whole, 100, 0.5)
    assert trial.set["max_steps"] == 100
    assert trial.time_limit_s == 300, (
        "three minutes to start, and twice what the steps took, in whole minutes"
    )
    assert trial.fix is not None
    assert trial.fix.trial_steps == 100
    assert as_trial(replace(whole, time_limit_s=120), 100, 0.5).time_limit_s == 120
    with pytest.raises(UserError, match="at least one step"):
        as_trial(whole, 0, None)


def test_a_trial_is_never_longer_than_its_run() -> None:
    whole = LaunchRequest("baseline", set={"max_steps": 16})
    assert as_trial(whole, 93, None).set["max_steps"] == 16
    by_epochs = LaunchRequest("baseline", set={"max_steps": 0})
    assert as_trial(by_epochs, 93, None).set["max_steps"] == 93
    assert as_trial(by_epochs, 93, None, parent_steps=40).set["max_steps"] == 40


def planned(**parameters: object) -> Plan:
    plan = make_plan(LaunchRequest("baseline"))
    return replace(plan, parameters={**plan.parameters, **parameters})


def launched(plan: Plan, run_id: str, parent: str | None = None, fix: bool = False) -> Run:
    return replace(
        run(),
        run_id=run_id,
        recipe=plan.recipe,
        parameters=dict(plan.parameters),
        resources=asdict(plan.resources),
        state="FAILED",
        parent_run_id=parent,
        fix=AppliedFix("MEM001", "smaller", {"batch_size": 1}) if fix else None,
    )


def test_a_launch_that_the_chain_has_seen_is_not_made_again() -> None:
    first = launched(planned(batch_size=64), "r1")
    second = launched(planned(batch_size=32), "r2", "r1", fix=True)
    chain = ancestry(second, [second, first])
    assert [each.run_id for each in chain] == ["r1", "r2"]
    assert why_no_further(planned(batch_size=64), chain) == "r1 was launched exactly so and ended FAILED"
    assert why_no_further(planned(batch_size=16), chain) is None


@pytest.mark.parametrize(
    ("state", "said"),
    [("FAILED", " and ended FAILED"), ("COMPLETED", " and ended COMPLETED"), ("RUNNING", " and is RUNNING")],
)
def test_a_fix_that_another_child_of_the_run_has_tried_is_not_tried_again(state: str, said: str) -> None:
    parent = launched(planned(batch_size=64), "r1")
    tried = replace(launched(planned(batch_size=32), "r2", "r1", fix=True), state=state)
    beside = siblings(parent, [parent, tried])
    chain = ancestry(parent, [parent, tried])
    assert why_no_further(planned(batch_size=32), chain, beside) == f"r2 was launched exactly so{said}"
    assert why_no_further(planned(batch_size=16), chain, beside) is None
    assert why_no_further(planned(batch_size=32, max_steps=100), chain, beside) is None, "a trial is another"


@pytest.mark.parametrize("state", ["CANCELLED", "NODE_FAIL", "PREEMPTED"])
def test_a_child_that_was_ended_from_outside_tells_nothing_of_its_fix(state: str) -> None:
    parent = launched(planned(batch_size=64), "r1")
    ended = replace(launched(planned(batch_size=32), "r2", "r1", fix=True), state=state)
    beside = siblings(parent, [parent, ended])
    assert why_no_further(planned(batch_size=32), ancestry(parent, [parent, ended]), beside) is None


def test_four_fixes_in_a_row_are_enough() -> None:
    known = [launched(planned(batch_size=64), "r0")]
    for number in range(1, MAX_FIXES + 1):
        known.append(launched(planned(batch_size=64 - number), f"r{number}", f"r{number - 1}", fix=True))
    why = why_no_further(planned(batch_size=1), ancestry(known[-1], known))
    assert why is not None
    assert why.startswith("4 fixes in a row have led to r4")
    assert why_no_further(planned(batch_size=1), ancestry(known[-2], known)) is None


def test_runs_that_are_each_others_parents_end_the_search() -> None:
    one, other = launched(planned(), "r1", "r2"), launched(planned(), "r2", "r1")
    assert [each.run_id for each in ancestry(one, [one, other])] == ["r2", "r1"]


def test_the_run_to_keep_is_well_whole_and_faster_beyond_noise() -> None:
    def link(run_id: str, rate: float, *, is_well: bool = True, trial: int | None = None) -> Link:
        return Link(run_id, None, "COMPLETED", trial, is_well, Estimate(rate, 5.0, 100))

    chain = [link("ill", 900.0, is_well=False), link("a", 100.0), link("b", 104.0), link("c", 200.0)]
    chain.append(link("tried", 400.0, trial=100))
    assert [each.run_id for each in with_best(chain) if each.is_best] == ["c"]
    assert [each.run_id for each in with_best(chain[:3]) if each.is_best] == ["a"]
    assert not any(each.is_best for each in with_best(chain[:1]))
