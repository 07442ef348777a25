"""The test of coach itself: what counts as found, as fixed and as silent.

Real trainings cannot be made to miss a bar, so these runs are made up; real runs are in tests/drills and
tests/cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from coach.cli.teaching.drill_all import choose
from coach.launch.resources import Site
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix, Severity, Subject
from coach.model.launching.launch import LaunchRequest, Submitted
from coach.model.snapshot import TargetSnapshot
from coach.sources.io import SystemIo
from coach.sources.machine.this_machine import read_machine
from coach.workflows.launching.fix_offer import Remedy
from coach.workflows.watching.launch_watch import Watched
from tests.drills.every_drill import DrillLaunches, DrillResult, run_drills
from tests.rules.examples import history, run, steps

TYPED = Fix("workers", {"num_workers": 2})


def finding(cause: str, *fixes: Fix, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        *("GPU005", "input-bound", cause, severity, 0.9, True, None, Subject(), "it waited", (), fixes, None)
    )


def watched(
    *findings: Finding, state: str = "COMPLETED", live_s: float | None = None, past: History | None = None
) -> Watched:
    made = replace(run(), state=state, recipe="baseline", launch={"recipe": "baseline"}, why_not_mine=None)
    snapshot = TargetSnapshot("made", 1.0, run=made)
    return Watched(
        Submitted("made", "/runs/made", "made", state), snapshot, past or History(), findings, live_s
    )


class Told:
    """Launches with prepared runs: by recipe, and `child` for the run that a fix makes."""

    def __init__(self, runs: Mapping[str, Watched | UserError], directory: Path) -> None:
        self._runs, self._directory = runs, directory
        self.asked: list[str] = []
        self.pythons: list[str | None] = []
        self.before: Callable[[], object] = lambda: None
        self.later: dict[str, list[Watched | UserError]] = {}
        """Results of the same launch the next times."""

    def run(self, request: LaunchRequest, causes: Any = (), on_launched: Any = None) -> Watched:
        return self._run(request.recipe, request, on_launched)

    def run_fix(self, remedy: Remedy, ran: Watched) -> Watched:
        return self._run("child", remedy.request)

    def _run(self, name: str, request: LaunchRequest, on_launched: Any = None) -> Watched:
        self.asked.append(name)
        self.pythons.append(request.python)
        self.before()
        num_asked, later = self.asked.count(name), self.later.get(name, [])
        told = self._runs[name] if num_asked == 1 or not later else later[num_asked - 2]
        if isinstance(told, UserError):
            raise told
        if on_launched is not None:
            on_launched(Submitted(name, str(self._directory), name, "PENDING"))
        return told


def results_of(launches: Told, *names: str) -> Iterator[DrillResult]:
    site = Site("local", (), (read_machine(),))
    given = LaunchRequest("", "local", python="/opt/torch/bin/python")
    return run_drills(choose(names), given, cast(DrillLaunches, launches), site, SystemIo({}))


def results(launches: Told, *names: str) -> list[DrillResult]:
    return list(results_of(launches, *names))


def only(tmp_path: Path, name: str, runs: Mapping[str, Watched | UserError]) -> DrillResult:
    (result,) = results(Told(runs, tmp_path), name)
    return result


STUCK = watched(finding("input_bound", TYPED), live_s=7.0)


def test_a_drill_that_is_found_live_and_whose_fix_makes_it_healthy_meets_its_bar(tmp_path: Path) -> None:
    told = Told({"idle_hands": STUCK, "baseline": watched(), "child": watched()}, tmp_path)
    (result,) = results(told, "idle_hands")
    assert told.asked == ["idle_hands", "baseline", "child"]
    assert told.pythons[:2] == ["/opt/torch/bin/python"] * 2, "a child takes it over from its parent"
    assert (result.found, result.seconds_to_finding, result.mended_by) == ("input_bound", 7.0, "workers")
    assert (result.is_diagnosed, result.is_fixed, result.misses) == (True, True, ())
    assert (tmp_path / "drill_answer.json").exists(), "its run is no secret: nobody is asked for its cause"


def test_another_primary_finding_or_one_that_came_only_after_the_end_misses_the_bar(tmp_path: Path) -> None:
    runs = {"baseline": watched(), "child": watched()}
    other = only(tmp_path, "idle_hands", {**runs, "idle_hands": watched(finding("hang", TYPED), live_s=1.0)})
    assert (other.is_diagnosed, other.found) == (False, "hang")
    assert other.misses
    late = only(tmp_path, "idle_hands", {**runs, "idle_hands": watched(finding("input_bound", TYPED))})
    assert late.is_diagnosed
    assert late.misses == ("it was found only after the run's end",)


def test_a_child_that_is_not_healthy_counts_when_it_is_as_fast_as_the_twin(tmp_path: Path) -> None:
    twin = watched(past=history(steps([1.0] * 100, step_time_s=0.1, num_samples_global=64)))
    for step_time_s, is_fixed in ((0.1, True), (0.2, False)):
        child = watched(
            finding("input_bound"),
            past=history(steps([1.0] * 100, step_time_s=step_time_s, num_samples_global=64)),
        )
        result = only(tmp_path, "idle_hands", {"idle_hands": STUCK, "baseline": twin, "child": child})
        assert result.throughput_ratio is not None
        assert result.throughput_ratio.value == pytest.approx(0.1 / step_time_s)
        assert result.is_fixed is is_fixed
        assert bool(result.misses) is not is_fixed


def test_an_info_finding_counts_as_diagnosed_and_must_be_gone_from_the_child(tmp_path: Path) -> None:
    worth_knowing = finding("input_bound", TYPED, severity=Severity.INFO)
    runs = {"idle_hands": watched(worth_knowing, live_s=1.0), "baseline": watched()}
    mended = only(tmp_path, "idle_hands", {**runs, "child": watched()})
    assert (mended.is_diagnosed, mended.is_fixed, mended.misses) == (True, True, ())
    child = watched(finding("input_bound", severity=Severity.INFO))
    still = only(tmp_path, "idle_hands", {**runs, "child": child})
    assert (still.is_diagnosed, still.is_fixed) == (True, False)


def test_if_no_fix_helps_the_edit_that_turns_the_drill_into_its_twin_counts_as_the_cure(
    tmp_path: Path,
) -> None:
    broken = watched(finding("input_bound"), state="FAILED")
    told = Told({"long_epochs": STUCK, "baseline": watched(), "child": broken}, tmp_path)
    (result,) = results(told, "long_epochs")
    assert told.asked.count("child") == 1
    edit = "workers: not enough; edit: take the sleep out of __getitem__"
    assert (result.is_fixed, result.mended_by) == (True, edit)
    assert result.misses == ()


def test_a_fix_in_words_that_comes_first_is_an_edit_and_no_other_is_tried_for_it(tmp_path: Path) -> None:
    in_words = watched(finding("input_bound", Fix("make each sample cheaper"), TYPED), live_s=7.0)
    told = Told({"long_epochs": in_words, "baseline": watched()}, tmp_path)
    (result,) = results(told, "long_epochs")
    assert result.mended_by == "edit: take the sleep out of __getitem__"
    without_edit = {"idle_hands": in_words, "baseline": watched(), "child": watched()}
    assert only(tmp_path, "idle_hands", without_edit).mended_by == "workers"


def test_a_child_that_needs_another_fix_gets_it_until_the_chain_has_to_end(tmp_path: Path) -> None:
    again = watched(finding("input_bound", Fix("more workers", {"num_workers": 4})))
    runs = {"idle_hands": STUCK, "baseline": watched()}
    told = Told({**runs, "child": again}, tmp_path)
    told.later = {"child": [watched()]}
    (result,) = results(told, "idle_hands")
    assert (result.mended_by, result.is_fixed) == ("workers; more workers", True)
    told = Told({**runs, "child": again}, tmp_path)
    told.later = {"child": [UserError("no further fix: 4 fixes in a row")]}
    (result,) = results(told, "idle_hands")
    assert (result.is_fixed, result.misses) == (
        False,
        ("its fix was refused: no further fix: 4 fixes in a row",),
    )


def test_a_twin_with_a_finding_fails_the_drill(tmp_path: Path) -> None:
    loud = watched(finding("slow_storage"))
    result = only(tmp_path, "idle_hands", {"idle_hands": STUCK, "baseline": loud, "child": watched()})
    assert [miss for miss in result.misses if "not silent" in miss and "slow_storage" in miss]


def test_a_twin_of_several_drills_is_run_once(tmp_path: Path) -> None:
    broken = {
        "spare_part": watched(finding("ddp_unused_parameters"), state="FAILED"),
        "busy_line": watched(finding("port_in_use"), state="FAILED"),
    }
    told = Told({**broken, "ddp": watched()}, tmp_path)
    found = results(told, "spare_part", "busy_line")
    assert told.asked.count("ddp") == 1
    assert [result.misses for result in found] == [(), ()]


def test_a_drill_without_its_needs_is_skipped_and_a_refused_launch_is_a_miss(tmp_path: Path) -> None:
    assert "needs" in (only(tmp_path, "generous_memory", {}).skipped or "")
    refused = UserError("recipe spelling needs deepspeed: not found")
    assert only(tmp_path, "spelling", {"spelling": refused}).skipped == refused.message
    refusal = only(tmp_path, "idle_hands", {"idle_hands": UserError("no room")})
    assert (refusal.skipped, refusal.is_diagnosed) == (None, False)
    assert refusal.misses == ("it was refused: no room",)


def test_a_drill_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--only idle_hand: no such drill"):
        choose(["idle_hand"])


def test_one_drill_runs_after_the_other_and_none_after_an_interruption(tmp_path: Path) -> None:
    names = ("missing_piece", "lost_helper", "many_handles")
    told = Told({name: UserError("no") for name in names}, tmp_path)
    coming = results_of(told, *names)
    assert next(coming).name == "missing_piece"
    assert told.asked == ["missing_piece"]

    def interrupted() -> None:
        raise KeyboardInterrupt

    told.before = interrupted
    with pytest.raises(KeyboardInterrupt):
        list(coming)
    assert told.asked == ["missing_piece", "lost_helper"]
