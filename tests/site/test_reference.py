"""Completions and man page have each command and option of the program."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from coach.cli import COMMANDS
from tests.installed import REPOSITORY


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(REPOSITORY / "site")
    return import_module("reference")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_command_and_its_options_are_completed(reference: Any, shell: str) -> None:
    text = reference.completion(reference.whole_parser(), shell)
    assert [name for name in COMMANDS if name not in text] == []
    for option in ("fail-on", "until-done", "older-than"):
        assert option in text


@pytest.mark.parametrize(
    ("words", "completed"), [("ca", ["cancel"]), ("why --fa", ["--fail-on"]), ("wh", ["why"])]
)
def test_bash_completes_a_word_that_was_begun(
    reference: Any, tmp_path: Path, words: str, completed: list[str]
) -> None:
    script = tmp_path / "coach"
    script.write_text(reference.completion(reference.whole_parser(), "bash"))
    typed = ["coach", *words.split(" ")]
    program = f"source {script}; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}"
    done = subprocess.run(
        ["bash", "--norc", "-c", program + "; _shtab_coach; printf '%s\\n' \"${COMPREPLY[@]}\""],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == completed, done.stderr


def test_the_man_page_has_a_section_for_each_command(reference: Any) -> None:
    page = reference.man_page(reference.whole_parser())
    assert "coach \\- see a Slurm cluster" in page
    assert [
        name for name in COMMANDS if f"coach {name}\\fR" not in page and f"coach {name}'" not in page
    ] == []
    for heading in ("EXIT STATUS", "ENVIRONMENT", "FILES"):
        assert f".SH {heading}" in page
    assert "\x1b" not in page
