"""`coach runs`: the runs that coach knows."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import datetime
from typing import Any

from coach.cli.text import print_table, printable
from coach.config import Settings
from coach.model.elsewhere import place
from coach.model.errors import UserError
from coach.model.reading import RunList
from coach.model.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def run(args: argparse.Namespace, settings: Settings) -> int:
    listed = _read(settings)
    if args.format == "json":
        value = {"schema": 1, "runs": [_fields(item) for item in listed.runs], "problems": listed.problems}
        print(json.dumps(value, indent=2))
        return 0
    print_table(("RUN", "RECIPE", "STATE", "BACKEND", "JOB", "CREATED", "PARENT"), [*map(_row, listed.runs)])
    for problem in listed.problems:
        print(f"coach: {printable(problem)}", file=sys.stderr)
    return 0


def _read(settings: Settings) -> RunList:
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.sources.run_list import RunListSource

    io = SystemIo(scrubbed_environment(os.environ))
    for reading in RunListSource(io, settings.runs_root).poll():
        if isinstance(reading.payload, RunList):
            return reading.payload
        raise UserError(reading.error or "the runs cannot be read")
    return RunList((), ())


def _fields(item: Run) -> dict[str, Any]:
    fix = (
        None
        if item.fix is None
        else {"rule": item.fix.rule, "title": item.fix.title, "changes": dict(item.fix.changes)}
    )
    return {
        "run_id": item.run_id,
        "run_dir": item.run_dir,
        "recipe": item.recipe or None,
        "backend": item.backend,
        "job_id": item.job_id,
        "state": item.state,
        "host": item.host,
        "is_visible": item.is_visible,
        "last_word_time_s": item.last_word_time_s,
        "created_time_s": item.created_time_s,
        "started_time_s": item.started_time_s,
        "ended_time_s": item.ended_time_s,
        "parent_run_id": item.parent_run_id,
        "fix": fix,
        "parameters": dict(item.parameters),
        "resources": dict(item.resources),
        "device": dict(item.device),
        "dataset": dict(item.dataset),
        "versions": dict(item.versions),
    }


def _row(item: Run) -> tuple[str | None, ...]:
    return (
        item.run_id,
        item.recipe or None,
        item.state if item.is_visible else place(item.host),
        item.backend,
        None if item.job_id == item.run_id else item.job_id,
        _local_time(item.created_time_s),
        item.parent_run_id,
    )


def _local_time(time_s: float | None) -> str | None:
    if time_s is None:
        return None
    try:
        return datetime.fromtimestamp(time_s).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 (the user's clock)
    except (ValueError, OverflowError, OSError):
        return None
