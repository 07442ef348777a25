"""The fixes of a run as a list, the ones that a command names, and the next one if a fix is refused."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from coach.analysis.judging.no_finding import Look, look_of, why_no_fix
from coach.cli.fix_foreign import other_fixes
from coach.cli.text import print_json, print_table, say
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.workflows.launching.fix_offer import Remedy
from coach.workflows.launching.possible_fixes import Numbered


def fix_row(finding: Finding, fix: Fix, number: int, why_not: str | None) -> dict[str, Any]:
    """A fix of the list, with its number among the fixes of its finding."""
    return {
        "rule": finding.rule,
        "number": number,
        "title": fix.title,
        "changes": dict(fix.changes),
        "changes_learning": fix.changes_learning,
        "why_not": why_not,
    }


def list_fixes(rows: Sequence[dict[str, Any]], format_: str) -> int:
    """Print the fixes. Exit status 0."""
    if format_ == "json":
        print_json("fixes", rows)
        return 0
    if not rows:
        say("no finding has a fix that changes the launch")
        return 0
    print_table(
        ("RULE", "N", "LEARNS OTHERWISE", "FIX"),
        [
            (
                str(row["rule"]),
                str(row["number"]),
                "yes" if row["changes_learning"] else "no",
                row["title"]
                if row["why_not"] is None
                else f"{row['title']} – not possible: {row['why_not']}",
            )
            for row in rows
        ],
        "lrll",
    )
    return 0


def list_seen(why_not_mine: str | None, findings: Sequence[Finding], args: argparse.Namespace) -> int:
    """List the fixes of a run that is not the user's. Raises UserError if one shall be launched."""
    nothing = f"{why_not_mine}: coach starts nothing from this run"
    if args.yes:
        raise UserError(nothing, "without --yes its fixes are listed")
    say(nothing)
    return list_fixes(
        [
            fix_row(finding, fix, number, "not a run of yours")
            for finding in findings
            if args.rule is None or finding.rule == args.rule.upper()
            for number, fix in enumerate(finding.launch_fixes, 1)
        ],
        args.format,
    )


def wanted_fixes(
    found: Sequence[Numbered], rule: str | None, number: int | None, name: str, diagnosis: Diagnosis
) -> Sequence[Numbered]:
    """The fixes of a rule, or of the primary finding; only one if `number` names it. Raises UserError if
    there is none."""
    wanted = [each for each in found if each.remedy.finding.is_meant(rule)]
    if wanted and number is None:
        return wanted
    chosen = [each for each in wanted if each.number == number]
    if chosen:
        return chosen
    if wanted:
        raise UserError(
            f"--number {number}: {wanted[0].remedy.finding.rule} has {len(wanted)}", "--list shows them"
        )
    if not found and rule is None and look_of(diagnosis) is not Look.WENT_WRONG:
        raise UserError(f"{name}: {why_no_fix(diagnosis)}")
    hint = other_fixes(name, (each.remedy.finding.rule for each in found))
    whose = rule.upper() if rule else "the primary finding"
    raise UserError(
        f"{name}: {whose} has no fix that changes the launch", hint or f"coach check {name} says what to do"
    )


@contextmanager
def leading_on(found: Sequence[Numbered], remedy: Remedy, name: str) -> Iterator[None]:
    """Names the next fix of the finding if this one is refused."""
    try:
        yield
    except UserError as error:
        raise with_another(error, found, remedy, name) from None


def with_another(error: UserError, found: Sequence[Numbered], remedy: Remedy, name: str) -> UserError:
    """The refusal of one fix, with the command of the next fix of the same finding."""
    rule = remedy.finding.rule
    own = [each for each in found if each.remedy.finding.rule == rule]
    place = next((place for place, each in enumerate(own) if each.remedy is remedy), 0)
    order = [*own[place + 1 :], *own[:place]]
    if not order:
        return error
    another = f"`coach fix {name} {rule} --number {order[0].number}`: {order[0].remedy.fix.title}"
    hint = "; ".join(filter(None, (error.hint, f"another fix is {another}")))
    return UserError(error.message, hint, diff=error.diff)
