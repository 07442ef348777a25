"""Pages about subjects without a recipe: compilers, file systems, records. Each is one Markdown file in
recipes/topics/, found by globbing, and can be read wherever recipes can.

A person asks for a page by its file name; `-` and `_` are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from coach.launch.recipe import data_dir
from coach.trusted import read_text

_FOLDER = "topics"


@dataclass(frozen=True, slots=True)
class Topic:
    """One page. `name` is the word that asks for it, `title` its first line."""

    name: str
    title: str
    path: Path

    def text(self) -> str:
        """The whole page, as Markdown."""
        return read_text(self.path, owner=None)


def find_topics() -> tuple[Topic, ...]:
    """All pages by name."""
    paths = sorted((data_dir() / "recipes" / _FOLDER).glob("*.md"))
    return tuple(Topic(path.stem, _title(path), path) for path in paths)


def topic_of(word: str) -> Topic | None:
    """The page with this name, in any case; None if there is none."""
    wanted = _folded(word)
    return next((topic for topic in find_topics() if _folded(topic.name) == wanted), None)


def near_topics(word: str) -> list[str]:
    """Names of pages that the person probably meant: first those with a similar spelling, then those with the
    word in their title."""
    topics = find_topics()
    by_folded = {_folded(topic.name): topic.name for topic in topics}
    alike = [by_folded[name] for name in get_close_matches(_folded(word), by_folded, 2, 0.7)]
    wanted = word.casefold()
    titled = [
        topic.name
        for topic in topics
        if len(wanted) > 2 and wanted in f"{topic.name} {topic.title}".casefold()
    ]
    return list(dict.fromkeys((*alike, *titled)))[:3]


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_").replace(" ", "_")


def _title(path: Path) -> str:
    return read_text(path, owner=None).partition("\n")[0].lstrip("# ").strip()
