"""`coach config`: the settings in force with their origins, and the errors in a file.

It reads the settings itself, so it works even if an invalid file keeps coach from starting.
"""

from __future__ import annotations

import argparse
import json
import os
from difflib import get_close_matches
from typing import Any

from coach import cli
from coach.cli.text import add_format, print_line, print_table, say
from coach.config import Settings
from coach.config.check import FileReport, files_in_force
from coach.config.explain import DEFAULT, Row, rows
from coach.config.keys import KEYS
from coach.model.errors import UserError
from coach.runs import expand_home
from coach.workflows.doctor.config_files import check_whole

LOADS_SETTINGS = False
"""This command runs without settings being loaded first."""


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help=(
            "every key, or those that begin with KEY, each with its origin: file and line, variable, default"
        ),
    )
    what.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="FILE",
        help="list every problem in FILE (default: the files in force); exit status 2 if there is one",
    )
    add_format(parser)


def run(args: argparse.Namespace, settings: Settings | None = None) -> int:
    """Exit status: 0, or 2 if a file has an error."""
    if args.check is not None:
        return _check(args.check, args.format)
    settings = settings or cli.load_settings()
    is_whole = args.explain is not None
    shown = [row for row in rows(settings) if is_whole or row.text is not None]
    if args.explain:
        shown = [row for row in shown if f"{row.key}.".startswith(f"{args.explain}.")]
        if not shown:
            raise _no_key(args.explain, {row.key for row in rows(settings)})
    if args.format == "json":
        print(json.dumps(_settings_object(settings, shown), indent=2))
    else:
        _print_rows(settings, shown, is_whole)
    return 0


def _no_key(name: str, known: set[str]) -> UserError:
    near = get_close_matches(name, sorted(known), 1)
    hint = f"did you mean {near[0]}?" if near else "`coach config --explain` lists the keys"
    return UserError(f"there is no key {name}", hint)


def _print_rows(settings: Settings, shown: list[Row], is_whole: bool) -> None:
    if is_whole:
        print_table(("KEY", "VALUE", "FROM"), [(row.key, row.text, row.source) for row in shown])
    else:
        print_table(("KEY", "VALUE"), [(row.key, row.text) for row in shown])
    if is_whole and len(shown) == 1 and shown[0].key in KEYS:
        key = KEYS[shown[0].key]
        print()
        print_line(f"{key.says} Its value: {key.takes}.")
    if settings.runs_root_text and is_whole:
        print()
        print_line(f"runs go to {settings.runs_root_text}")
    for note in settings.notes:
        say(note)


def _settings_object(settings: Settings, shown: list[Row]) -> dict[str, Any]:
    return {
        "schema": 1,
        "cluster": settings.cluster,
        "settings": [
            {
                "key": row.key,
                "value": row.value,
                "origin": None if row.origin == DEFAULT else row.origin,
                "locked": row.lock,
            }
            for row in shown
        ],
        "files": [{"path": str(file.path), "is_there": file.size is not None} for file in settings.files],
        "notes": list(settings.notes),
    }


def _check(file: str, format_: str) -> int:
    paths = [expand_home(file)] if file else files_in_force(os.environ)
    reports = [check_whole(path, os.environ) for path in paths]
    if format_ == "json":
        print(json.dumps({"schema": 1, "files": [_report_object(report) for report in reports]}, indent=2))
    else:
        for report in reports:
            _print_report(report)
        if not reports:
            print_line("There is no file of the config: all values are defaults.")
    return 2 if any(report.problems for report in reports) else 0


def _print_report(report: FileReport) -> None:
    for problem in report.problems:
        place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        print_line(f"{place}: {problem.words}")
        if problem.hint:
            print_line(f"  {problem.hint}")
    for note in report.notes:
        print_line(f"note: {note}")
    keys = f"{report.num_keys} key{'' if report.num_keys == 1 else 's'}"
    keys += f", {report.num_locks} locked" if report.num_locks else ""
    whose = {"site": "the site's file", "user": "a user's file", "remembered": "remembered answers"}[
        report.whose
    ]
    count = len(report.problems)
    result = "nothing is wrong" if not count else f"{count} problem{'' if count == 1 else 's'}"
    print_line(f"{report.path}: {result} ({whose}, {keys})")


def _report_object(report: FileReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "kind": report.whose,
        "problems": [
            {"file": item.file, "line": item.line, "message": item.words, "hint": item.hint}
            for item in report.problems
        ],
        "notes": list(report.notes),
    }
