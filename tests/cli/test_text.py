from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from coach.cli import guarded, sentence
from coach.cli.text import (
    format_mib,
    format_used,
    print_bad_rows,
    print_json,
    print_table,
    printable,
)
from coach.runs import read_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        ("two\nlines", "two␊lines"),
        ("\x1b[31mred\x07", "␛[31mred␇"),
        ("caf\udce9", "caf\ufffd"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("a\x9bm", "a\ufffdm"),
        ("a\u2028b", "a\ufffdb"),
        ("tab\there", "tab here"),
        ("naïve 日本", "naïve 日本"),
    ],
)
def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_columns_stay_aligned_beside_wide_characters_and_unknowns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "GPUS", "WHY"), [("日本", "4", "a\nb"), ("x", None, "")], "lrl")
    assert capsys.readouterr().out == "NAME  GPUS  WHY\n日本     4  a␊b\nx        –\n"


def test_json_carries_bytes_that_are_not_utf8_and_says_when_rows_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json("jobs", [{"name": "caf\udce9\x1b"}], num_bad_rows=2)
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"schema": 1, "jobs": [{"name": "caf\udce9\x1b"}], "num_bad_rows": 2}
    print_json("jobs", [])
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "jobs": []}


def test_missing_rows_and_only_those_add_a_note_beside_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_bad_rows(0)
    assert capsys.readouterr().err == ""
    print_bad_rows(1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "coach: not shown: 1 row of the answer that could not be read\n"


def test_sizes_read_as_slurm_writes_them() -> None:
    assert [format_mib(mib) for mib in (512, 64000, 2 * 1024**2, 0, None)] == [
        "512M",
        "62.5G",
        "2T",
        "0M",
        None,
    ]
    assert [format_used(3, 16), format_used(None, 16), format_used(None, None)] == ["3/16", "–/16", None]


def test_a_summary_becomes_a_sentence_that_keeps_the_field_s_spelling() -> None:
    assert sentence("sample GPUs of this node") == "Sample GPUs of this node."


def test_a_file_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_module("coach.cli.runs")  # a command of the same name as the module of the errors
    torn = tmp_path / "run.json"
    torn.write_text("{")
    assert guarded(lambda: len(read_json(torn))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coach: {torn}: not valid JSON (")
    assert guarded(lambda: len((tmp_path / "gone\n").read_text())) == 2
    assert capsys.readouterr().err == f"coach: {tmp_path}/gone␊: No such file or directory\n"


@pytest.mark.parametrize("words", ["--version", "explain MEM001"])
def test_a_command_with_a_closed_standard_output_prints_nothing(words: str) -> None:
    done = _in_shell(f"{words} >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_help_that_cannot_be_written_says_so() -> None:
    done = _in_shell("--help > /dev/full")
    assert (done.returncode, done.stderr) == (2, "coach: a write failed: No space left on device\n")


def _in_shell(words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shell = ["sh", "-c", f'"{sys.executable}" -m coach {words}']
    return subprocess.run(shell, env=env, capture_output=True, text=True, timeout=60)
