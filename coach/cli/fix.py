"""`coach fix RUN`: applies a finding's fix to a run's launch, tries it briefly or launches it fully, and
shows its effect.

The fixes are the same as on the screens. A fix that changes the training result always asks: `--yes` does
not cover it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coach.analysis.comparing.two_runs import Comparison, compare
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.cli.acting import is_confirmed, say
from coach.cli.compare import comparison_object, print_comparison
from coach.cli.diagnosis_text import finding_lines
from coach.cli.fix_foreign import other_fixes, show_foreign, with_advice
from coach.cli.text import print_json, print_line, print_table, printable
from coach.config import Settings, Switch
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.launching.launch import Plan, Submitted
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.engine import Engine
from coach.sources.io import SystemIo, scrubbed_environment
from coach.sources.machine.user import user_name
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.lazy_engine import rules_of
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind
from coach.workflows.launching.fix_offer import TRIAL_STEPS, Remedy, offer, remedies
from coach.workflows.launching.relaunch import ParentChoice, relaunch
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from coach.workflows.launching.start import check_ready, wait
from coach.workflows.readonly import refuse_if_readonly

if TYPE_CHECKING:
    from coach.cli.documents.judging import FixChange


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        help=(
            "a run id or a job id; for a job that coach did not launch, coach shows its script with the "
            "fix applied"
        ),
    )
    parser.add_argument(
        "rule", metavar="CODE", nargs="?", help="apply this rule's fix (default: the primary finding's)"
    )
    parser.add_argument("--list", action="store_true", help="list the fixes that can be applied, do nothing")
    parser.add_argument("--number", type=int, default=1, metavar="N", help="the Nth of the rule's fixes")
    parser.add_argument(
        "--trial",
        nargs="?",
        type=int,
        const=TRIAL_STEPS,
        metavar="STEPS",
        help=(
            "try the fix for a few steps, with a time limit of its own, before the full run (default: "
            f"{TRIAL_STEPS} steps)"
        ),
    )
    parser.add_argument(
        "--parent",
        choices=[choice.value for choice in ParentChoice],
        help="cancel an active parent run, keep it, or wait for its end",
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask, unless the fix changes the training result"
    )
    parser.add_argument("--change-learning", action="store_true", help="with --yes: do not ask then either")
    parser.add_argument("--dry-run", action="store_true", help="print the changes and the script, do nothing")
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end of the new run, and compare it with its parent"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: and completed), 1 not confirmed or not completed, 2 refused."""
    io = SystemIo(scrubbed_environment(os.environ), timeout_s=settings.slurm_timeout_s)
    checked = Checker(settings, io, Engine(rules_of(settings)), None).target(args.run)
    if withheld := why_withheld(checked.diagnosis):
        raise UserError(f"{args.run}: {withheld.because}", withheld.how)
    parent = checked.snapshot.run
    if parent is None:
        return show_foreign(checked, args.rule, args.format, settings, io)
    found = remedies(parent, checked.diagnosis.findings)
    if args.list:
        return _list(found, args.format)
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    remedy = _remedy(found, args, checked, settings)
    seen = checked.snapshot, checked.history or History()
    if args.trial is not None:
        # The target may be a log inside a run, but only the run's directory shows how long its steps take.
        seen = _read(parent.run_dir, parent.backend, settings, io)
    with _leading_on(found, remedy, args.run):
        offered = offer(parent, remedy, *seen, settings, os.environ, io, trial_steps=args.trial)
    plan = offered.plan
    _show(offered)
    if args.dry_run:
        check_ready(plan)
        for line in offered.lines:
            print_line(printable(line))
        return 0
    choice = _parent_choice(args, parent)
    if not _is_wanted(args, remedy, plan):
        say("nothing was launched")
        return 1
    submitted = relaunch(plan, parent, choice, settings, os.environ, io)
    for note in submitted.notes:
        say(note)
    state: str | None = submitted.state
    comparison: Comparison | None = None
    if args.wait:
        say(f"{submitted.run_id}: submitted as {submitted.job_id}, waiting for its end")
        try:
            state = wait(submitted, plan.backend, io, say)
        except KeyboardInterrupt:
            say(f"{submitted.run_id} goes on; `coach cancel {submitted.run_id}` ends it")
            return 130
        comparison = _compared(parent.run_dir, submitted.run_dir, plan.backend, settings, io)
    lost = offered.lost if choice is ParentChoice.CANCEL else ()
    _print_answer(submitted, state, lost, comparison, args.format)
    return 0 if not args.wait or state == "COMPLETED" else 1


def _print_answer(
    submitted: Submitted, state: str | None, lost: Sequence[str], comparison: Comparison | None, format_: str
) -> None:
    answer = {
        "run_id": submitted.run_id,
        "run_dir": submitted.run_dir,
        "job_id": submitted.job_id,
        "state": state,
    }
    if format_ == "json":
        told = None if comparison is None else comparison_object(comparison)
        print(json.dumps({"schema": 1, **answer, "lost": list(lost), "comparison": told}, indent=2))
        return
    for name, value in answer.items():
        print_line(f"{name:<8}{printable(value or '–')}")
    if comparison is not None:
        print_comparison(comparison)


def _list(found: Sequence[Remedy], format_: str) -> int:
    numbers: dict[str, int] = {}
    rows: list[FixChange] = []
    for each in found:
        numbers[each.finding.rule] = numbers.get(each.finding.rule, 0) + 1
        rows.append(
            {
                "rule": each.finding.rule,
                "number": numbers[each.finding.rule],
                "title": each.fix.title,
                "changes": dict(each.fix.changes),
                "changes_learning": each.fix.changes_learning,
            }
        )
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
                str(row["title"]),
            )
            for row in rows
        ],
        "lrll",
    )
    return 0


def _remedy(
    found: Sequence[Remedy], args: argparse.Namespace, checked: Checked, settings: Settings
) -> Remedy:
    """The requested fix. Raises UserError; if only a config file can carry it out, with the diff of that
    file."""
    try:
        return _chosen(found, args.rule, args.number, args.run)
    except UserError as error:
        raise with_advice(error, checked, args.rule, settings) from None


def _chosen(found: Sequence[Remedy], rule: str | None, number: int, name: str) -> Remedy:
    wanted = [
        each for each in found if (each.finding.rule == rule.upper() if rule else each.finding.is_primary)
    ]
    if 1 <= number <= len(wanted):
        return wanted[number - 1]
    hint = other_fixes(name, (each.finding.rule for each in found)) or f"coach check {name} says what to do"
    if wanted:
        raise UserError(f"--number {number}: {wanted[0].finding.rule} has {len(wanted)}", "--list shows them")
    whose = rule.upper() if rule else "the primary finding"
    raise UserError(f"{name}: {whose} has no fix that changes the launch", hint)


@contextmanager
def _leading_on(found: Sequence[Remedy], remedy: Remedy, name: str) -> Iterator[None]:
    """Names the next fix of the finding if this one is refused."""
    try:
        yield
    except UserError as error:
        raise with_another(error, found, remedy, name) from None


def with_another(error: UserError, found: Sequence[Remedy], remedy: Remedy, name: str) -> UserError:
    """The refusal of one fix, with the command of the next fix of the same finding."""
    rule = remedy.finding.rule
    own = [each for each in found if each.finding.rule == rule]
    place = next((place for place, each in enumerate(own) if each is remedy), 0)
    order = [*range(place + 1, len(own)), *range(place)]
    if not order:
        return error
    another = f"`coach fix {name} {rule} --number {order[0] + 1}`: {own[order[0]].fix.title}"
    return UserError(error.message, "; ".join(filter(None, (error.hint, f"another fix is {another}"))))


def _show(offered: RelaunchOffer) -> None:
    """Write the offer to stderr, like all output before a question."""
    for line in finding_lines(replace(offered.finding, fixes=(offered.fix,)), ""):
        say(line)
    for name, old, new in offered.changes:
        say(f"  {name}: {old} → {new}")
    for copy in offered.plan.copies:
        say(
            f"  {copy.source} stays unchanged: the run gets a copy with new values of "
            f"{', '.join(copy.changes)}"
        )
    learning = "changes the training result: it will differ from the parent's"
    say(f"  this {learning if offered.fix.changes_learning else 'does not change the training result'}")
    for line in offered.plan.warnings:
        say(f"warning: {line}")
    if offered.lost:
        say(f"  if {offered.parent.run_id} is cancelled now:")
    for line in offered.lost:
        say(f"    {line}")


def _parent_choice(args: argparse.Namespace, parent: Run) -> ParentChoice:
    if args.parent is not None:
        return ParentChoice(args.parent)
    if args.trial is None and not is_final(parent.state):
        raise UserError(
            f"{parent.run_id} is {parent.state or 'not known to have ended'}: cancel it, keep it, or wait "
            "for its end?",
            "--parent cancel, --parent keep or --parent wait",
        )
    return ParentChoice.KEEP


def _is_wanted(args: argparse.Namespace, remedy: Remedy, plan: Plan) -> bool:
    is_covered = args.yes and (args.change_learning or not remedy.fix.changes_learning)
    if args.yes and not is_covered and not sys.stdin.isatty():
        raise UserError(
            "this fix changes the training result: --yes does not cover that", "--change-learning does"
        )
    flags = "--yes --change-learning" if remedy.fix.changes_learning else "--yes"
    return is_confirmed(f"launch {plan.run_id}", is_covered, flags=flags)


def _compared(before: str, after: str, backend: str, settings: Settings, io: SystemIo) -> Comparison:
    old, new = (_read(run_dir, backend, settings, io) for run_dir in (before, after))
    return compare(*old, *new)


def _read(run_dir: str, backend: str, settings: Settings, io: SystemIo) -> tuple[TargetSnapshot, History]:
    path = Path(run_dir)
    target = Target(path.name, TargetKind.RUN, path)
    return read_once(target, settings, io, backend, user_name(), ())
