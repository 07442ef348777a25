"""The pages of the topics: found by their names, short, with sources, and with commands that coach has."""

from __future__ import annotations

import argparse
import re
import shlex
from functools import cache

import pytest

from coach.analysis.explaining.words import explain_word
from coach.cli import COMMANDS, command_module, words_behind
from coach.launch.recipe import Recipe, find_recipes
from coach.launch.topics import Topic, find_topics, near_topics, topic_of
from coach.model.errors import UserError
from coach.rules.registry import find

MAX_LINES, MAX_WIDTH = 60, 112
TOPICS = find_topics()
_SPAN = re.compile(r"`(coach [^`]+)`")
_BLOCK = re.compile(r"^ {4,}(coach .+)$", re.MULTILINE)
_URL = re.compile(r"https?://\S*")
_GOOD_URL = re.compile(r"https?://[a-z0-9.-]+\.[a-z]{2,}(/[\w./#?=&%~+,:()-]*)?")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z-]*")


def commands_of(text: str) -> list[list[str]]:
    """Every `coach …` of a page, in a line or as a line of its own, as words. `;` and `#` end one."""
    found = [*_SPAN.findall(" ".join(text.split("\n"))), *_BLOCK.findall(text)]
    lines = (part.strip() for each in found for part in each.partition(" #")[0].split(";"))
    return [shlex.split(line)[1:] for line in lines]


@cache
def shipped() -> dict[str, Recipe]:
    """Every recipe by its name."""
    return {recipe.name: recipe for recipe in find_recipes()[0]}


def is_known(word: str) -> bool:
    """True if `coach explain` has a page for it."""
    try:
        find(word)
    except UserError:
        return explain_word(word) is not None or topic_of(word) is not None
    return True


def parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a command, by its own parser, which ends the test where it refuses them."""
    name, *arguments = words
    assert name in COMMANDS, words
    module, parser = command_module(name), argparse.ArgumentParser(prog=f"coach {name}")
    module.configure(parser)
    if getattr(module, "HAS_WORDS_BEHIND", False):
        arguments = words_behind(arguments)[0]
    return parser.parse_args(arguments)


@pytest.fixture(params=TOPICS, ids=[topic.name for topic in TOPICS])
def topic(request: pytest.FixtureRequest) -> Topic:
    return request.param  # type: ignore[no-any-return]


def test_a_topic_fits_on_a_page(topic: Topic) -> None:
    lines = topic.text().splitlines()
    assert lines[0] == f"# {topic.title}"
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_WIDTH and "http" not in line] == []
    assert re.fullmatch(r"[a-z0-9_]+", topic.name)


def test_a_topic_states_its_occasion_its_remedy_and_its_source(topic: Topic) -> None:
    text = topic.text()
    for heading in ("**When it matters.**", "**What to do.**", "**What coach shows.**", "**Sources.**"):
        assert heading in text, heading
    urls = [url.rstrip(".,)") for url in _URL.findall(text.partition("**Sources.**")[2])]
    assert urls
    assert [url for url in urls if not _GOOD_URL.fullmatch(url)] == []
    marks = set(re.findall(r"\[([1-9])\]", text.partition("**Sources.**")[0]))
    assert marks <= set(re.findall(r"^- \[(\d)\]", text, re.MULTILINE))


def test_every_command_of_a_topic_is_one_that_coach_has(topic: Topic) -> None:
    commands = commands_of(topic.text())
    assert commands
    recipes = shipped()
    for words in commands:
        args = parsed(words)
        if words[0] == "explain" and args.code is not None:
            assert is_known(args.code), words
        what = {"launch": "what", "recipes": "recipe"}.get(words[0])
        named = getattr(args, what) if what else None
        if named and not _PLACEHOLDER.fullmatch(named) and not named.endswith((".py", ".sh")):
            assert named in recipes, words
            said = getattr(args, "set", None) or []
            assert {word.partition("=")[0] for word in said} <= {*recipes[named].parameters}, words


def test_a_topic_hides_no_rule_and_no_word_of_slurm() -> None:
    for topic in TOPICS:
        with pytest.raises(UserError):
            find(topic.name)
        assert explain_word(topic.name) is None


def test_a_topic_is_found_in_any_spelling_and_similar_topics_by_name_or_subject() -> None:
    assert topic_of("Lustre-Striping") is not None
    assert topic_of("Lustre-Striping") == topic_of("lustre_striping")
    assert topic_of("lustre") is None
    assert near_topics("lustre_stripping") == ["lustre_striping"]
    assert near_topics("InfiniBand")[0] == "network_fabric"
    assert near_topics("squirrel") == []
