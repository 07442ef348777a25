"""The parts of a Markdown page that can be wrong: links, headings, commands, and blocks of code."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.installed import REPOSITORY

_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$", re.DOTALL | re.MULTILINE
)
_LINK = re.compile(r"\]\((?P<target>[^()\s]+)\)")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PROMPT = re.compile(r"^(?:cluster)?\$ (?P<command>.+)$", re.MULTILINE)
_INLINE = re.compile(r"`(?P<command>coach [^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A block of code: its language, and its text."""

    language: str
    text: str


MADE = REPOSITORY / "docs" / "made"
"""What `make docs` makes: git does not keep it."""
_ROOMS = (".github", "coach", "docs", "recipes", "single", "site", "tests", "trainers")


def stored_pages() -> list[Path]:
    """All pages in git."""
    found = [
        *REPOSITORY.glob("*.md"),
        *(path for room in _ROOMS for path in (REPOSITORY / room).rglob("*.md")),
    ]
    return sorted(path for path in found if not path.is_relative_to(MADE))


def pages() -> list[Path]:
    """The pages that people read from top to bottom: not those of rooms, recipes, figures and pictures."""
    apart = ("measured", "screens")
    docs = REPOSITORY / "docs"
    return [
        path
        for path in stored_pages()
        if path.parent == REPOSITORY
        or (path.is_relative_to(docs) and path.relative_to(docs).parts[0] not in apart)
    ]


def blocks(text: str) -> list[Block]:
    """All blocks of code of a page, in their order."""
    return [Block(match["language"], match["text"]) for match in _FENCE.finditer(text)]


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead, but for those in code and those of the web."""
    found = [match["target"] for match in _LINK.finditer(_CODE.sub("", _FENCE.sub("", text)))]
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """The anchors that code hosts give to the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def shell_lines(text: str) -> list[list[str]]:
    """The words of each command after a prompt, without comments; `a; b` and `a > b` count as two."""
    found = []
    for block in blocks(text):
        for match in _PROMPT.finditer(block.text):
            lexer = shlex.shlex(match["command"], posix=True, punctuation_chars=";>|")
            lexer.whitespace_split = True
            found += _split(list(lexer))
    return found


def inline_commands(text: str) -> list[list[str]]:
    """The words of each `coach …` within a sentence that is written out."""
    found = [match["command"] for match in _INLINE.finditer(_FENCE.sub("", text))]
    return [shlex.split(command) for command in found if "…" not in command]


def _split(words: list[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in words:
        if word in (";", "|", ">"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]
