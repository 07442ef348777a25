"""Writes docs/reference: commands, keys, settings, recipes, JSON and drills, all of it from the data that the
program itself reads.

    python docs/make_reference.py

Generated, because a page written by hand is wrong after the next change. A test compares the stored pages
with this program's output. `run-directory.md` alone is written by hand. `make_pages.py` makes the pages that
are not stored.
"""

from __future__ import annotations

from pathlib import Path

from reference_pages.commands import commands_page
from reference_pages.index import index_page
from reference_pages.json_page import json_page
from reference_pages.keys import keys_page
from reference_pages.registers import drills_page
from reference_pages.settings import config_page
from reference_pages.tables import project_page, recipe_page

REFERENCE = Path(__file__).resolve().parent / "reference"
BY_HAND = ("run-directory.md",)


def pages() -> dict[str, str]:
    """Name → text of every page."""
    found = {
        "commands.md": commands_page(),
        "keys.md": keys_page(),
        "config.md": config_page(),
        "recipe.md": recipe_page(),
        "json.md": json_page(),
        "coach-toml.md": project_page(),
        "drills.md": drills_page(),
    }
    return {
        "index.md": index_page(found | {name: (REFERENCE / name).read_text("utf-8") for name in BY_HAND}),
        **found,
    }


def lying() -> dict[str, str]:
    """The stored pages, without those written by hand."""
    found = (path for path in REFERENCE.iterdir() if path.name not in BY_HAND)
    return {path.name: path.read_text(encoding="utf-8") for path in found}


def main() -> None:
    wanted = pages()
    for name in lying().keys() - wanted.keys():
        (REFERENCE / name).unlink()
    for name, text in wanted.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
