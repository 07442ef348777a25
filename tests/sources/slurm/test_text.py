from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from coach.sources.slurm.text import (
    BadRow,
    failure_words,
    is_torn,
    optional,
    parse_count,
    parse_duration,
    parse_exit_code,
    parse_time,
    split_records,
)


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize("word", ["", "N/A", "n/a", "(null)", "none", "None", "NONE", "Unknown"])
def test_every_spelling_of_not_set_is_unknown(word: str) -> None:
    assert optional(word) is None
    assert parse_count(word) is None
    assert parse_duration(word) is None
    assert parse_time(word) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("3:04", 184), ("2:03:04", 7384), ("1-02:03:04", 93784), ("365-00:00:00", 31536000)],
)
def test_durations_are_read_in_all_their_lengths(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "INVALID", "NOT_SET", "-1:00", "1:2:3:4"])
def test_a_malformed_duration_is_unknown_and_not_zero(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(("text", "count"), [("4", 4), ("2-4", 2), ("2K", 2048), ("1.50K", 1536)])
def test_counts_are_read_with_ranges_and_units(text: str, count: int) -> None:
    assert parse_count(text) == count


def test_a_malformed_count_makes_its_row_bad() -> None:
    with pytest.raises(BadRow, match="four"):
        parse_count("four")


@pytest.mark.usefixtures("berlin")
def test_local_times_become_epoch_seconds_in_summer_and_winter() -> None:
    assert parse_time("2026-01-15T12:00:00") == 1768474800
    assert parse_time("2026-07-15T12:00:00") == 1784109600


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("10752", 42),
        ("0", 0),
        ("11", 139),
        ("139", 139),
        ("4021", 181),
        ("42:0", 42),
        ("0:9", 137),
        ("N/A", None),
        ("", None),
    ],
)
def test_exit_codes_are_read_raw_and_with_their_signal(text: str, code: int | None) -> None:
    assert parse_exit_code(text) == code


def test_a_name_keeps_its_own_line_breaks_and_the_next_row_gets_none() -> None:
    text = "1<S>two\nlines\n<R>\n2<S>b<R>\n"
    assert list(split_records(text, "<S>", "<R>")) == [["1", "two\nlines\n"], ["2", "b"]]


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            "Unable to contact slurm controller (connect failure)",
        ),
        (
            "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "scontrol: error: fetch_config: DNS SRV lookup failed\n"
            "scontrol: fatal: Could not establish a configuration source\n",
            "Could not establish a configuration source",
        ),
        (
            "squeue: error: If munged is up, restart with --num-threads=10\n"
            'squeue: error: Munge encode failed: Failed to access "/run/munge/sock": No such file or '
            "directory (Did you start munged?)\n"
            "slurm_load_jobs error: Protocol authentication error\n",
            (
                'Munge encode failed: Failed to access "/run/munge/sock": No such file or directory (Did you '
                "start munged?)"
            ),
        ),
        ("squeue: error: Invalid user: ghost\n", "Invalid user: ghost"),
        ("", ""),
    ],
)
def test_a_failure_is_one_line_in_slurms_own_words(stderr: str, words: str) -> None:
    assert failure_words(stderr) == words


@pytest.mark.parametrize(
    ("text", "record_end", "is_half"),
    [
        ("", "|END", False),
        ("a|END\nb|END\n", "|END", False),
        ("a|END\nb|EN", "|END", True),
        ("CLUSTER: lion\n", "|END", False),
        ("NodeName=a\n", "", False),
        ("NodeName=a\nNodeNa", "", True),
    ],
)
def test_a_torn_answer_is_distinguished_from_an_empty_one(text: str, record_end: str, is_half: bool) -> None:
    assert is_torn(text, record_end) == is_half
