"""`coach drill`: lists the planted faults to train on, launches one, or judges a learner's answer."""

from __future__ import annotations

import argparse
import os
from typing import Any

from coach.cli.diagnosis_text import finding_text
from coach.cli.launch import launch, refuse_second
from coach.cli.launch_request import add_environment, add_share, add_ways, pairs, shared_place
from coach.cli.reading_io import Io, slurm_io
from coach.cli.teaching import drill_all
from coach.cli.text import print_json, print_line, print_table, say
from coach.config import BACKENDS, Settings
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.sources.machine.user import user_name
from coach.workflows.backend import resolve_backend
from coach.workflows.launching.prepare import look_at_site
from coach.workflows.teaching.drill_answer import Judgement, answer_drill
from coach.workflows.teaching.drills import DrillEntry, get_drill, known_drills, why_skipped

_UNTOLD = ("diagnosed", "seconds_to_finding", "fixed", "throughput_ratio")
"""Keys that have no value here: `--all` knows some of them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """A name launches or answers a drill; without a name they are listed."""
    parser.usage = (
        "coach drill [--backend B] [--format {text,json}]\n"
        "       coach drill NAME [--backend B] [--env ENV] [--python PATH] [--set KEY=VALUE] [--share DIR] "
        "[--again] [--dry-run] [--wait]\n"
        "       coach drill NAME|RUN --answer CAUSE | --give-up\n"
        "       coach drill --all [--only NAME,...] [--backend B] [--env ENV] [--python PATH] [--format "
        "{text,json}]"
    )
    parser.add_argument("drill", nargs="?", metavar="NAME", help="launch this one")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="where it trains (default: auto)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a parameter of the drill"
    )
    add_environment(parser)
    add_share(parser)
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument(
        "--answer", metavar="CAUSE", help="name the cause of its newest run, or of a run by id"
    )
    answers.add_argument("--give-up", action="store_true", help="give up: show the cause")
    answers.add_argument(
        "--all",
        action="store_true",
        help="launch every drill, one after the other, and show whether coach finds its cause",
    )
    parser.add_argument(
        "--again", action="store_true", help="launch it although its newest run still waits or runs"
    )
    parser.add_argument("--only", metavar="NAME,…", help="with --all: only these drills")
    add_ways(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: for a launch like `coach launch`; for an answer 0 if it is right, else 1; for `--all` 1 if
    a cause is not found."""
    io = slurm_io(settings)
    backend = args.backend if args.backend != "auto" else settings.launch.backend
    if args.all:
        if args.drill is not None:
            raise UserError(f"--all {args.drill}: --all takes no drill", f"--all --only {args.drill}")
        return drill_all.run(args, resolve_backend(backend, os.environ, settings), settings, io)
    if args.only is not None:
        raise UserError("--only needs --all")
    if args.drill is None:
        if args.answer is not None or args.give_up:
            raise UserError("which drill?", "coach drill NAME --answer CAUSE")
        return _list(resolve_backend(backend, os.environ), args.format, settings, io)
    if args.answer is not None or args.give_up:
        return _judge(answer_drill(args.drill, args.answer, settings, io, user_name()), args.format)
    drill = get_drill(args.drill)
    if drill.needs:
        why = why_skipped(drill, look_at_site(resolve_backend(backend, os.environ, settings), io))
        if why is not None:
            raise UserError(f"{args.drill}: {why}")
    refuse_second(args, settings, io)
    request = LaunchRequest(
        args.drill,
        args.backend,
        environment=args.environment,
        python=args.python,
        set=pairs(args.set, "--set"),
        share=shared_place(args.share),
    )
    status = launch(request, args, settings)
    if not args.dry_run:
        choices = ", ".join(drill.choices)
        say(f"what is wrong with it? coach drill {args.drill} --answer CAUSE, one of {choices}")
    return status


def _list(backend: str, format_: str, settings: Settings, io: Io) -> int:
    drills, problems = known_drills(settings, io, backend)
    if format_ == "json":
        print_json("drills", [_as_json(entry) for entry in drills])
    else:
        print_table(
            ("DRILL", "STATE", "THE COMPLAINT"),
            [(entry.recipe.name, entry.standing, entry.recipe.title) for entry in drills],
        )
    for problem in problems:
        say(problem.message)
    return 2 if problems else 0


def _as_json(entry: DrillEntry) -> dict[str, Any]:
    drill, answer = entry.recipe.drill, entry.answer
    is_told = drill is not None and answer is not None and answer.is_settled
    return {
        "name": entry.recipe.name,
        "title": entry.recipe.title,
        "planted": drill.planted if drill is not None and is_told else None,
        "run_dir": entry.run.run_dir if entry.run is not None else None,
        **dict.fromkeys(_UNTOLD),
        "skipped": entry.skipped,
        "is_solved": entry.is_solved,
        "spoiled": answer.spoiled if answer is not None else None,
    }


def _judge(judgement: Judgement, format_: str) -> int:
    is_right = judgement.answer is not None and judgement.answer.is_right
    if format_ == "json":
        fields = {
            "name": judgement.drill,
            "planted": judgement.planted,
            "run_dir": judgement.run_dir,
            **dict.fromkeys(_UNTOLD),
            "skipped": None,
            "is_solved": judgement.answer.is_solved if judgement.answer is not None else None,
            "spoiled": judgement.spoiled,
        }
        print_json("drills", [fields])
        return int(not is_right)
    for line in judgement_lines(judgement):
        print_line(line)
    return int(not is_right)


def judgement_lines(judgement: Judgement) -> list[str]:
    """The verdict, the evidence and the lesson; for a wrong answer the evidence against it."""
    answer = judgement.answer.answer if judgement.answer is not None else None
    if judgement.planted is None and not judgement.spoiled:
        again = [choice.cause for choice in judgement.choices if choice.cause != answer]
        return [
            f"{judgement.drill}: not {answer}",
            *(f"  {line}" for line in judgement.against),
            f"  try again: {', '.join(again)}; or --give-up",
        ]
    how = f"right: {answer}" if answer is not None else f"given up: it is {judgement.planted}"
    if judgement.spoiled:
        how = f"spoiled: {judgement.spoiled}" if answer is not None else f"{how}, but {judgement.spoiled}"
    lines = [f"{judgement.drill}: {how}"]
    for finding in judgement.findings:
        lines += finding_text(finding, "    " if finding.consequence_of else "  ")
    if not judgement.findings and not judgement.spoiled:
        lines.append("  its run shows no sign of the fault yet")
    if judgement.planted is None:
        way = f"coach drill {judgement.drill} launches it again"
        return [*lines, f"  {answer} is neither right nor wrong: {way}"]
    return [*lines, "", *judgement.lesson.splitlines()]
