"""`coach workshop`: rehearses a course day from a learner's account: does each recipe run, and do all
learners fit?"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from coach.analysis.teaching.workshop_capacity import fit
from coach.cli.acting import end_as_by_ctrl_c
from coach.cli.reading_io import slurm_io
from coach.cli.text import (
    add_format,
    fields_of,
    format_time,
    print_json,
    print_line,
    print_table,
    print_verbatim,
    say,
)
from coach.config import BACKENDS, Settings
from coach.launch.spelling import parse_time
from coach.model.teaching.rehearsal import Fit, Rehearsed, Share
from coach.render.text import clock
from coach.runs import expand_home
from coach.workflows.teaching.rehearsal import Rehearsal
from coach.workflows.teaching.workshop_plan import EXAMPLE, read_workshop_plan


def configure(parser: argparse.ArgumentParser) -> None:
    """Two verbs: try a plan, or print an example of one."""
    parser.epilog = (
        "check: exit status 0 if every recipe completed, 1 if one did not, 2 if there is no such plan; the "
        "report also says if all learners fit, which does not change the status"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="check PLAN.toml | example")
    check = verbs.add_parser("check", help="launch each recipe of the day small, one after the other")
    check.add_argument("plan", metavar="PLAN.toml", help="the recipes and learners of the day")
    check.add_argument("--backend", choices=BACKENDS, default="auto", help="where to try it (default: auto)")
    check.add_argument(
        "--max-queued",
        metavar="T",
        default="15:00",
        help="cancel a run that has waited this long in the queue, and count it as failed (default: 15:00)",
    )
    add_format(check)
    verbs.add_parser("example", help="print a plan to begin with")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 each recipe ran to its end, 1 one did not, 130 interrupted; started runs are then
    cancelled."""
    if args.verb == "example":
        print_verbatim(EXAMPLE)
        return 0
    max_queued_s = parse_time(args.max_queued, "--max-queued")
    plan = read_workshop_plan(expand_home(args.plan).absolute(), args.backend, settings)
    end_as_by_ctrl_c()
    io = slurm_io(settings)
    rehearsal = Rehearsal(plan, settings, os.environ, io, say, max_queued_s)
    tried: list[Rehearsed] = []
    try:
        for item in plan.items:
            tried.append(rehearsal.try_one(item))
    except KeyboardInterrupt:
        say(f"interrupted: {len(tried)} of {len(plan.items)} recipes were tried")
        if args.format == "text" and tried:
            _print_tried(tried)
        return 130
    day = fit(plan, tried)
    if args.format == "json":
        print_json("recipes", [_as_json(each) for each in tried], more={"fit": _fit_as_json(day)})
    else:
        _print_tried(tried)
        for line in ("", *fit_lines(day)):
            print_line(line)
    return int(not all(each.is_well for each in tried))


def _print_tried(tried: Sequence[Rehearsed]) -> None:
    headers = ("RECIPE", "STATE", "QUEUED", "STARTED", "1ST STEP", "ENDED", "SEC", "GPU-S", "FINDING")
    print_table(headers, [_cells(each) for each in tried], "llrlrlrrl")
    for each in tried:
        for line in _remarks(each):
            print_line(line)


def _cells(each: Rehearsed) -> tuple[str | None, ...]:
    return (
        each.name,
        "REFUSED" if each.run_id is None else each.state,
        _seconds(each.queued_s),
        format_time(each.started_time_s, "%H:%M:%S"),
        _seconds(each.first_step_s),
        format_time(each.ended_time_s, "%H:%M:%S"),
        _seconds(each.seconds),
        None if each.gpu_seconds is None else f"{each.gpu_seconds:.0f}",
        None if each.finding is None else each.finding.rule,
    )


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _remarks(each: Rehearsed) -> Iterable[str]:
    """The problem and its remedy, or else the finding; and the warnings of the launch's plan."""
    if each.problem is not None:
        yield f"✖ {each.name}: {each.problem}"
        if each.hint:
            yield f"    {each.hint}"
    elif each.finding is not None:
        yield f"! {each.name}: {each.finding.rule} {each.finding.name}: {each.finding.summary}"
    for warning in each.warnings:
        yield f"! {each.name}: {warning}"


def fit_lines(day: Fit) -> Iterable[str]:
    """The calculation, with a line per recipe, and its result."""
    for place in day.places:
        nodes, gpus = _count(len(place.rooms), "node"), _count(place.num_gpus, "GPU")
        yield f"{place.name}: {nodes} in service, {gpus}, as if nobody else used them"
    for share in day.shares:
        yield f"  {share.name}: {_arithmetic(day, share)}"
    available, least = clock(day.available_s), clock(day.least_s)
    most, is_exact = clock(day.most_s), day.least_s == day.most_s
    if day.fits:
        yield f"✓ {day.learners} learners fit: {'' if is_exact else 'at most '}{most} of {available}"
    elif day.fits is None:
        bounds = f"at least {least}{'' if day.most_s is None else f', at most {most}'}"
        yield f"? whether {day.learners} learners fit into {available} is not known: {bounds}"
    elif day.least_s > day.available_s:
        yield (
            f"✖ {day.learners} learners do not fit: {'' if is_exact else 'at least '}{least}, there are "
            f"{available}"
        )
    else:
        yield f"✖ {day.learners} learners do not fit: for one recipe not even a single run fits"


def _arithmetic(day: Fit, share: Share) -> str:
    if share.gpus_per_run is None or share.cpus_per_run is None or share.at_once is None:
        return share.because
    holds = _count(share.gpus_per_run, "GPU") if share.gpus_per_run else _count(share.cpus_per_run, "CPU")
    if share.rounds is None:
        return f"{holds} a run: there is no room for even one"
    first = (
        f"{_count(day.learners, 'run')} of {holds}, {share.at_once} at once: {_count(share.rounds, 'round')}"
    )
    if share.each_s is None:
        return f"{first}; {share.because}"
    each, total = clock(share.each_s), clock(share.total_s)
    return f"{first} of {each} = {total} ({share.because})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_FIELDS = (
    *("name", "run_id", "run_dir", "job_id", "state", "queued_s", "started_time_s", "first_step_s"),
    *("ended_time_s", "seconds", "gpu_seconds", "problem", "hint", "warnings"),
)


def _as_json(each: Rehearsed) -> dict[str, Any]:
    finding = None if each.finding is None else fields_of(each.finding, "rule", "name", "cause")
    return {**fields_of(each, *_FIELDS), "finding": finding}


def _fit_as_json(day: Fit) -> dict[str, Any]:
    return {
        **fields_of(day, "learners", "fits", "least_s", "most_s", "available_s"),
        "places": [
            {"name": place.name, "num_nodes": len(place.rooms), "num_gpus": place.num_gpus}
            for place in day.places
        ],
        "recipes": [{**asdict(share), "total_s": share.total_s} for share in day.shares],
    }
