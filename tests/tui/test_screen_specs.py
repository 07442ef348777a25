"""Every screen is declared once; a new screen needs its file, its renderer and one line."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

from coach.config import Settings
from coach.launch.topics import find_topics
from coach.render.text import plain
from coach.rules.registry import rule_classes
from coach.tui import screen_specs, screens
from coach.tui.bases.screen import CoachScreen
from coach.tui.keys import KEYS
from coach.tui.live_ports import LiveQuestions, Ports, Reach
from coach.tui.messages import Request
from coach.tui.question import Question
from coach.tui.screen_specs import HOME, SCREENS, SHOWS, Follows, ScreenSpec, by_name
from coach.tui.widgets.lines import LinesView
from tests.tui.driving import opened


@pytest.mark.parametrize("spec", SCREENS, ids=lambda spec: spec.name)
def test_a_screen_knows_its_declaration(spec: ScreenSpec) -> None:
    assert issubclass(spec.load(), CoachScreen)
    assert spec.load().spec is spec


def test_every_file_of_a_screen_is_declared() -> None:
    files = {module.name for module in pkgutil.iter_modules(screens.__path__)}
    assert files == {spec.path.partition(":")[0].rpartition(".")[2] for spec in SCREENS}
    assert len(by_name()) == len(SCREENS)


def test_a_key_names_screens_that_there_are() -> None:
    named = {place for key in KEYS for place in key.places if isinstance(place, str)}
    opened_by_keys = {key.opens for key in KEYS if key.opens}
    assert named | opened_by_keys <= by_name().keys()


async def test_a_new_screen_needs_its_file_its_renderer_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ScreenSpec("tide", "tests.tui.added_screen:TideScreen", SHOWS, Follows.BEFORE)
    monkeypatch.setattr(screen_specs, "SCREENS", (*SCREENS, line))
    async with opened() as driver:
        followed = driver.session.watches[-1]
        await driver.app.run_action("open_screen('tide')")
        await driver.reaches("tide")
        await driver.sees("2 jobs wait before 3 nodes")
        assert "slurm · tiger" in driver.text().splitlines()[0]
        assert driver.session.watches[-1] == followed
        await driver.press("question_mark")
        await driver.sees("Keys on the tide screen")
        body = driver.app.screen.query_one("#body", LinesView)
        assert any("The findings of all your jobs" in plain(row) for row in body.lines)
        await driver.press("escape", "1")
        await driver.reaches("plan")
        await driver.press("escape", "escape")
        await driver.reaches(HOME.name)


def all_requests(kind: type[Request] = Request) -> set[type[Request]]:
    return {found for each in kind.__subclasses__() for found in {each, *all_requests(each)}}


async def test_every_request_of_a_screen_has_one_controller_that_answers_it() -> None:
    async with opened() as driver:
        assert driver.app.handlers.keys() == all_requests()


def test_every_question_has_its_answer_in_the_wiring() -> None:
    settings = Settings(Path("/runs"), Path("/cache"), Path("/config"))
    questions = Ports(Reach(settings, {}), "slurm", "slurm").questions
    assert isinstance(questions, LiveQuestions)
    assert questions.table.keys() == set(Question)


def test_every_rule_and_topic_is_offered_by_its_code_and_title() -> None:
    settings = Settings(Path("/runs"), Path("/cache"), Path("/config"))
    questions = Ports(Reach(settings, {}), "slurm", "slurm").questions
    offered = questions.rule_titles()
    titles = [title for title in offered if title.kind == "rule"]
    assert [title.code for title in titles] == [rule.code for rule in rule_classes()]
    topics = [title for title in offered if title.kind == "topic"]
    assert [title.code for title in topics] == [topic.name for topic in find_topics()]
    assert questions.explain_rule(topics[0].code).startswith(f"# {topics[0].title}")
    (num001,) = [title for title in titles if title.code == "NUM001"]
    assert num001.title.startswith("loss-not-finite · ")
    assert all(title.title.partition(" · ")[2] for title in titles)
