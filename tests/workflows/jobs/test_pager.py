"""coach opens a log in the user's pager."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.workflows.jobs.job_actions import open_pager


def a_pager(folder: Path) -> Path:
    """Make a program that writes its arguments, one per line, and exits with status 3."""
    program = folder / "my pager"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/arguments"\nexit 3\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_the_log_is_one_argument_after_the_options_of_the_pager(tmp_path: Path) -> None:
    file = tmp_path / "slurm 1; touch $(oops).out"
    env = {"PAGER": f"'{a_pager(tmp_path)}' -R +G", "PATH": "/usr/bin:/bin"}
    assert open_pager(str(file), env) == 3
    assert (tmp_path / "arguments").read_text().splitlines() == ["-R", "+G", str(file)]
    assert not (tmp_path / "oops").exists()


@pytest.mark.parametrize(
    ("pager", "words"),
    [("no-such-pager -R", "there is no program 'no-such-pager'"), ("less 'x", "No closing quotation")],
)
def test_a_pager_that_cannot_run_is_named_with_the_variable(pager: str, words: str) -> None:
    with pytest.raises(UserError, match=r"^PAGER: ") as found:
        open_pager("/log", {"PAGER": pager, "PATH": "/usr/bin:/bin"})
    assert words in found.value.message
    assert found.value.hint == "for example PAGER=less"


def test_less_is_the_default_pager(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no program 'less'"):
        open_pager("/log", {"PATH": str(tmp_path)})
