"""`coach runs clean --records`: shows the size of the records and the parts to thin for the limits, and thins
them without asking; with --dry-run it only shows them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coach.analysis.jobs.thinning import ThinPlan
from coach.analysis.spelling.sizes import format_bytes
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_line, print_table, printable
from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.training.records import RunRecords, Volume
from coach.sources.machine.user import user_name
from coach.sources.runs.kept_beside import Kept, look_beside
from coach.sources.runs.record_sizes import RecordSizes
from coach.workflows.jobs.thin_records import RecordsPlan, perform, plan_records
from coach.workflows.readonly import refuse_if_readonly

if TYPE_CHECKING:
    from coach.cli.documents.keeping import KeptBeside, RecordsFields

_ALL = 2**31


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 the records fit the limits, or would; 1 thinning is not enough, or a part could not be
    thinned."""
    _check_choices(args, settings)
    io, user = slurm_io(settings), user_name()
    found = plan_records(_look(settings), settings, io, user)
    beside = look_beside(settings.runs_root, settings.cache_dir)
    is_json = args.format == "json"
    if not is_json:
        _print_plan(found)
        _print_beside(beside)
    problems: list[str] = []
    freed, after = Volume(), found.plan.now
    if not args.dry_run and found.plan.steps:
        for volume in perform(found.plan.steps, settings, problems.append):
            freed = freed + volume
        after = found.plan.now - freed
    if is_json:
        print(
            json.dumps({**_fields(found, args.dry_run, freed, problems), **_fields_beside(beside)}, indent=2)
        )
    is_enough = found.plan.is_enough if args.dry_run else found.plan.limits.is_met_by(after)
    _print_outcome(Volume() if is_json else freed, problems, is_enough)
    return 0 if is_enough and not problems else 1


def _check_choices(args: argparse.Namespace, settings: Settings) -> None:
    if not args.records:
        raise UserError("--dry-run needs --records", "without it `coach runs clean` lists first, and asks")
    if args.runs or args.older_than or args.state or args.keep or args.checkpoints_only:
        raise UserError("--records thins the records of all runs", "leave out the other options")
    if not args.dry_run:
        refuse_if_readonly(settings, "thins no records", Switch.CLEAN)


def _print_outcome(freed: Volume, problems: list[str], is_enough: bool) -> None:
    if freed.size_bytes or freed.num_files:
        print(f"coach: freed {format_bytes(freed.size_bytes)}, {freed.num_files} files", file=sys.stderr)
    for problem in problems:
        print(f"coach: not thinned: {printable(problem)}", file=sys.stderr)
    if not is_enough:
        print(
            "coach: still over the limit: `coach runs clean --older-than 30d` removes whole runs",
            file=sys.stderr,
        )


def _look(settings: Settings) -> tuple[RunRecords, ...]:
    sizes = RecordSizes(settings.runs_root, settings.cache_dir)
    try:
        records = sizes.look(_ALL) or ()
    except OSError as error:
        raise UserError(f"{settings.runs_root}: {error.strerror or error}") from None
    sizes.save()
    return records


def _print_plan(found: RecordsPlan) -> None:
    plan = found.plan
    if plan.steps:
        rows = [
            (
                step.run_id,
                step.part.value,
                f"{format_bytes(step.before.size_bytes)}, {_files(step.before)}",
                f"about {format_bytes(step.after.size_bytes)}, {_files(step.after)}",
            )
            for step in plan.steps
        ]
        print_table(("RUN", "RECORDS", "NOW", "THINNED"), rows, "llll")
    print_line(f"records: {_summary(plan)}")
    if plan.is_over:
        for run_id, because in found.kept.items():
            print(f"coach: kept: {printable(run_id)}: {printable(because)}", file=sys.stderr)


def _print_beside(beside: Sequence[Kept]) -> None:
    """Print coach's other stored data, to which no limit applies."""
    parts = [
        f"{each.what} {'' if each.is_whole else 'more than '}{format_bytes(each.volume.size_bytes)} in "
        f"{_files(each.volume)}"
        for each in beside
        if each.volume.num_files
    ]
    if parts:
        print_line(f"beside them, never thinned: {'; '.join(parts)}")


def _fields_beside(beside: Sequence[Kept]) -> dict[str, list[KeptBeside]]:
    return {
        "beside": [
            {
                "what": each.what,
                "size_bytes": each.volume.size_bytes,
                "num_files": each.volume.num_files,
                "is_whole": each.is_whole,
            }
            for each in beside
        ]
    }


def _summary(plan: ThinPlan) -> str:
    limits = plan.limits
    held = f"{format_bytes(plan.now.size_bytes)} of {format_bytes(limits.max_bytes)}"
    return f"{held}, {plan.now.num_files} of {limits.max_files} files"


def _files(volume: Volume) -> str:
    return f"{volume.num_files} file{'' if volume.num_files == 1 else 's'}"


def _fields(found: RecordsPlan, is_dry: bool, freed: Volume, problems: list[str]) -> RecordsFields:
    plan = found.plan
    return {
        "schema": 1,
        "is_thinned": not is_dry and len(problems) < len(plan.steps),
        "size_bytes": plan.now.size_bytes,
        "num_files": plan.now.num_files,
        "max_size_bytes": plan.limits.max_bytes,
        "max_files": plan.limits.max_files,
        "freed_bytes": freed.size_bytes,
        "freed_files": freed.num_files,
        "parts": [
            {
                "run_id": step.run_id,
                "part": step.part.value,
                "size_bytes": step.before.size_bytes,
                "num_files": step.before.num_files,
            }
            for step in plan.steps
        ],
        "kept": [{"run_id": run_id, "because": because} for run_id, because in found.kept.items()],
        "problems": problems,
    }
