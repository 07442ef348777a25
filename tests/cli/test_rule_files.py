"""A site's own wordings: tested by `coach config --check`, and then at work in `coach check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.__main__ import main

Coach = Callable[..., int]
ROW = """
[[group]]
rule = "ENV010"
kind = "full"

[[group.wording]]
pattern = 'scratch-guard: (?P<what>quota of \\S+ used up)'
example = 'scratch-guard: quota of /scratch/ada used up'
seen = "our prolog"
"""


@pytest.fixture
def coach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coach:
    monkeypatch.setenv("COACH_HOME", str(tmp_path / "home"))
    return lambda *arguments: main(["--as-root", *map(str, arguments)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of wordings that the config names."""
    path = tmp_path / "site.toml"
    path.write_text(ROW)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'[rules]\nfiles = ["{path}"]\n')
    return path


def test_with_valid_rows_nothing_is_wrong(
    coach: Coach, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(f"{ROW}\n[thresholds.GPU005]\nwarning_share = 0.3\n")
    assert coach("config", "--check") == 0
    assert "nothing is wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("example = 'scratch-guard", "example = 'scratch guard", "does not match its pattern"),
        ("(?P<what>quota of \\S+ used up)", "quota of \\S+ used up", "name that group in the pattern"),
        ("\\S+ used", "(?:\\S+)+ used", "takes more than 50 ms"),
    ],
)
def test_a_row_s_unkept_promise_is_named(
    coach: Coach, table: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    assert old in ROW
    table.write_text(ROW.replace(old, new))
    assert coach("config", "--check", "--format", "json") == 2
    (file,) = json.loads(capsys.readouterr().out)["files"]
    (found,) = file["problems"]
    assert (Path(found["file"]).name, found["line"]) == ("config.toml", 2)
    assert f"{table}: ENV010 full " in found["message"]
    assert problem in found["message"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ENV010", "ENV10", ("there is no rule 'ENV10'", "did you mean ENV010?")),
        ('"full"', '"ful"', ("ENV010 has no kind 'ful'", "its kinds: full")),
        ("ENV010", "GPU003", ("GPU003 has no kind 'full'", "it judges numbers")),
        ('seen = "our prolog"', "", ("give seen or source", "seen = an address")),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(
    coach: Coach, table: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: tuple[str, str]
) -> None:
    table.write_text(ROW.replace(old, new))
    assert coach("config", "--check") == 2
    first, second, _ = capsys.readouterr().out.splitlines()
    assert str(table) in first
    assert words[0] in first
    assert words[1] in second


def test_a_log_is_judged_by_the_tables_that_the_config_names(
    coach: Coach, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1 loss 0.5\nscratch-guard: quota of /scratch/ada used up\n")
    assert coach("check", log) == 1
    assert "quota of /scratch/ada used up" in capsys.readouterr().out
    table.unlink()
    assert coach("check", log) == 2
    assert str(table) in capsys.readouterr().err
