"""`coach history`: your ended jobs, and how well each used its resources."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from coach.analysis.query.job_fields import past_job_vocabulary
from coach.analysis.query.language import in_order
from coach.cli.cluster import add_options, backend_of
from coach.cli.listing import add_listing, print_listing, read_listing
from coach.cli.listing import unmistakable as unmistakable
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_bad_rows, print_json, say
from coach.config import Settings
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import is_final, job_as_dict
from coach.model.training.other_machine import rough_age
from coach.sources.machine.user import user_name
from coach.sources.slurm.node_sets import expand_nodes
from coach.workflows.jobs.ended_jobs import read_past_jobs

_DAY_S = 86400.0
COLUMNS = "id,state,exit,part,gpu,ended,used,use_time,use_cpu,use_mem,use_gpu,name"


def configure(parser: argparse.ArgumentParser) -> None:
    add_listing(parser, past_job_vocabulary(None, expand_nodes))
    parser.add_argument(
        "--days", type=_days, default=7.0, metavar="N", help="how far to look back (default: 7 days)"
    )
    parser.add_argument(
        "--limit", type=_limit, default=100, metavar="N", help="look at the newest N jobs (default: 100)"
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    user = user_name()
    vocabulary = past_job_vocabulary(user, expand_nodes)
    listing = read_listing(args, vocabulary)
    io = slurm_io(settings)
    backend = backend_of(args.backend, settings)
    past = read_past_jobs(settings, io, user, backend, past_s=args.days * _DAY_S, limit=args.limit)
    for note in past.notes:
        say(note)
    jobs = listing.query.matching(past.jobs)
    if args.format == "json":
        as_json = listing.as_json if listing.columns else _as_json
        print_json("jobs", [as_json(each) for each in in_order(jobs, listing.orders)], past.num_bad_rows)
        return 0
    now_s = io.now()
    print_listing(jobs, listing, vocabulary.columns(COLUMNS), {"state": lambda each: _state(each, now_s)})
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
        **job_as_dict(past.job),
        "is_ended": is_final(past.job.state),
        "efficiency": asdict(past.efficiency),
        "source": past.source,
        "run_id": past.run_id,
        "last_seen_s": past.last_seen_s,
    }


def _state(past: PastJob, now_s: float) -> str:
    state = past.job.state
    if is_final(state):
        return state
    # coach did not see it leave the queue, so its final state is unknown.
    age = "" if past.last_seen_s is None else f", {rough_age(now_s - past.last_seen_s)} ago"
    return f"– (last {state}{age})"
