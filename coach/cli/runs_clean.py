"""`coach runs clean`: shows what would be removed, asks, and removes it."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from coach.analysis.spelling.sizes import format_bytes
from coach.cli.acting import is_confirmed
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_line, print_table, say
from coach.config import Settings, Switch
from coach.sources.machine.user import user_name
from coach.workflows.jobs.clean import CleanPlan, Selection, clean, plan_clean, still_meant
from coach.workflows.readonly import refuse_if_readonly

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNIT_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="only these runs (default: all that have ended)"
    )
    parser.add_argument(
        "--older-than",
        type=_age,
        metavar="AGE",
        help="only runs that ended longer ago than this: 90m, 12h, 30d, 4w",
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="in this state, for example FAILED, or UNKNOWN (may be given many times)",
    )
    parser.add_argument("--keep", type=_count, default=0, metavar="N", help="keep the N newest runs")
    parser.add_argument("--checkpoints-only", action="store_true", help="remove checkpoints, keep the rest")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    # Both options may also stand before `clean`: a default here would then overwrite that value.
    suppressed = argparse.SUPPRESS
    parser.add_argument(
        "--format", choices=("text", "json"), default=suppressed, help="text (default) or json"
    )
    parser.add_argument("--as-root", action="store_true", default=suppressed, help=suppressed)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 removed, or nothing to remove; 1 not confirmed, or a named run stays; 2 refused."""
    selection = _selection(args)
    io, user = slurm_io(settings), user_name()
    plan = plan_clean(selection, settings, io, user)
    is_json = args.format == "json"
    if not is_json:
        _print_plan(plan, selection)
    is_agreed = args.yes and not plan.is_empty
    is_asked = not plan.is_empty and not args.yes and not is_json
    if is_asked:
        refuse_if_readonly(settings, "removes nothing", Switch.CLEAN)
        is_agreed = is_confirmed(f"remove {_summary(plan)}, {format_bytes(plan.size_bytes)}", False)
        if is_agreed:
            plan = still_meant(plan, plan_clean(selection, settings, io, user))
            _print_kept(plan)
    problems: list[str] = []
    removed_bytes = clean(plan, settings, problems.append) if is_agreed else None
    if is_json:
        print(json.dumps(_fields(plan, is_agreed, removed_bytes or 0, problems), indent=2))
    _print_outcome(removed_bytes, problems, is_asked)
    is_short_of_wish = bool(problems) or (is_asked and not is_agreed) or bool(args.runs and plan.kept)
    return 1 if is_short_of_wish else 0


def _selection(args: argparse.Namespace) -> Selection:
    return Selection(
        tuple(dict.fromkeys(args.runs)),
        args.older_than,
        frozenset(state.upper() for state in args.state),
        args.keep,
        args.checkpoints_only,
    )


def _print_outcome(removed_bytes: int | None, problems: list[str], is_asked: bool) -> None:
    """`removed_bytes` is None if nothing was removed."""
    for problem in problems:
        say(f"not removed: {problem}")
    if removed_bytes is not None:
        say(f"removed {format_bytes(removed_bytes)}")
    elif is_asked:
        say("nothing was removed")


def _print_plan(plan: CleanPlan, selection: Selection) -> None:
    if plan.removals:
        headers = ("RUN", "STATE", "SIZE", "WHAT GOES")
        what = "checkpoints" if selection.is_checkpoints_only else "everything"
        rows = [(one.run.run_id, one.run.state, _size(one.size_bytes), what) for one in plan.removals]
        print_table(headers, rows, "llrl")
    for leftover in plan.leftovers:
        print_line(f"{leftover.path}: {leftover.what}, {_size(leftover.size_bytes) or 'size unknown'}")
    _print_kept(plan)
    for problem in plan.problems:
        say(problem)
    if plan.is_empty:
        say("nothing to remove")


def _print_kept(plan: CleanPlan) -> None:
    for kept in plan.kept:
        say(f"kept: {kept.run_id}: {kept.because}")


def _summary(plan: CleanPlan) -> str:
    counts = [(len(plan.removals), "run"), (len(plan.leftovers), "leftover")]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)


def _fields(plan: CleanPlan, is_removed: bool, removed_bytes: int, problems: list[str]) -> dict[str, Any]:
    return {
        "schema": 1,
        "is_removed": is_removed,
        "removed_bytes": removed_bytes,
        "size_bytes": plan.size_bytes,
        "runs": [
            {
                "run_id": one.run.run_id,
                "run_dir": one.run.run_dir,
                "state": one.run.state,
                "size_bytes": one.size_bytes,
                "paths": [str(path) for path in one.paths],
            }
            for one in plan.removals
        ],
        "leftovers": [
            {"path": str(one.path), "what": one.what, "size_bytes": one.size_bytes} for one in plan.leftovers
        ],
        "kept": [{"run_id": one.run_id, "because": one.because} for one in plan.kept],
        "problems": [*plan.problems, *problems],
    }


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else format_bytes(size_bytes)


def _age(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected for example 90m, 12h, 30d or 4w")
    return int(match[1]) * _UNIT_S[match[2]]


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)
