"""The top line, the banner and the keys."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from coach.model.politeness import Spending
from coach.render.text import line, line_width, plain
from coach.tui.render.cluster import node_rows, nodes_in_order, partition_lines
from coach.tui.render.header import ages_line, banner_lines, footer_line, spending_line, top_line
from tests.tui.fake_session import NOW_S, make_snapshot, status


def test_the_watermark_is_always_in_sight() -> None:
    for width in (40, 80, 120):
        row = top_line(
            ("cluster", "run x"), "slurm · tiger", "REPLAY", ages_line({"jobs": status("jobs")}, NOW_S), width
        )
        assert "REPLAY" in plain(row)
        assert line_width(row) == width


def test_no_age_is_cut_in_half() -> None:
    ages = ages_line({name: status(name) for name in ("jobs", "nodes", "runs")}, NOW_S)
    for width in range(40, 100):
        shown = plain(top_line(("cluster", "run ddp-4f2a"), "slurm", "", ages, width)).rstrip()
        assert shown.endswith((" s", "ddp-4f2a"))


def test_a_problem_shared_by_sources_is_shown_once_with_the_oldest_age() -> None:
    sources = MappingProxyType(
        {"jobs": status("jobs", 10, "no answer"), "nodes": status("nodes", 42, "no answer")}
    )
    rows = [plain(row) for row in banner_lines(make_snapshot(sources=sources), NOW_S, 120)]
    assert rows == [" ✖ no answer · jobs, nodes: data 42 s old"]


def test_a_long_trouble_keeps_its_age_in_sight() -> None:
    sources = MappingProxyType({"jobs": status("jobs", 42, "x" * 300)})
    rows = banner_lines(make_snapshot(sources=sources), NOW_S, 80)
    assert max(map(line_width, rows)) <= 80
    assert plain(rows[-1]).endswith("data 42 s old")


def test_one_trouble_has_a_second_line_for_its_end() -> None:
    words = "site.toml: not valid TOML: Invalid value (at line 12, column 5); the settings stay as they were"
    sources = MappingProxyType({"config": status("config", 23, words)})
    rows = [plain(row) for row in banner_lines(make_snapshot(sources=sources), NOW_S, 80)]
    assert " ".join(" ".join(rows).split()) == f"✖ {words} · config: data 23 s old"
    assert max(map(len, rows)) <= 80


def test_when_all_is_well_there_is_no_banner() -> None:
    assert banner_lines(make_snapshot(), NOW_S, 80) == []


HINTS = [
    ("open", "Enter", "open", True),
    ("cancel", "x", "cancel", True),
    ("runs", "r", "runs", True),
    ("help", "?", "keys", True),
    ("leave", "q", "quit", True),
]


@pytest.mark.parametrize("width", [20, 30, 80])
def test_help_and_quit_are_the_last_keys_to_go(width: int) -> None:
    shown = plain(footer_line(HINTS, (), width))
    assert "? keys" in shown
    assert "q quit" in shown


def test_a_note_stands_at_the_right_end() -> None:
    assert plain(footer_line(HINTS, line("no fix here"), 80)).endswith("no fix here ")


def test_nodes_that_need_a_look_come_first_with_a_sign() -> None:
    rows = node_rows(nodes_in_order(make_snapshot().nodes))
    assert list(rows.keys) == ["node3", "node1", "node2"]
    assert rows.row(0).cells[1].text == "✖ down+drain"
    assert rows.row(0).cells[6].text == "disk failure"


def test_partitions_that_do_not_fit_are_counted() -> None:
    partitions = make_snapshot().partitions
    assert len(partition_lines(partitions, {}, 200, 1)) == 1
    assert "…and 1 more" in plain(partition_lines(partitions, {}, 70, 1)[0])
    assert len(partition_lines(partitions, {}, 70, 2)) == 2


@pytest.mark.parametrize(
    ("error", "duration_s", "words"),
    [
        (None, 0.2, ""),
        (None, 9.0, "controller slow, backing off"),
        ("squeue: no answer within 12 s", 12.0, "no answer, backing off"),
    ],
)
def test_the_footer_says_why_slurm_is_asked_more_rarely_and_else_counts_nothing(
    error: str | None, duration_s: float, words: str
) -> None:
    sources = MappingProxyType({"jobs": replace(status("jobs", error=error), duration_s=duration_s)})
    shown = plain(spending_line(replace(make_snapshot(sources=sources), spending=Spending(7, 24.0)), 80))
    assert shown.removesuffix("7 RPC/min of 24").strip("▲ ·") == words


def test_the_footer_says_in_words_that_coach_waits_to_spare_slurm() -> None:
    waiting = replace(make_snapshot(sources={}), spending=Spending(36, 24.0, is_waiting=True))
    assert plain(spending_line(waiting, 80)) == ""
    old = MappingProxyType({"jobs": replace(status("jobs"), data_time_s=waiting.now_s - 31)})
    assert plain(spending_line(replace(waiting, sources=old), 80)) == "sparing Slurm"
    assert plain(spending_line(waiting, 100)) == "coach waits, to spare Slurm · 36 RPC/min of 24"
