"""Writes docs/reference: commands, keys, settings, recipes, JSON, causes, wordings and drills, all of it from
the data that the program itself reads; and docs/rules, as make_rules.py does.

    python docs/make_reference.py

Generated, because a page written by hand is wrong after the next change. A test compares the stored pages
with this program's output. `run-directory.md` alone is written by hand.
"""

from __future__ import annotations

from pathlib import Path

import make_rules
from reference_pages.commands import commands_page
from reference_pages.index import index_page
from reference_pages.json_page import json_pages
from reference_pages.keys import keys_page
from reference_pages.registers import causes_page, drills_page, wordings_page
from reference_pages.settings import config_page
from reference_pages.tables import project_page, recipe_page

REFERENCE = Path(__file__).resolve().parent / "reference"
BY_HAND = ("run-directory.md",)


def pages() -> dict[str, str]:
    """Path below docs/reference → text of every page."""
    found = {
        "commands.md": commands_page(),
        "keys.md": keys_page(),
        "config.md": config_page(),
        "recipe.md": recipe_page(),
        **json_pages(),
        "coach-toml.md": project_page(),
        "causes.md": causes_page(),
        "wordings.md": wordings_page(),
        "drills.md": drills_page(),
    }
    return {
        "index.md": index_page(found | {name: (REFERENCE / name).read_text("utf-8") for name in BY_HAND}),
        **found,
    }


def lying() -> dict[str, str]:
    """The stored pages, without those written by hand."""
    found = {path.relative_to(REFERENCE).as_posix(): path for path in REFERENCE.rglob("*") if path.is_file()}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items() if name not in BY_HAND}


def main() -> None:
    make_rules.main()
    wanted = pages()
    for name in lying().keys() - wanted.keys():
        (REFERENCE / name).unlink()
    for name, text in wanted.items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
