"""The pages are true: their links lead to pages, coach accepts their commands and their settings."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from coach import __main__, cli
from coach.config.file import FileKind, read_file
from coach.launch.project_file import read_project
from coach.workflows.judging.rule_files import wrong_rows
from coach.workflows.teaching.drills import get_drill
from tests.docs.markdown import (
    MADE,
    anchors,
    blocks,
    inline_commands,
    links,
    pages,
    shell_lines,
    stored_pages,
)
from tests.installed import REPOSITORY

_IS_SHORT = re.compile("arguments are required|expected (one|at least one) argument")

PAGES = [pytest.param(path, id=path.relative_to(REPOSITORY).as_posix()) for path in pages()]


def test_every_link_of_every_page_in_git_leads_to_something_in_git() -> None:
    nowhere = [
        f"{page.relative_to(REPOSITORY)}: {target}"
        for page in stored_pages()
        for target in links(page.read_text())
        if not _leads_somewhere(page, target)
    ]
    assert nowhere == []


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists() or path.is_relative_to(MADE):
        return False
    return not anchor or anchor in anchors(path.read_text())


def test_each_stored_picture_stands_on_the_page_of_pictures() -> None:
    folder = REPOSITORY / "docs" / "screens"
    assert sorted(links((folder / "README.md").read_text())) == sorted(
        path.name for path in folder.glob("*.svg")
    )


@pytest.mark.parametrize("page", PAGES)
def test_coach_understands_the_commands_of_a_page(page: Path) -> None:
    text = page.read_text()
    typed = [words for words in shell_lines(text) if words[0] == "coach"]
    complaints = [_complaint(words[1:]) for words in typed]
    complaints += [
        complaint
        for words in inline_commands(text)
        if not _IS_SHORT.search(complaint := _complaint(words[1:]))  # `coach fix` names a command
    ]
    assert [complaint for complaint in complaints if complaint] == []


def _complaint(arguments: list[str]) -> str:
    """argparse's error for the arguments of coach; empty if it accepts them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if arguments and arguments[0] in cli.COMMANDS:
                cli.arguments_of(arguments[0], _as_typed(arguments[1:]))
            else:
                assert __main__.parser_of_screens().parse_args(arguments).command is None
    except SystemExit:
        return said.getvalue()  # nothing for --help and --version
    return ""


def _as_typed(arguments: list[str]) -> list[str]:
    """Without placeholders for more words of the same kind."""
    return [word.removesuffix("…") for word in arguments]


def test_each_answer_to_a_drill_on_a_page_is_on_the_drill_s_list() -> None:
    answers = [
        (words[2], words[words.index("--answer") + 1])
        for page in pages()
        for words in (*shell_lines(page.read_text()), *inline_commands(page.read_text()))
        if words[:2] == ["coach", "drill"] and "--answer" in words[:-1] and words[2].islower()
    ]
    assert answers
    drills = {name: get_drill(name) for name, _ in answers}
    assert [each for each in answers if each[1] not in drills[each[0]].choices] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_targets_of_make_on_a_page_exist(page: Path) -> None:
    phony = re.findall(r"^\.PHONY: (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    targets = set(" ".join(phony).split())
    text = page.read_text()
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(
        re.findall(r"^(?:\$ )?make ([a-z-]+)", text, re.MULTILINE)
    )
    assert named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_coach_takes_the_settings_that_a_page_shows(page: Path, tmp_path: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language != "toml":
            continue
        for program in re.findall(r'^(?:script|batch) = "(.+?)"', block.text, re.MULTILINE):
            (tmp_path / program).touch()
        file = tmp_path / "coach.toml"
        file.write_text(block.text)
        if "[training." in block.text:
            assert read_project(file)
        elif "[[group]]" in block.text:
            assert list(wrong_rows([file])) == []
        elif "[recipe" not in block.text and "schema = " not in block.text:
            kind = FileKind.SITE if "[locked]" in block.text or "switches" in block.text else FileKind.USER
            env = {"SCRATCH": "/scratch/ada", "USER": "ada", "HOME": "/home/ada"}
            assert read_file(file, block.text, kind, env).problems == []


def test_every_page_can_be_reached_from_the_first() -> None:
    first = REPOSITORY / "docs" / "index.md"
    seen, ahead = set(), [first]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        text = page.read_text()
        ahead += [page.parent / target.partition("#")[0] for target in links(text)]
        for block in blocks(text):
            if block.language == "{toctree}":
                ahead += [
                    page.parent / f"{line}.md" for line in block.text.splitlines() if line and line[0] != ":"
                ]
    assert [path.relative_to(REPOSITORY).as_posix() for path in pages() if path not in seen] == []
