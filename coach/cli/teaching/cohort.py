"""`coach cohort`: the state of everybody who shares in a directory: who waits too long, and who has
shared nothing."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coach.analysis.teaching.cohort_standing import (
    LONG_WAIT_S,
    finding_words,
    solved_words,
    state_words,
    verdict_words,
    waiting_long,
)
from coach.cli.text import print_json, print_line, print_table, printable
from coach.config import Settings
from coach.model.teaching.cohort import Cohort, Person, Summary
from coach.workflows.teaching.cohort import read_cohort

if TYPE_CHECKING:
    from coach.cli.documents.launching import PersonObject


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="the directory where their runs share summaries (default: launch.share of the config)",
    )
    parser.add_argument(
        "--roster",
        type=Path,
        metavar="FILE",
        help="a file of user names, one per line, to list also people who have shared nothing (default: "
        "cohort.roster)",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="a Unix group, to list also members who have shared nothing (default: cohort.group)",
    )
    parser.add_argument(
        "--long-wait",
        type=_minutes,
        default=LONG_WAIT_S,
        metavar="MINUTES",
        help=f"name runs that have been pending for longer than this (default: {LONG_WAIT_S / 60:g})",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of minutes")
    return value * 60


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status 0, even if somebody has trouble: the command only reports."""
    cohort = read_cohort(settings, args.directory, args.roster, args.group)
    now_s = time.time()
    if args.format == "json":
        late = {user for user, _ in waiting_long(cohort, now_s, args.long_wait)}
        people = [_as_json(person, person.user in late, now_s) for person in cohort.people]
        more = {"bad_files": list(cohort.bad_files), "num_left_out": cohort.num_left_out}
        print_json("people", people, more=more)
        return 0
    _print(cohort, now_s, args.long_wait)
    return 0


def _print(cohort: Cohort, now_s: float, long_s: float) -> None:
    rows: list[tuple[str | None, ...]] = []
    for person in cohort.people:
        rows += [_row(person, each, now_s) for each in person.runs] or [
            (person.user, "nothing yet", *[""] * 4)
        ]
    print_table(("USER", "RECIPE OR DRILL", "STATE", "SAMPLES/S", "FINDING", "SOLVED"), rows, "lllrll")
    for words in verdict_words(cohort, now_s, long_s):
        print_line(printable(words))


def _row(person: Person, summary: Summary, now_s: float) -> tuple[str | None, ...]:
    severity = "" if summary.severity is None else f"{summary.severity.word} "
    return (
        person.user,
        summary.thing,
        state_words(summary, now_s),
        None if summary.samples_per_s is None else _rate(summary.samples_per_s),
        severity + finding_words(summary),
        solved_words(summary),
    )


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:.0f}" if samples_per_s >= 1000 else f"{samples_per_s:.4g}"


def _as_json(person: Person, is_late: bool, now_s: float) -> PersonObject:
    return {
        "user": person.user,
        "uid": person.uid,
        "is_expected": person.is_expected,
        "is_pending_long": is_late,
        "runs": [
            {
                "run_id": each.run_id,
                "recipe": None if each.is_drill else each.thing,
                "drill": each.thing if each.is_drill else None,
                "state": each.state,
                "samples_per_s": each.samples_per_s,
                "is_judged": each.is_judged,
                "rule": each.code,
                "severity": None if each.severity is None else each.severity.word,
                "is_solved": each.is_solved,
                "pending_s": each.waiting_s(now_s),
                "silent_s": each.silent_s(now_s),
                "created_time_s": each.created_time_s,
                "started_time_s": each.started_time_s,
                "ended_time_s": each.ended_time_s,
                "updated_time_s": each.updated_time_s,
            }
            for each in person.runs
        ],
    }
