"""`coach launch`: turns a recipe into a run, with all checks before it and one answer at the end. It reports
while it waits for the controller."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coach.cli.launch_own import launch_as_is, with_program
from coach.cli.launch_request import configure as configure
from coach.cli.launch_request import request_of
from coach.cli.reading_io import Io, slurm_io, telling_of_wait
from coach.cli.text import print_line, print_verbatim, say
from coach.config import Settings, Switch
from coach.late import late
from coach.model.errors import UserError
from coach.model.launching.launch import (
    LaunchRequest,
    Plan,
    Submitted,
)
from coach.workflows.launching.refusals import remember_answers
from coach.workflows.launching.start import check_ready, wait
from coach.workflows.launching.sweep import prepare, read_group, submit
from coach.workflows.readonly import refuse_if_readonly

if TYPE_CHECKING:
    from coach.cli import compare
    from coach.launch import recipe
    from coach.workflows.judging import check
    from coach.workflows.launching import dry_run, still_going
else:
    compare = late("coach.cli", "compare")
    recipe = late("coach.launch", "recipe")
    check = late("coach.workflows.judging", "check")
    dry_run, still_going = late("coach.workflows.launching", "dry_run", "still_going")

HAS_WORDS_BEHIND = True


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: COMPLETED), 1 ended otherwise, 2 refused."""
    if args.resume_with is not None and args.until_done is None:
        raise UserError("--resume-with goes with --until-done", "give both options, or neither")
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    request = with_program(request_of(args), args, settings)
    return launch_as_is(request, args, settings) if args.as_is else launch(request, args, settings)


def meant(args: argparse.Namespace, unknown: Sequence[str]) -> str | None:
    """The hint for `--lr 0.1` or `lr=0.1` behind a recipe: its parameters go through --set."""
    try:
        known = recipe.get_recipe(args.what or "").parameters
    except UserError:
        return None
    if not unknown[0].startswith("-") and "=" not in unknown[0]:
        return "a launch takes one recipe"
    pairs, words = [], list(unknown)
    while words:
        key, equals, value = words.pop(0).partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        name = key.lstrip("-").replace("-", "_")
        pairs.append(f"--set {shlex.quote(name + '=' + (value or 'VALUE'))}")
    first = pairs[0].removeprefix("--set ").partition("=")[0]
    near = "" if first in known else f"; `coach recipes {args.what}` lists its parameters"
    return f"a parameter of a recipe goes through --set: `{' '.join(pairs)}`{near}"


Answer = Callable[[str, str], int]
"""Prints what was launched, from the first run's id and the backend; returns the exit status."""


def launch(
    request: LaunchRequest, args: argparse.Namespace, settings: Settings, answer: Answer | None = None
) -> int:
    """Turn a request into a run, as `--dry-run`, `--wait` and `--format` ask. `answer` replaces what a launch
    prints."""
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH)
    env = os.environ
    io = slurm_io(settings)
    plan = prepare(request, settings, env, io, time.time())
    for line in plan.notes:
        say(line)
    for line in plan.warnings:
        say(f"warning: {line}")
    if args.dry_run:
        for each in (plan, *plan.others):
            check_ready(each)
            print_verbatim(each.script)
        if words := dry_run.answer_words(plan, io):
            say(words)
        return 0
    going = still_going.same_launch(plan, settings, io)
    if going is not None:
        say(f"note: {going.run_id} has the same recipe and values, and is {going.state} by its record")
    waiting = telling_of_wait(say, "waiting for the controller")
    with waiting if plan.backend == "slurm" else contextlib.nullcontext():
        submitted = submit(plan, settings, env, io)
    notes = [line for each in submitted for line in each.notes]
    for line in (*notes, *remember_answers(plan, settings)[1]):
        say(line)
    states: list[str | None] = [each.state for each in submitted]
    if args.wait:
        waited = _wait(plan, submitted, io)
        if waited is None:
            return 130
        states = waited
    if answer is not None:
        return answer(plan.run_id, plan.backend)
    return _finish(plan, submitted, states, args, settings, io)


def _finish(
    plan: Plan,
    submitted: Sequence[Submitted],
    states: Sequence[str | None],
    args: argparse.Namespace,
    settings: Settings,
    io: Io,
) -> int:
    """Print what was launched; the exit status of the launch."""
    _answer(plan, submitted, states, args.format)
    return _status_of_end(plan, submitted, states, settings, io, args.format) if args.wait else 0


def refuse_second(args: argparse.Namespace, settings: Settings, io: Io) -> None:
    """Refuse a drill whose newest run waits or runs without an answer, unless --again or --dry-run is given.
    Raises UserError."""
    going = None if args.again or args.dry_run else still_going.going_drill(args.drill, settings, io)
    if going is not None:
        raise UserError(
            f"{args.drill}: {going.run_id} is {going.state} by its record, and has no answer yet",
            f"`coach drill {args.drill} --answer CAUSE` answers it; --again launches another one",
        )


def _status_of_end(
    plan: Plan,
    submitted: Sequence[Submitted],
    states: Sequence[str | None],
    settings: Settings,
    io: Io,
    format_: str,
) -> int:
    """0 if the run COMPLETED, or each run of a group gave a result. Otherwise the reason is printed."""
    if plan.request.sweep_point is not None:
        return 0 if _show_group(plan, settings, io, format_) else 1
    if list(states) == ["COMPLETED"]:
        return 0
    _say_why(plan, submitted[0], settings, io)
    return 1


def _wait(plan: Plan, submitted: Sequence[Submitted], io: Io) -> list[str | None] | None:
    """The final states of the runs; None if the user stopped waiting."""
    states = []
    for each in submitted:
        say(f"{each.run_id}: submitted as {each.job_id}, waiting for its end")
        try:
            states.append(wait(each, plan.backend, io, say))
        except KeyboardInterrupt:
            say(f"{each.run_id} goes on; `coach cancel {each.run_id}` ends it")
            return None
    return states


def _say_why(plan: Plan, submitted: Submitted, settings: Settings, io: Io) -> None:
    """Print the cause of a bad end in one line, if the run shows it."""
    with contextlib.suppress(UserError):
        found = check.Checker(settings, io, plan.backend).target(submitted.run_id).diagnosis.findings
        for finding in (finding for finding in found if finding.is_primary):
            say(f"{finding.rule} {finding.name}: {finding.summary}")
            say(f"`coach check {submitted.run_id}` shows the evidence")


def _show_group(plan: Plan, settings: Settings, io: Io, format_: str) -> bool:
    """Print the table of an ended group. True if each run gave a result: a measurement, or that memory is
    insufficient."""
    group_id = plan.request.sweep_point.group_id if plan.request.sweep_point else plan.run_id
    group = read_group(group_id, settings, io, plan.backend)
    if format_ != "json":
        compare.print_group(group)
    return all(point.is_result for point in group.points)


def _answer(plan: Plan, submitted: Sequence[Submitted], states: Sequence[str | None], format_: str) -> None:
    point = plan.request.sweep_point
    print_launched(submitted, states, format_, {"group_id": point.group_id} if point is not None else {})


def print_launched(
    submitted: Sequence[Submitted],
    states: Sequence[str | None],
    format_: str = "text",
    group: Mapping[str, str] | None = None,
) -> None:
    """Print `run_id run_dir job_id state` of each run, and the `group_id` if they are one group."""
    group = group or {}
    listed: list[dict[str, Any]] = [
        {"run_id": each.run_id, "run_dir": each.run_dir, "job_id": each.job_id, "state": state}
        for each, state in zip(submitted, states, strict=True)
    ]
    if format_ == "json":
        print(json.dumps({"schema": 1, **listed[0], **group, "runs": listed}, indent=2))
        return
    for name, value in group.items():
        print_line(f"{name:<8} {value}")
    for fields in listed:
        for name, value in fields.items():
            print_line(f"{name:<8}{value or '–'}")
    if group:
        say(f"the whole group as a table: coach compare {group['group_id']}")
