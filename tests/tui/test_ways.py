"""Ways through the screens: one step back, home, and to anything by its name."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import MappingProxyType

import pytest
from textual.command import CommandList

from coach.model.judging.finding import Diagnosis, Fix
from coach.render.text import BLANK, plain
from coach.tui.palette import GoTo, places_of
from coach.tui.ports import RuleTitle
from coach.tui.render.header import footer_line
from tests.tui.driving import Driver, go_to, opened
from tests.tui.fake_ports import FakePorts, FakeQuestions
from tests.tui.fake_session import (
    CHILD_ID,
    RUN_ID,
    FakeSession,
    make_history,
    make_job,
    make_run,
    make_snapshot,
    nan_diagnosis,
)


def first_line(driver: Driver) -> str:
    return driver.text().splitlines()[0]


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_a_step_back_goes_along_the_names_in_the_top_line(key: str) -> None:
    async with opened(size=(120, 36)) as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("D")
        await driver.reaches("gpus")
        assert "cluster › runs › run ddp-4f2a › gpus" in first_line(driver)
        for place, trail in (
            ("job", "runs › run ddp-4f2a"),
            ("runs", "cluster › runs"),
            ("cluster", "cluster"),
        ):
            await driver.press(key)
            await driver.reaches(place)
            assert trail in first_line(driver)
        assert driver.app.is_running


async def test_q_leaves_coach_on_the_first_screen_alone_and_ctrl_q_anywhere() -> None:
    async with opened() as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.press("q")
        await driver.reaches("cluster")
        assert driver.app._exit is False
        await driver.pilot.press("q")
        assert driver.app._exit
    async with opened() as driver:
        await driver.press("r")
        await driver.reaches("runs")
        await driver.pilot.press("ctrl+q")
        assert driver.app._exit


async def test_a_screen_that_is_open_comes_back_to_the_top_instead_of_opening_twice() -> None:
    async with opened() as driver:
        for _ in range(3):
            await driver.press("r", "enter")
            await driver.reaches("job")
            await driver.press("f")
            await driver.reaches("findings")
        assert len(driver.app.screen_stack) == 5, "Textual's own, cluster, runs, job, findings"
        await driver.press("r")
        await driver.reaches("runs")
        assert len(driver.app.screen_stack) == 3


@pytest.mark.parametrize(
    ("words", "place", "trail"),
    [
        ("ddp-4f2a", "job", "run ddp-4f2a"),
        ("node1", "node", "node1"),
        ("doctor", "doctor", "doctor"),
        ("history", "history", "history"),
    ],
)
async def test_a_name_leads_to_its_screen(words: str, place: str, trail: str) -> None:
    async with opened() as driver:
        await go_to(driver, words)
        await driver.reaches(place)
        await driver.until(lambda: trail in first_line(driver), trail)


async def test_a_user_leads_to_the_jobs_of_that_user_and_enter_alone_goes_home() -> None:
    async with opened() as driver:
        await driver.press("r", "enter")
        await driver.reaches("job")
        await go_to(driver, "bob")
        await driver.reaches("cluster")
        await driver.sees("user:bob")
        await driver.press("r", "enter")
        await driver.reaches("job")
        await driver.pilot.press("colon")
        await driver.until(lambda: isinstance(driver.app.screen, GoTo), "it asks for a name")
        commands = driver.app.screen.query_one(CommandList)
        await driver.until(lambda: commands.option_count, "its places")
        await driver.pilot.press("enter")
        await driver.reaches("cluster")


async def test_a_recipe_leads_to_its_plan_and_nothing_is_submitted() -> None:
    async with opened() as driver:
        await go_to(driver, "baseline")
        await driver.reaches("plan")
        assert driver.ports.launches.submitted == []


@pytest.mark.parametrize("words", ["NUM001", "num001", "num0", "loss not finite", "infinite"])
async def test_a_code_or_words_of_a_title_lead_to_the_page_of_the_rule(words: str) -> None:
    async with opened() as driver:
        await go_to(driver, words, "NUM001")
        await driver.reaches("rule")
        await driver.sees("A loss that is NaN.")
        assert "NUM001" in first_line(driver)


async def test_rules_that_load_late_are_offered_for_text_typed_before() -> None:
    is_read = threading.Event()

    class Late(FakeQuestions):
        def rule_titles(self) -> tuple[RuleTitle, ...]:
            is_read.wait(10)
            return super().rule_titles()

    async with opened(ports=FakePorts(questions=Late())) as driver:
        await driver.pilot.press("colon")
        await driver.until(lambda: isinstance(driver.app.screen, GoTo), "it asks for a name")
        await driver.pilot.press(*"num001")
        await driver.sees("No matches found")
        is_read.set()
        await driver.sees("rule · loss-not-finite")


async def test_a_name_that_fits_exactly_comes_first_behind_any_number_of_parts() -> None:
    jobs = tuple(make_job(str(number), name="num001-again") for number in range(100, 200))
    async with opened(FakeSession(make_snapshot(jobs=jobs))) as driver:
        await go_to(driver, "num001", "NUM001")
        await driver.reaches("rule")


async def test_equal_names_come_before_beginnings_and_parts() -> None:
    async with opened() as driver:
        places = places_of(driver.app.context, (), lambda *names: None, lambda recipe: None)
        (run,) = [place for place in places if place.name == RUN_ID]
        scores = [run.score(words) for words in (RUN_ID.casefold(), RUN_ID[:8], "ddp", "run", "nothing")]
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] == 0.0


def test_a_footer_shows_at_most_twelve_keys_and_keeps_the_way_back() -> None:
    hints = [(f"key{index}", chr(97 + index), "word", True) for index in range(20)]
    hints += [("back", "Esc", "back", True), ("help", "?", "keys", True)]
    for width in (80, 300):
        shown = plain(footer_line(hints, BLANK, width))
        assert shown.count(" word") + 2 <= 12
        assert "Esc back" in shown
        assert "? keys" in shown


@pytest.mark.parametrize("place", ["cluster", "runs", "job"])
@pytest.mark.parametrize(("key", "opens"), [("l", "log"), ("D", "gpus"), ("S", "stacks")])
async def test_log_gpus_and_stacks_are_one_letter_on_rows_and_on_the_job(
    place: str, key: str, opens: str
) -> None:
    async with opened() as driver:
        await driver.press(*{"cluster": ["home"], "runs": ["r"], "job": ["home", "enter"]}[place])
        await driver.reaches(place)
        await driver.press(key)
        await driver.reaches(opens)
        if opens != "stacks":
            await driver.until(lambda: "run ddp-4f2a" in first_line(driver), "the top line names the job")


async def test_where_the_terminal_cannot_be_lent_the_pager_key_says_so() -> None:
    async with opened() as driver:
        await driver.press("home", "enter")
        await driver.reaches("job")
        await driver.press("O")
        await driver.sees("this terminal cannot be lent to a pager")
        assert driver.ports.job_actions.paged == []


@pytest.mark.parametrize(
    "path", [["home", "E", "E"], ["home", "enter", "E", "E"], ["f", "E"], ["home", "enter", "enter", "E"]]
)
async def test_e_explains_the_rule_of_the_finding_wherever_one_is(path: list[str]) -> None:
    async with opened() as driver:
        for key in path:
            await driver.press(key)
            await driver.settle()
        await driver.reaches("rule")
        await driver.sees("A loss that is NaN.")
        assert "NUM001" in first_line(driver)


async def test_e_explains_each_value_of_the_row_under_the_cursor() -> None:
    async with opened() as driver:
        await driver.press("home", "down", "E")
        await driver.reaches("explained")
        await driver.sees("squeue, field State · 2 s old")
        await driver.press("E")
        await driver.sees("nothing was found here")


@pytest.mark.parametrize(
    ("path", "copied"),
    [
        (["home", "Y"], "17"),
        (["r", "Y"], RUN_ID),
        (["shift+tab", "Y"], "node3"),
    ],
)
async def test_y_copies_the_name_of_a_row(path: list[str], copied: str) -> None:
    async with opened() as driver:
        for key in path:
            await driver.press(key)
            await driver.settle()
        await driver.sees(f"copied {copied} into tmux's buffer")
        assert driver.ports.job_actions.copied == [copied]


@pytest.mark.parametrize("path", [["home", "enter"], ["home", "enter", "enter"], ["f"]])
async def test_y_copies_the_findings_of_a_job_as_markdown(path: list[str]) -> None:
    async with opened() as driver:
        for key in (*path, "Y"):
            await driver.press(key)
            await driver.settle()
        await driver.sees("copied the findings of")
        (text,) = driver.ports.job_actions.copied
        assert text.startswith("## ")
        assert "critical NUM001 loss-not-finite" in text
        assert "rank-0.jsonl:3: loss at step 1: 2.31, at step 2: NaN" in text
        assert "           lr 0.05" in text


async def test_outside_of_tmux_the_terminal_is_asked() -> None:
    async with opened() as driver:
        driver.ports.job_actions.has_tmux = False
        await driver.press("home", "Y")
        await driver.sees("copied 17, if this terminal allows it (OSC 52)")
        assert driver.app.clipboard == "17"


async def test_plus_opens_the_form_of_a_new_launch() -> None:
    async with opened() as driver:
        await driver.press("plus")
        await driver.reaches("new_launch")


def several_findings(count: int) -> Diagnosis:
    """Findings that each have a fix of their own; their proofs fill more than a small screen."""
    (first, *_) = nan_diagnosis().findings
    findings = tuple(
        replace(
            first,
            rule=f"NUM{number:03}",
            fixes=(Fix(f"fix number {number}", {"lr": 0.1 / number}),),
            evidence=first.evidence * 6,
        )
        for number in range(1, count + 1)
    )
    return replace(nan_diagnosis(), findings=findings)


async def test_n_and_capital_n_go_through_the_findings() -> None:
    snapshot = make_snapshot(diagnoses=MappingProxyType({RUN_ID: several_findings(4)}))
    async with opened(FakeSession(snapshot, {RUN_ID: make_history()}), size=(80, 24)) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("enter")
        await driver.reaches("finding")

        def first() -> str:
            return next(row for row in driver.text().splitlines() if "NUM0" in row and "✖ critical" in row)

        for key, code in (("n", "NUM002"), ("n", "NUM003"), ("N", "NUM002"), ("N", "NUM001")):
            await driver.press(key)
            await driver.until(lambda code=code: code in first(), f"{code} on top")  # type: ignore[misc]
        await driver.press("N")
        await driver.sees("no further finding in this direction")


async def test_n_and_capital_n_go_round_the_fixes() -> None:
    snapshot = make_snapshot(diagnoses=MappingProxyType({RUN_ID: several_findings(3)}))
    async with opened(FakeSession(snapshot, {RUN_ID: make_history()})) as driver:
        await driver.press("enter")
        await driver.reaches("job")
        await driver.press("F")
        await driver.reaches("fix")
        for key, number in (("n", 2), ("n", 3), ("n", 1), ("N", 3), ("N", 2)):
            await driver.press(key)
            await driver.sees(f"fix number {number}")


async def test_c_on_a_row_of_the_queue_compares_its_run_with_the_child() -> None:
    child = make_run(CHILD_ID, job_id="19", parent_run_id=RUN_ID)
    snapshot = make_snapshot(runs=(make_run(), child))
    async with opened(FakeSession(snapshot, {RUN_ID: make_history(), CHILD_ID: make_history()})) as driver:
        await driver.press("home", "c")
        await driver.reaches("compare")
        await driver.sees(CHILD_ID)


async def test_c_on_a_job_that_coach_did_not_launch_says_why_not() -> None:
    async with opened() as driver:
        await driver.press("end", "c")
        await driver.sees("only runs that coach launched can be compared")
        assert driver.place == "cluster"


async def test_a_job_number_leads_to_the_job_though_no_list_has_it() -> None:
    async with opened(FakeSession(make_snapshot())) as driver:
        await go_to(driver, "98765")
        await driver.sees("job 98765")
        await driver.press("escape")
        await driver.reaches("cluster")
        await driver.pilot.press("colon", *"98765_3", "enter")  # faster than the list is made
        await driver.sees("job 98765_3")


async def test_a_number_and_enter_that_come_faster_than_the_list_lead_to_the_job_again_and_again() -> None:
    async with opened() as driver:
        for _ in range(3):
            for key in ("colon", *"4575", "enter"):
                driver.app.simulate_key(key)
            await driver.reaches("job")
            await driver.press("escape")
            await driver.reaches("cluster")
