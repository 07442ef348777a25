"""`coach fix RUN`: applies a finding's fix to a run's launch, tries it briefly or launches it fully, and
shows its effect.

The fixes are the same as on the screens. A fix that changes the training result always asks: `--yes` does
not cover it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from coach.analysis.comparing.two_runs import Comparison
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.cli.acting import is_confirmed
from coach.cli.fix_answer import print_answer, show_offer
from coach.cli.fix_choice import fix_row, leading_on, list_fixes, list_seen, wanted_fixes
from coach.cli.fix_foreign import show_foreign
from coach.cli.reading_io import Io, slurm_io
from coach.cli.text import add_format, print_line, say
from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.machine.user import user_name
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.comparing import compare_targets
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind
from coach.workflows.launching.fix_of_group import first_with_fix
from coach.workflows.launching.fix_offer import TRIAL_STEPS, Remedy, offer, remedies
from coach.workflows.launching.possible_fixes import Numbered, judged, numbered
from coach.workflows.launching.relaunch import ParentChoice, commands_of, relaunch
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from coach.workflows.launching.start import check_ready, wait
from coach.workflows.readonly import refuse_if_readonly


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
    parser.add_argument(
        "--number",
        type=int,
        metavar="N",
        help="the Nth of the rule's fixes (default: the first that can be carried out)",
    )
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
    add_format(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: and completed), 1 not confirmed or not completed, 2 refused."""
    io = slurm_io(settings)
    checked, name = _named(args, settings, io)
    parent = checked.snapshot.run
    if parent is None:
        return show_foreign(checked, args.rule, args.format, settings, io)
    if not parent.is_mine:
        return list_seen(parent.why_not_mine, checked.diagnosis.findings, args)
    found = numbered(remedies(parent, checked.diagnosis.findings))
    if args.list:
        return _list(found, parent, settings, io, args.format)
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    remedy = _remedy(found, args, checked, settings, io, name)
    seen = checked.snapshot, checked.history
    if args.trial is not None:
        # The target may be a log inside a run, but only the run's directory shows how long its steps take.
        seen = read_once(_run_at(parent.run_dir), settings, io, parent.backend, user_name(), ())
    with leading_on(found, remedy, name):
        offered = offer(parent, remedy, *seen, settings, os.environ, io, trial_steps=args.trial)
    plan = offered.plan
    show_offer(offered)
    if args.dry_run:
        return _show_dry(offered)
    choice = _parent_choice(args, parent)
    commands = offered.commands.get(choice.value)
    # If they are not known, this raises the reason.
    commands = commands or commands_of(plan, parent, choice, settings, os.environ, io)
    if not _is_wanted(args, remedy, commands):
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
        both = _run_at(parent.run_dir), _run_at(submitted.run_dir)
        comparison = compare_targets(*both, settings, io, plan.backend)
    lost = offered.lost if choice is ParentChoice.CANCEL else ()
    print_answer(submitted, state, lost, comparison, args.format)
    return 0 if not args.wait or state == "COMPLETED" else 1


def _named(args: argparse.Namespace, settings: Settings, io: Io) -> tuple[Checked, str]:
    """The run to fix, and its name: of a group its first run with a fix. Raises UserError."""
    checked, name = first_with_fix(args.run, args.rule, Checker(settings, io), settings, io)
    if withheld := why_withheld(checked.diagnosis):
        raise UserError(f"{name}: {withheld.because}", withheld.how)
    if name != args.run:
        say(f"{args.run}: the first run with a fix is {name}")
    return checked, name


def _list(found: Sequence[Numbered], parent: Run, settings: Settings, io: Io, format_: str) -> int:
    """List the fixes; read-only, without the checks of a launch, which may start an interpreter."""
    rows = found if settings.is_readonly else _judged(found, parent, settings, io)
    return list_fixes(
        [fix_row(row.remedy.finding, row.remedy.fix, row.number, row.why_not) for row in rows], format_
    )


def _show_dry(offered: RelaunchOffer) -> int:
    check_ready(offered.plan)
    for line in offered.lines:
        print_line(line)
    return 0


def _judged(found: Sequence[Numbered], parent: Run, settings: Settings, io: Io) -> Sequence[Numbered]:
    """The fixes, those that can be carried out first; as they are, with a note, if Slurm cannot be asked."""
    try:
        return judged(found, parent, settings, os.environ, io)
    except UserError as error:
        say(f"it is not known which fixes can be carried out: {error.message}")
        return found


def _remedy(
    found: Sequence[Numbered],
    args: argparse.Namespace,
    checked: Checked,
    settings: Settings,
    io: Io,
    name: str,
) -> Remedy:
    """The requested fix, by default the first that can be carried out. Raises UserError."""
    wanted = wanted_fixes(found, args.rule, args.number, name, checked.diagnosis)
    parent = checked.snapshot.run
    if len(wanted) > 1 and parent is not None:
        wanted = _judged(wanted, parent, settings, io)
    return wanted[0].remedy


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


def _is_wanted(args: argparse.Namespace, remedy: Remedy, commands: Sequence[str]) -> bool:
    is_covered = args.yes and (args.change_learning or not remedy.fix.changes_learning)
    if args.yes and not is_covered and not sys.stdin.isatty():
        raise UserError(
            "this fix changes the training result: --yes does not cover that", "--change-learning does"
        )
    flags = "--yes --change-learning" if remedy.fix.changes_learning else "--yes"
    return is_confirmed(" && ".join(commands), is_covered, flags=flags)


def _run_at(run_dir: str) -> Target:
    path = Path(run_dir)
    return Target(path.name, TargetKind.RUN, path)
