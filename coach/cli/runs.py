"""`coach runs`: lists the runs that coach knows, their states and sizes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from coach.analysis.judging.no_finding import Look, look_of_past
from coach.analysis.spelling.sizes import format_bytes
from coach.analysis.teaching.withheld_findings import ANSWER_FIRST
from coach.cli import runs_clean, sentence
from coach.cli.reading_io import slurm_io
from coach.cli.text import add_format, fields_of, format_time, print_json, print_table, say
from coach.config import Settings
from coach.model.judging.verdict import PastRun
from coach.model.launching.launch import SweepPoint
from coach.model.slurm.cluster import is_final
from coach.model.training.other_machine import place
from coach.model.training.run import Run
from coach.sources.machine.user import user_name
from coach.sources.runs.run_sizes import RunSizes
from coach.sources.runs.verdicts import Verdicts
from coach.workflows.jobs.clean import SIZES_FILE
from coach.workflows.jobs.known_runs import read_known_runs


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="")
    clean = "list ended runs, ask, then remove them"
    runs_clean.configure(actions.add_parser("clean", help=clean, description=sentence(clean)))


MAX_CHECKED_SIZES = 500
"""At most this many ended runs, newest first, have their stored size verified: each takes two calls to a file
server."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status 0; `clean` has its own statuses."""
    if args.action == "clean":
        return runs_clean.run(args, settings)

    io = slurm_io(settings)
    known = read_known_runs(settings, io, user_name(), is_indexed=True)
    sizes = RunSizes(settings.cache_dir / SIZES_FILE, max_checks=MAX_CHECKED_SIZES)
    sized = [(one.run, sizes.size_of(one.run.run_dir, is_final(one.run.state))) for one in known.runs]
    sizes.save()
    if args.format == "json":
        listed = ({**_fields(item), "size_bytes": size_bytes} for item, size_bytes in sized)
        print_json("runs", listed, more={"problems": known.problems})
    else:
        headers = ("RUN", "RECIPE", "STATE", "FOUND", "BACKEND", "JOB", "SIZE", "CREATED", "PARENT OR GROUP")
        judged = {past.target: past for past in Verdicts(settings.cache_dir).read().values()}
        rows = [_row(item, size_bytes, judged.get(item.run_id)) for item, size_bytes in sized]
        print_table(headers, rows, "llllllrll")
        for problem in known.problems:
            say(problem)
    _print_doubts(known.queue_error, [one.run.run_id for one in known.runs if one.is_forgotten])
    return 0


def _print_doubts(queue_error: str | None, forgotten: list[str]) -> None:
    if queue_error is not None:
        words = "the states of unfinished runs are as last recorded"
        say(f"the queue does not answer, {words}: {queue_error}")
    if forgotten:
        names = ", ".join(forgotten[:3]) + (f" and {len(forgotten) - 3} more" if len(forgotten) > 3 else "")
        say(f"Slurm has forgotten the job, so how it ended is unknown: {names}")


_AS_RECORDED = (
    *("run_id", "run_dir", "backend", "job_id", "state", "submission", "host", "is_visible"),
    *("last_word_time_s", "created_time_s", "started_time_s", "ended_time_s", "parent_run_id"),
)
_MAPPINGS = ("parameters", "resources", "device", "dataset", "versions")


def _fields(item: Run) -> dict[str, Any]:
    fix = item.fix
    return {
        **fields_of(item, *_AS_RECORDED),
        "recipe": item.recipe or None,
        "fix": None if fix is None else {"rule": fix.rule, "title": fix.title, "changes": dict(fix.changes)},
        "sweep": None if item.sweep is None else asdict(item.sweep),
        **{name: dict(getattr(item, name)) for name in _MAPPINGS},
    }


def _found(item: Run, past: PastRun | None) -> str:
    """The cause from coach's last verdict on the run, or a word if there is no finding."""
    if item.is_open_drill:
        return ANSWER_FIRST
    look = look_of_past(past if is_final(item.state) else None)
    if look is Look.WENT_WRONG and past is not None:
        return f"{past.rule} {past.cause}"
    return look.value


def _row(item: Run, size_bytes: int | None, past: PastRun | None) -> tuple[str | None, ...]:
    return (
        item.run_id,
        item.recipe or None,
        _state(item),
        _found(item, past),
        item.backend,
        None if item.job_id == item.run_id else item.job_id,
        None if size_bytes is None else format_bytes(size_bytes),
        format_time(item.created_time_s, "%Y-%m-%d %H:%M:%S"),
        item.parent_run_id if item.sweep is None else _place_in_group(item.sweep),
    )


def _state(item: Run) -> str | None:
    if item.submission is not None:
        return item.submission.words
    return item.state if item.is_visible else place(item.host)


def _place_in_group(sweep: SweepPoint) -> str:
    return f"{sweep.group_id}: {sweep.parameter} = {sweep.value}"
