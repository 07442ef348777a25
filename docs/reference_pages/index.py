"""The first page of the reference."""

from __future__ import annotations

from collections.abc import Mapping

from reference_pages.markdown import page, table

_GROUPS: Mapping[str, Mapping[str, str]] = {
    "What you type": {
        "commands.md": "every command, its arguments, an example",
        "keys.md": "every key of every screen",
    },
    "What you write": {
        "config.md": "every setting, of a user and of a site",
        "coach-toml.md": "the trainings of a project",
        "recipe.md": "the keys of a recipe and of a drill",
    },
    "What you read": {
        "json.md": "what each command prints with `--format json`",
        "run-directory.md": "the files of a run",
    },
    "What coach knows": {
        "drills.md": "the planted faults to practise on",
    },
}
_INTRODUCTION = """\
To look things up. All pages but that of the run directory are made from what the program itself reads."""
_MORE = """\
`coach explain CODE` shows the page of a rule: what it sees, when it stays silent, what to do, its cause, and
which findings explain which. `coach explain --list` lists all rules. What the rules look for in logs stands
in `coach/rules/wordings/*.toml`: each row has its pattern, a line that it matches, and where that was met.
`coach recipes NAME --diff` shows what a trainer changes of the step before. `make docs` makes pages of all
of these. [Ten pictures](../screens/README.md) show screens."""


def index_page(pages: Mapping[str, str]) -> str:
    """docs/reference/index.md, with the title of each page."""
    parts = [_INTRODUCTION]
    for group, names in _GROUPS.items():
        rows = [(f"[{_title(pages[name])}]({name})", holds) for name, holds in names.items()]
        parts += [f"## {group}", table(("page", "holds"), rows)]
    return page("Reference", *parts, _MORE)


def listed() -> set[str]:
    """The pages that the index names."""
    return {name for names in _GROUPS.values() for name in names}


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")
