"""The pages in docs/reference equal the program's own description, and miss no part."""

from __future__ import annotations

import os
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from coach import cli
from coach.cli import COMMANDS
from coach.config.keys import KEYS
from coach.launch.project_file import read_project
from coach.tui.keys import KEYS as SCREEN_KEYS
from tests.hostile import HOSTILE
from tests.installed import REPOSITORY

_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "docs")


def of(name: str) -> ModuleType:
    return import_module(f"reference_pages.{name}")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(REPOSITORY / "docs")
        found: dict[str, str] = import_module("make_reference").pages()
    return found


def test_the_pages_in_docs_are_what_the_program_says(pages: dict[str, str]) -> None:
    lying = import_module("make_reference").lying()
    stale = sorted(name for name in {*pages, *lying} if pages.get(name) != lying.get(name))
    assert not stale, "run `python docs/make_reference.py`"


def test_each_page_says_first_that_it_is_made_and_stands_in_the_index(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if "python docs/make_reference.py" not in text[:200]] == []
    assert of("index").listed() - {"run-directory.md"} == pages.keys() - {"index.md"}


def test_links_of_the_pages_that_git_does_not_keep_lead_to_each_other_or_to_files_that_exist() -> None:
    pages: dict[str, str] = import_module("make_pages").pages()
    assert {
        "causes.md",
        "wordings.md",
        "rules/GPU005.md",
        "diffs/ddp.md",
    } <= pages.keys()
    made = Path(os.path.normpath(REPOSITORY / "docs" / "made"))
    linked = {
        Path(os.path.normpath((made / name).parent / link))
        for name, text in pages.items()
        if name.endswith(".md")
        for link in _LINK.findall(_SPAN.sub("", text))
    }
    inside = {path.relative_to(made).as_posix() for path in linked if path.is_relative_to(made)}
    assert inside - pages.keys() == set()
    assert [path for path in linked if not path.is_relative_to(made) and not path.exists()] == []
    assert pages.keys() - inside == {"causes.md", "wordings.md"} | {
        f"{folder}/README.md" for folder in ("rules", "diffs")
    }


def test_each_command_has_an_example_that_it_understands(tmp_path: Path) -> None:
    examples = of("commands").EXAMPLES
    assert examples.keys() == COMMANDS.keys()
    for name, said in examples.items():
        program, command, *words = shlex.split(said)
        assert (program, command) == ("coach", name)
        cli.arguments_of(name, words)


def test_each_argument_of_each_command_has_a_sentence(pages: dict[str, str]) -> None:
    rows = [line for line in pages["commands.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [line for line in rows if line.endswith("| – |")] == []


def test_each_setting_and_each_key_of_a_screen_stands_in_its_page(pages: dict[str, str]) -> None:
    settings = {key.name for key in KEYS.values() if not key.name.startswith("keys.")}
    assert {name for name in settings if f"| `{name}` |" not in pages["config.md"]} == set()
    assert {key.name for key in KEYS.values() if not key.says.endswith(".") or not key.takes} == set()
    ids = {key.id for key in SCREEN_KEYS}
    assert {name for name in ids if f"`{name}`" not in pages["keys.md"]} == set()


def test_the_example_of_a_project_can_be_launched(tmp_path: Path) -> None:
    (tmp_path / "coach.toml").write_text(of("tables").project_example())
    (tmp_path / "finetune.py").write_text("import torch\n")
    found = read_project(tmp_path / "coach.toml")
    assert [each.name for each in found] == ["pretrain", "finetune"]


def test_the_order_of_a_drill_s_choices_gives_nothing_away(pages: dict[str, str]) -> None:
    rows = [line.split(" | ")[-1] for line in pages["drills.md"].splitlines() if line.startswith("| `")]
    choices = [re.findall(r"`(\w+)`", row) for row in rows]
    assert len(choices) > 20
    assert [said for said in choices if said != sorted(said)] == []


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_text_stays_in_its_cell(said: str) -> None:
    markdown = of("markdown")
    for cell in (markdown.text(said), markdown.code(said)):
        assert "\n" not in cell
        assert re.search(r"(?<!\\)\|", cell) is None
        assert not set(cell) & set(map(chr, range(32)))
    assert "<b>" not in markdown.text("<b>" + said)


def test_a_code_span_is_not_ended_by_its_own_backticks() -> None:
    markdown = of("markdown")
    assert markdown.code("a `b` c|d") == "``a `b` c\\|d``"
    assert markdown.code("`x") == "`` `x ``"
    assert markdown.block("```\nx\n```").startswith("````\n")
