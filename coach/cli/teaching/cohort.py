"""`coach cohort`: the state of everybody who shares in a directory: who waits too long, and who has
shared nothing."""

from __future__ import annotations

import argparse
import csv
import io
import time
from itertools import chain
from pathlib import Path
from typing import Any

from coach.analysis.teaching.cohort_standing import (
    LONG_WAIT_S,
    best_words,
    counts_of,
    finding_words,
    progress_words,
    state_words,
    verdict_words,
    waiting_long,
)
from coach.cli.text import csv_cell, fields_of, print_json, print_line, print_table
from coach.config import Settings
from coach.model.teaching.cohort import Cohort, Count, Person, Summary
from coach.workflows.teaching.cohort import read_cohort


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
    parser.add_argument(
        "--format",
        choices=("text", "json", "csv"),
        default="text",
        help="text (default), json, or csv: the best result of each person in each recipe and drill, with "
        "its samples/s",
    )


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
        counts = [_count_as_json(count) for count in counts_of(cohort)]
        more = {"bad_files": list(cohort.bad_files), "num_left_out": cohort.num_left_out, "counts": counts}
        print_json("people", people, more=more)
        return 0
    if args.format == "csv":
        _print_csv(cohort)
        return 0
    _print(cohort, now_s, args.long_wait)
    return 0


def _print(cohort: Cohort, now_s: float, long_s: float) -> None:
    rows = [_row(person, each, now_s) for person in cohort.people for each in person.runs]
    print_table(
        ("USER", "RECIPE OR DRILL", "NEWEST", "STEP", "SAMPLES/S", "FINDING", "BEST", "JOB"), rows, "llllrlll"
    )
    if counts := counts_of(cohort):
        print()
        counted = [
            (each.thing, str(each.num_finished), str(each.num_active), str(each.num_failed))
            for each in counts
        ]
        print_table(("RECIPE OR DRILL", "FINISHED", "ACTIVE", "FAILED"), counted, "lrrr")
        print()
    for words in verdict_words(cohort, now_s, long_s):
        print_line(words)


def _row(person: Person, summary: Summary, now_s: float) -> tuple[str | None, ...]:
    severity = "" if summary.severity is None else f"{summary.severity.word} "
    return (
        person.user,
        summary.thing,
        state_words(summary, now_s),
        progress_words(summary).removeprefix("step ") or None,
        None if summary.samples_per_s is None else _rate(summary.samples_per_s),
        severity + finding_words(summary),
        best_words(person.best_of(summary)) or None,
        summary.job_id,
    )


def _print_csv(cohort: Cohort) -> None:
    """A row for each person; a column for each drill, and two for each recipe: the result and the samples/s.
    Cells are empty if the person has no run of it; else they hold the best result, or the newest run's state
    if none completed, and the speed of the same run."""
    keys = [(each.is_drill, each.thing) for each in counts_of(cohort)]
    titles = [[f"drill {thing}"] if drill else [thing, f"{thing} samples/s"] for drill, thing in keys]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["user", *map(csv_cell, chain.from_iterable(titles))])
    for person in cohort.people:
        best = {(run.is_drill, run.thing): person.best_of(run) for run in person.runs}
        cells = chain.from_iterable(_cells(best.get(key), is_drill=key[0]) for key in keys)
        writer.writerow(map(csv_cell, (person.user, *cells)))
    for line in out.getvalue().splitlines():
        print_line(line)


def _cells(best: Summary | None, *, is_drill: bool) -> tuple[str, ...]:
    """The result, and for a recipe its samples/s."""
    if best is None:
        return ("",) if is_drill else ("", "")
    result = best_words(best) or f"{best.state or 'unknown'} {best.code or ''}".strip()
    rate = "" if best.samples_per_s is None else f"{best.samples_per_s:.6g}"
    return (result,) if is_drill else (result, rate)


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:.0f}" if samples_per_s >= 1000 else f"{samples_per_s:.4g}"


_FIELDS = (
    *("run_id", "job_id", "state", "samples_per_s", "step", "max_steps", "is_judged", "is_solved"),
    *("is_spoiled", "created_time_s", "started_time_s", "last_step_time_s", "ended_time_s", "updated_time_s"),
)


def _as_json(person: Person, is_late: bool, now_s: float) -> dict[str, Any]:
    return {
        **fields_of(person, "user", "uid", "is_expected"),
        "is_pending_long": is_late,
        "runs": [
            {**_run_as_json(each, now_s), "best": _run_as_json(person.best_of(each), now_s)}
            for each in person.runs
        ],
    }


def _thing_as_json(each: Summary | Count) -> dict[str, str | None]:
    return {
        "recipe": None if each.is_drill else each.thing,
        "drill": each.thing if each.is_drill else None,
    }


def _run_as_json(each: Summary, now_s: float) -> dict[str, Any]:
    return {
        **fields_of(each, *_FIELDS),
        **_thing_as_json(each),
        "rule": each.code,
        "severity": None if each.severity is None else each.severity.word,
        "pending_s": each.waiting_s(now_s),
        "silent_s": each.silent_s(now_s),
        "stalled_s": each.stalled_s(now_s),
    }


def _count_as_json(count: Count) -> dict[str, Any]:
    return {**_thing_as_json(count), **fields_of(count, "num_finished", "num_active", "num_failed")}
