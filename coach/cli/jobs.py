"""`coach jobs`: the queue, and with `--why` the reason why each pending job waits, in plain words."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.query.language import Field, Query, in_order
from coach.analysis.queueing.arrays import fold, fold_rows, unfold
from coach.cli.cluster import add_clusters, add_options, hidden_as_json, look, print_hidden
from coach.cli.listing import Listing, add_listing, print_listing, read_listing
from coach.cli.listing import unmistakable as unmistakable
from coach.cli.place import print_place
from coach.cli.reading_io import Io, slurm_io
from coach.cli.text import format_count, format_time, print_bad_rows, print_json, print_table, say
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job, job_as_dict
from coach.model.training.other_machine import last_word, rough_age
from coach.model.training.other_machine import place as place_of
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.sources.slurm.node_sets import expand_nodes
from coach.workflows.jobs.place_in_queue import PlaceInQueue, read_place
from coach.workflows.judging.why_pending import Explain, explainer

COLUMNS = "id,user,state,reason,part,node,cpus,gpu,used,left,start,name"


def configure(parser: argparse.ArgumentParser) -> None:
    add_listing(parser, job_vocabulary(None, None, expand_nodes))
    parser.add_argument(
        "--all", action="store_true", help="all users' jobs in all partitions; a user: filter implies it"
    )
    parser.add_argument(
        "--why", action="store_true", help="say what each pending job waits for, and what can be done"
    )
    parser.add_argument("--unfold", action="store_true", help="a row for each task of an array")
    add_clusters(parser)
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    user, now_s = user_name(), time.time()
    vocabulary = job_vocabulary(user, now_s, expand_nodes)
    listing = read_listing(args, vocabulary)
    if args.why and listing.columns:
        raise UserError("--why and --columns: --why has columns of its own")
    is_all = args.all or _names_others(listing.query, user)
    answer = look(settings, args.backend, source="jobs", is_all=is_all, clusters=args.clusters)
    own = [job for job in answer.jobs if job.user == user]
    _remember(settings, own)
    jobs = list(answer.jobs) if is_all else own
    jobs = listing.query.matching(_row_per_task(jobs) if args.unfold else jobs)
    place = _read_place(settings, user, jobs) if args.why and not args.clusters else None
    if args.format == "json":
        more = _place_as_json(place) | hidden_as_json(answer)
        _print_as_json(jobs, listing, more, answer.num_bad_rows)
        return 0
    if not args.unfold:
        jobs = _row_per_array(jobs)
    if args.why:
        _print_reasons(in_order(jobs, listing.orders), slurm_io(settings))
        if place is not None:
            print_place(place)
    else:
        _print_table(jobs, listing, vocabulary.columns(COLUMNS), now_s)
    print_hidden(answer)
    print_bad_rows(answer.num_bad_rows)
    return 0


def _row_per_task(jobs: Sequence[Job]) -> list[Job]:
    return [row for folded in fold(jobs) for row in unfold(folded)]


def _row_per_array(jobs: Sequence[Job]) -> list[Job]:
    return [row if isinstance(row, Job) else row.job for row in fold_rows(jobs)]


def _names_others(query: Query[Job], user: str) -> bool:
    """True if the query covers other users: by name, or as everybody except somebody."""
    named = (word for word in query.words if word.key == "user")
    return any(word.is_negated or not {"me", user}.issuperset(word.values) for word in named)


def _remember(settings: Settings, own: list[Job]) -> None:
    """Remember the queued jobs, so that `coach history` finds them after Slurm has forgotten them. Local runs
    have their run directories."""
    queued = [job for job in own if job.raw_job_id is not None]
    note = (
        remember_jobs(SeenJobs(settings.cache_dir), queued, queued[0].user, time.time()) if queued else None
    )
    if note is not None:
        say(note)


def _read_place(settings: Settings, user: str, jobs: list[Job]) -> PlaceInQueue | None:
    """The place in the queue; None unless an own Slurm job waits. Local runs have no queue."""
    if not any(job.state == "PENDING" and job.user == user and job.raw_job_id for job in jobs):
        return None

    return read_place(slurm_io(settings), user)


def _place_as_json(place: PlaceInQueue | None) -> dict[str, Any]:
    if place is None:
        return {}
    parts = {
        "priorities": [asdict(each) for each in place.priorities.value or ()],
        "fair_share": [asdict(each) for each in place.fair_share.value or ()],
        "limits": [asdict(each) for each in (*(place.associations.value or ()), *(place.qos.value or ()))],
        "reservations": [asdict(each) for each in place.reservations.value or ()],
        "not_told": [{"what": what, "because": why} for what, why in place.missing()],
    }
    return {"place": parts}


def _print_as_json(
    jobs: list[Job], listing: Listing[Job], more: Mapping[str, Any], num_bad_rows: int
) -> None:
    as_json = listing.as_json if listing.columns else partial(_as_json, explainer(jobs))
    print_json("jobs", map(as_json, in_order(jobs, listing.orders)), num_bad_rows, more)


def _print_table(
    jobs: list[Job], listing: Listing[Job], default_columns: Sequence[Field[Job]], now_s: float
) -> None:
    special = {
        "state": _state,
        "reason": lambda job: _reason(job, now_s),
        "node": lambda job: job.nodes or format_count(job.num_nodes),
        "start": _start,
    }
    print_listing(jobs, listing, default_columns, special)
    is_start_shown = not listing.columns or any(field.name == "start" for field in listing.columns)
    if is_start_shown and any(job.estimated_start_s is not None for job in jobs):
        print("~ Slurm's estimate; it changes with the queue", file=sys.stderr)


def _print_reasons(jobs: list[Job], io: Io) -> None:
    explain = explainer(jobs, io)
    explained = [(job, why) for job in jobs if (why := explain(job)) is not None]
    if not explained:
        print("no job is pending")
        return
    print_table(
        ("JOB", "REASON", "KIND", "WHAT IT MEANS", "WHAT TO DO"),
        [(job.job_id, why.reason, why.kind.value, why.meaning, why.advice) for job, why in explained],
    )


def _as_json(explain: Explain, job: Job) -> dict[str, Any]:
    why = explain(job)
    return {
        **job_as_dict(job),
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


def _state(job: Job) -> str:
    return job.state if job.is_visible else place_of(job.host)


def _reason(job: Job, now_s: float) -> str | None:
    if job.is_visible:
        return job.reason
    spoke_s = job.last_word_time_s
    return last_word(job.state, rough_age(now_s - spoke_s) if spoke_s is not None else None)


def _start(job: Job) -> str | None:
    return format_time(job.start_time_s, "~%m-%d %H:%M" if job.state == "PENDING" else "%m-%d %H:%M")
