"""Other people's text is made harmless, and unknown numbers are shown as unknown."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from coach.cli.trace import _time
from coach.render.text import (
    UNKNOWN,
    Span,
    age,
    clip,
    clock,
    crop,
    fit,
    line,
    line_width,
    mib,
    number,
    of_total,
    pad,
    plain,
    printable,
    seconds,
    wrap,
)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("two\nlines", "two␊lines"),
        ("\u202egnp.exe", "�gnp.exe"),
        ("zero\u200bwidth", "zero�width"),
        ("\udcff", "�"),
        ("\x9b31m", "�31m"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        ("é – 日本", "é – 日本"),
    ],
)
def test_a_name_cannot_control_the_terminal(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


@pytest.mark.parametrize(
    "text", ["", "short", "a rather long name", "日本語の名前", "日本語", "e\u0301clair"]
)
@pytest.mark.parametrize("width", [1, 4, 7, 12])
def test_a_cell_is_exactly_as_wide_as_its_column(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width
    assert cell_len(fit(text, width, "right")) == width


def test_a_text_that_was_cut_has_an_ellipsis() -> None:
    assert fit("abcdef", 4) == "abc…"
    assert plain(clip(line("abc", Span("defgh", "good")), 6)) == "abcde…"
    assert plain(crop(line("abc", "defgh"), 6)) == "abcdef"
    assert line_width(pad(line("abc"), 10)) == 10


def test_long_words_are_cut_at_the_edge_and_nothing_is_lost() -> None:
    rows = wrap("a bcdefghijkl mno", 5)
    assert all(cell_len(row) <= 5 for row in rows)
    assert "".join(rows).replace(" ", "") == "abcdefghijklmno"


@pytest.mark.parametrize("width", [0, 1, 4, 5, 6])
def test_a_long_line_without_blanks_loses_no_wide_character(width: int) -> None:
    text = "ファイルa:ディスクの空き領域がありません"
    rows = wrap(text, width)
    assert all(cell_len(row) <= max(2, width) for row in rows)
    assert "".join(rows) == text


def test_unknown_is_never_zero() -> None:
    assert {number(None), seconds(None), clock(None), age(None), mib(None), of_total(None, None)} == {UNKNOWN}
    assert of_total(None, 8) == "–/8"
    assert number(0.0) == "0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Inf"),
        (1e20, "1e20"),
        (0.05, "0.05"),
        (1195.3, "1,195"),
        (2.3051, "2.305"),
        (8.28e-4, "8.28e-4"),
    ],
)
def test_numbers_are_short_and_inf_and_nan_are_spelt_out(value: float, shown: str) -> None:
    assert number(value) == shown


def test_durations_and_sizes_read_as_people_say_them() -> None:
    assert [seconds(s) for s in (0.000812, 0.0041, 1.25, 125)] == ["812 µs", "4.1 ms", "1.25 s", "2 min 5 s"]
    assert [clock(s) for s in (65, 3723, 93784)] == ["1:05", "1:02:03", "1-02:03:04"]
    assert [age(s) for s in (2, 300, 10_000, 500_000)] == ["2 s", "5 min", "3 h", "6 d"]
    assert [mib(m) for m in (512, 31_949, 1_572_864)] == ["512M", "31.2G", "1.5T"]


def test_a_duration_or_size_just_below_the_next_unit_is_rounded_into_it() -> None:
    assert [seconds(s) for s in (0.9996, 119.7, 3599.9)] == ["1 s", "2 min 0 s", "60 min 0 s"]
    assert [mib(gib * 1024) for gib in (999.4, 999.7)] == ["999G", "1000G"]
    assert seconds(float("inf")) == UNKNOWN
    assert [_time(s) for s in (0.9996, 0.0009996, 0.000012)] == ["1 s", "1 ms", "12 us"]
