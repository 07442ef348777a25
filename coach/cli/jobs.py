"""`coach jobs`: the queue."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from coach.cli.cluster import add_options, look
from coach.cli.text import format_count, format_duration, print_bad_rows, print_json, print_table
from coach.config import Settings
from coach.model.cluster import Job
from coach.model.elsewhere import last_word, place, rough_age


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="everybody's jobs in all partitions")
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from coach.sources.user import user_name

    answer = look(settings, args.backend, source="jobs", is_all=args.all)
    user = user_name()
    jobs = [job for job in answer.jobs if args.all or job.user == user]
    if args.format == "json":
        print_json("jobs", [asdict(job) for job in jobs], answer.num_bad_rows)
        return 0
    print_table(
        ("JOB", "USER", "STATE", "REASON", "PARTITION", "NODES", "CPUS", "GPUS", "TIME", "LEFT", "NAME"),
        [_row(job, time.time()) for job in jobs],
        "llllllrrrrl",
    )
    print_bad_rows(answer.num_bad_rows)
    return 0


def _row(job: Job, now_s: float) -> tuple[str | None, ...]:
    state, reason = job.state, job.reason
    if not job.is_visible:
        spoke_s = job.last_word_time_s
        since = rough_age(now_s - spoke_s) if spoke_s is not None else None
        state, reason = place(job.host), last_word(job.state, since)
    return (
        job.job_id,
        job.user,
        state,
        reason,
        job.partition,
        job.nodes or format_count(job.num_nodes),
        format_count(job.num_cpus),
        format_count(job.num_gpus),
        format_duration(job.time_used_s),
        format_duration(job.time_left_s),
        job.name,
    )
