"""`coach rules check FILE`: tests a file of wordings and thresholds before `rules.files` names it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from coach.cli.text import print_line, print_table, printable
from coach.config import Settings
from coach.workflows.judging.rule_files import Tried, read_file, try_rows

if TYPE_CHECKING:
    from coach.cli.documents.keeping import RuleRow


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="check")
    check = commands.add_parser("check", help="test each row of a file on its own example")
    check.add_argument("file", metavar="FILE", type=Path, help="a TOML of wordings and thresholds")
    check.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 all well, 1 a row does not work as declared. A file that cannot be read is an error."""
    wordings, thresholds = read_file(args.file)
    tried = try_rows(wordings)
    wrong = [each for each in tried if each.problems]
    if args.format == "json":
        print_line(json.dumps({"schema": 1, "rows": [_row(each) for each in tried]}))
        return 1 if wrong else 0
    if wrong:
        print_table(
            ("RULE", "KIND", "PATTERN", "PROBLEM"),
            [
                (
                    row.wording.signature.rule,
                    row.wording.signature.name,
                    row.wording.signature.pattern,
                    problem,
                )
                for row in wrong
                for problem in row.problems
            ],
        )
    changed = sum(map(len, thresholds.values()))
    print_line(
        printable(f"{args.file}: {len(tried)} wordings, {len(wrong)} of them wrong; {changed} thresholds")
    )
    return 1 if wrong else 0


def _row(tried: Tried) -> RuleRow:
    row = tried.wording.signature
    return {
        "rule": row.rule,
        "kind": row.name,
        "pattern": row.pattern,
        "literals": list(row.literals),
        "problems": list(tried.problems),
    }
