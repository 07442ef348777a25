"""`coach history`: your jobs that have ended, and how well they used what they had."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

from coach.cli.cluster import add_options
from coach.cli.text import (
    format_count,
    format_duration,
    format_time,
    print_bad_rows,
    print_json,
    print_table,
    printable,
)
from coach.config import Settings
from coach.model.accounting import PastJob
from coach.model.cluster import is_final
from coach.model.elsewhere import rough_age

_DAY_S = 86400.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=_days, default=7.0, metavar="N", help="how far to look back (default: 7 days)"
    )
    parser.add_argument(
        "--limit", type=_limit, default=100, metavar="N", help="at most N jobs (default: 100)"
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.sources.user import user_name
    from coach.workflows.backend import resolve_backend
    from coach.workflows.history import read_past_jobs

    io = SystemIo(scrubbed_environment(os.environ))
    backend = resolve_backend(args.backend or settings.launch.backend, os.environ)
    past = read_past_jobs(settings, io, user_name(), backend, past_s=args.days * _DAY_S, limit=args.limit)
    for note in past.notes:
        print(f"coach: {printable(note)}", file=sys.stderr)
    if args.format == "json":
        print_json("jobs", [_as_json(each) for each in past.jobs], past.num_bad_rows)
        return 0
    print_table(
        (
            "JOB",
            "STATE",
            "EXIT",
            "PARTITION",
            "GPUS",
            "ENDED",
            "TIME",
            "OF LIMIT",
            "CPU",
            "MEMORY",
            "GPU",
            "NAME",
        ),
        [_row(each, io.now()) for each in past.jobs],
        "llrlrlrrrrrl",
    )
    print_bad_rows(past.num_bad_rows)
    return 0


def _days(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r}: expected days between 0 and 3650")
    return value


def _limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number between 1 and 100000")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None


def _as_json(past: PastJob) -> dict[str, Any]:
    return {
        **asdict(past.job),
        "is_ended": is_final(past.job.state),
        "efficiency": asdict(past.efficiency),
        "source": past.source,
        "run_id": past.run_id,
        "last_seen_s": past.last_seen_s,
    }


def _row(past: PastJob, now_s: float) -> tuple[str | None, ...]:
    job, used = past.job, past.efficiency
    state = job.state
    if not is_final(state):
        # It left the queue unseen: how it ended nobody has said.
        age = "" if past.last_seen_s is None else f", {rough_age(now_s - past.last_seen_s)} ago"
        state = f"– (last {job.state}{age})"
    return (
        job.job_id,
        state,
        format_count(job.exit_code),
        job.partition or None,
        format_count(job.num_gpus),
        format_time(job.end_time_s),
        format_duration(job.time_used_s),
        _percent(used.time_pct),
        _percent(used.cpu_pct),
        _percent(used.memory_pct),
        _percent(used.gpu_pct),
        job.name,
    )


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}%"
