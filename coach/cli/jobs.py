"""`coach jobs`: the queue, and with `--why` what each pending job waits for, in plain words."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from coach.analysis.arrays import fold, unfold
from coach.analysis.pending import explain_job
from coach.cli.cluster import add_clusters, add_options, look
from coach.cli.place import print_place
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
from coach.model.cluster import Job
from coach.model.elsewhere import last_word, rough_age
from coach.model.elsewhere import place as place_of

if TYPE_CHECKING:
    from coach.workflows.place_in_queue import PlaceInQueue


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="everybody's jobs in all partitions")
    parser.add_argument(
        "--why", action="store_true", help="say what each pending job waits for, and what can be done"
    )
    parser.add_argument("--unfold", action="store_true", help="a row for each task of an array")
    add_clusters(parser)
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from coach.sources.user import user_name

    answer = look(settings, args.backend, source="jobs", is_all=args.all, clusters=args.clusters)
    user = user_name()
    jobs = [job for job in answer.jobs if args.all or job.user == user]
    _remember(settings, [job for job in jobs if job.user == user])
    if args.unfold:
        jobs = [row for folded in fold(jobs) for row in unfold(folded)]
    place = _read_place(user, jobs) if args.why and not args.clusters else None
    if args.format == "json":
        more = {} if place is None else {"place": _place_as_json(place)}
        print_json("jobs", [_as_json(job) for job in jobs], answer.num_bad_rows, more)
        return 0
    if not args.unfold:
        jobs = [folded.job for folded in fold(jobs)]
    if args.why:
        _print_reasons(jobs)
        if place is not None:
            print_place(place)
    else:
        print_table(
            (
                "JOB",
                "USER",
                "STATE",
                "REASON",
                "PARTITION",
                "NODES",
                "CPUS",
                "GPUS",
                "TIME",
                "LEFT",
                "START",
                "NAME",
            ),
            [_row(job, time.time()) for job in jobs],
            "llllllrrrrll",
        )
        if any(job.estimated_start_s is not None for job in jobs):
            print("~ Slurm's estimate; it changes with the queue", file=sys.stderr)
    print_bad_rows(answer.num_bad_rows)
    return 0


def _remember(settings: Settings, own: list[Job]) -> None:
    """What is in the queue now is found by `coach history` when Slurm has forgotten it. Local runs have their directories."""
    from coach.sources.seen_jobs import SeenJobs
    from coach.workflows.history import remember_jobs

    queued = [job for job in own if job.raw_job_id is not None]
    note = (
        remember_jobs(SeenJobs(settings.cache_dir), queued, queued[0].user, time.time()) if queued else None
    )
    if note is not None:
        print(f"coach: {printable(note)}", file=sys.stderr)


def _read_place(user: str, jobs: list[Job]) -> PlaceInQueue | None:
    """Asked only about a job of Slurm's that waits; local runs have no queue."""
    if not any(job.state == "PENDING" and job.user == user and job.raw_job_id for job in jobs):
        return None
    from coach.sources.io import SystemIo, scrubbed_environment
    from coach.workflows.place_in_queue import read_place

    return read_place(SystemIo(scrubbed_environment(os.environ)), user)


def _place_as_json(place: PlaceInQueue) -> dict[str, Any]:
    return {
        "priorities": [asdict(each) for each in place.priorities.value or ()],
        "fair_share": [asdict(each) for each in place.fair_share.value or ()],
        "limits": [asdict(each) for each in (*(place.associations.value or ()), *(place.qos.value or ()))],
        "reservations": [asdict(each) for each in place.reservations.value or ()],
        "not_told": [{"what": what, "because": why} for what, why in place.missing()],
    }


def _print_reasons(jobs: list[Job]) -> None:
    explained = [(job, why) for job in jobs if (why := explain_job(job)) is not None]
    if not explained:
        print("no job is pending")
        return
    print_table(
        ("JOB", "REASON", "KIND", "WHAT IT MEANS", "WHAT TO DO"),
        [(job.job_id, why.reason, why.kind.value, why.meaning, why.advice) for job, why in explained],
    )


def _as_json(job: Job) -> dict[str, Any]:
    why = explain_job(job)
    return {
        **asdict(job),
        "estimated_start_s": job.estimated_start_s,
        "pending": None
        if why is None
        else {
            "kind": why.kind.value,
            "meaning": why.meaning,
            "advice": why.advice,
            "starts_by_itself": why.starts_by_itself,
            "nodes": why.nodes,
        },
    }


def _row(job: Job, now_s: float) -> tuple[str | None, ...]:
    state, reason = job.state, job.reason
    if not job.is_visible:
        spoke_s = job.last_word_time_s
        since = rough_age(now_s - spoke_s) if spoke_s is not None else None
        state, reason = place_of(job.host), last_word(job.state, since)
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
        format_time(job.estimated_start_s, "~%m-%d %H:%M"),
        job.name,
    )
