"""`coach --help` for a user in a hurry: tasks first, each command once, on a small terminal."""

from __future__ import annotations

import pytest

from coach.__main__ import main
from coach.cli import COMMANDS, COMMANDS_BY_TASK


def test_the_help_lists_each_command_once_under_its_task_within_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    below = lines[next(at for at, line in enumerate(lines) if line.startswith("Without a command")) + 1 :]
    listed = [line.split()[0] for line in below if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)
    assert [line.removesuffix(":") for line in below if line.endswith(":")] == list(COMMANDS_BY_TASK)


def test_no_command_stands_in_two_tasks() -> None:
    assert sum(map(len, COMMANDS_BY_TASK.values())) == len(COMMANDS)
