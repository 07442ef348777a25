"""`coach launch`: a recipe becomes a run, with every check before and one answer at the end. A wait for the
controller is told."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coach.cli.launch_own import add_own, launch_as_is, with_program
from coach.cli.text import printable
from coach.config import BACKENDS, Settings
from coach.late import late
from coach.launch.long_job import DEFAULT_SEGMENTS
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launching.launch import (
    GPU_REQUESTS,
    NOWHERE,
    LaunchRequest,
    Plan,
    Submitted,
)
from coach.node.gpm import GPM_HELP
from coach.node.share import HELP
from coach.sources.io import CommandResult, Query, SystemIo, scrubbed_environment
from coach.sources.machine.user import user_name
from coach.workflows.launching.refusals import remember_answers
from coach.workflows.launching.start import check_ready, wait
from coach.workflows.launching.sweep import prepare, read_group, submit
from coach.workflows.readonly import refuse_if_readonly

if TYPE_CHECKING:
    from coach.cli import check, compare
    from coach.rules import engine
    from coach.workflows.judging import lazy_engine
else:
    check, compare = late("coach.cli", "check", "compare")
    engine = late("coach.rules", "engine")
    lazy_engine = late("coach.workflows.judging", "lazy_engine")

HAS_WORDS_BEHIND = True
_COUNTS = (
    "nodes",
    "gpus",
    "nproc_per_node",
    "cpus_per_task",
    "cpus_per_gpu",
    "max_restarts",
    "random",
    "at_once",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options, which are the same as the keys of [launch] in config.toml."""
    add_own(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--nodes", metavar="N", help="nodes (default: 1)")
    parser.add_argument("--gpus", metavar="N", help="GPUs per node; 0: train on CPUs")
    parser.add_argument("--nproc-per-node", metavar="N", help="ranks per node (default: one per GPU)")
    parser.add_argument("--time", metavar="T", help="time limit in Slurm's spelling, for example 30:00")
    parser.add_argument("--partition", metavar="P")
    parser.add_argument("--account", metavar="A")
    parser.add_argument("--qos", metavar="Q")
    parser.add_argument("--reservation", metavar="R")
    parser.add_argument("--constraint", metavar="C")
    parser.add_argument("--exclude", metavar="NODES", help="nodes not to use, for example node[3-5]")
    parser.add_argument("--mem", metavar="M", help="memory per node, for example 16G")
    parser.add_argument(
        "--cpus-per-task", metavar="N", help="CPUs per node, for all its ranks and data workers"
    )
    parser.add_argument(
        "--cpus-per-gpu", metavar="N", help="CPUs for each GPU, where the site wants them asked for so"
    )
    parser.add_argument(
        "--max-restarts",
        metavar="N",
        help="start all ranks anew, from the newest checkpoint, up to N times after one has failed",
    )
    parser.add_argument(
        "--until-done",
        nargs="?",
        type=_segments,
        const=DEFAULT_SEGMENTS,
        metavar="N",
        help="when the time limit is near, go on from the newest checkpoint in a further segment; N segments "
        f"at most (default {DEFAULT_SEGMENTS})",
    )
    parser.add_argument(
        "--resume-with",
        metavar="OPTION",
        help='with --until-done: how your program is told its checkpoint: "--resume {path}"; none: it finds '
        "it by itself",
    )
    parser.add_argument("--gpu-type", metavar="T", help="type of GPU to ask for, as the partition names it")
    parser.add_argument(
        "--gpu-request",
        choices=GPU_REQUESTS,
        help="which option of sbatch asks for GPUs (default: gpus-per-node)",
    )
    parser.add_argument(
        "--gpm",
        action=argparse.BooleanOptionalAction,
        help=f"measure {GPM_HELP}",
    )
    add_environment(parser)
    add_share(parser)
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a parameter of the recipe"
    )
    parser.add_argument(
        "--sweep",
        metavar="KEY=VALUES",
        action="append",
        default=[],
        help="a run for each value: lr=1e-4,1e-3, batch_size=16..128*2; of several, for each combination",
    )
    parser.add_argument("--random", metavar="N", help="N runs of a sweep, drawn at random")
    parser.add_argument(
        "--at-once", metavar="N", help="runs of a sweep that are alive at the same time (default: 4)"
    )
    parser.add_argument(
        "--sbatch", metavar="KEY=VALUE", action="append", default=[], help="one more option of sbatch"
    )
    add_ways(parser)


def add_environment(parser: argparse.ArgumentParser) -> None:
    """What the training runs in; `drill` has it as well."""
    parser.add_argument(
        "--env",
        metavar="ENV",
        help=(
            "training environment: a name from the config, or for example venv=/path, conda=NAME, "
            "modules=NAME/1.2"
        ),
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter of the training environment")


def add_share(parser: argparse.ArgumentParser) -> None:
    """Where its summary is put; `drill` has it as well."""
    parser.add_argument("--share", metavar="DIR", help=f"{HELP}; {NOWHERE}: share nothing")


def shared_place(text: str | None) -> str | None:
    """As a job finds it, whose working directory is another one."""
    return text if text is None or text == NOWHERE else str(Path(text).absolute())


def add_ways(parser: argparse.ArgumentParser) -> None:
    """How far a launch goes, and how it answers."""
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything and print the script, submit nothing"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end: exit status 0 when COMPLETED, else 1"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 launched (with --wait: COMPLETED), 1 ended otherwise, 2 refused."""
    if args.resume_with is not None and args.until_done is None:
        raise UserError("--resume-with goes with --until-done", "say both, or leave it out")
    asked = with_program(_request(args), args, settings)
    return launch_as_is(asked, args, settings) if args.as_is else launch(asked, args, settings)


def launch(asked: LaunchRequest, args: argparse.Namespace, settings: Settings) -> int:
    """From a request to a run, as `--dry-run`, `--wait` and `--format` say."""
    refuse_if_readonly(settings, "launches nothing")
    env = os.environ
    io = TellingIo(scrubbed_environment(env), timeout_s=settings.slurm_timeout_s, tell=_say)
    plan = prepare(asked, settings, env, io, time.time())
    for line in plan.notes:
        _say(line)
    for line in plan.warnings:
        _say(f"warning: {line}")
    if args.dry_run:
        for each in (plan, *plan.others):
            check_ready(each)
            sys.stdout.write(each.script)
        return 0
    with telling_of_wait(_say) if plan.backend == "slurm" else contextlib.nullcontext():
        submitted = submit(plan, settings, env, io)
    notes = [line for each in submitted for line in each.notes]
    for line in (*notes, *remember_answers(plan, settings)[1]):
        _say(line)
    states: list[str | None] = [each.state for each in submitted]
    if args.wait:
        waited = _wait(plan, submitted, io)
        if waited is None:
            return 130
        states = waited
    _answer(plan, submitted, states, args.format)
    if not args.wait:
        return 0
    return _status_of_end(plan, submitted, states, settings, io, args.format)


def _status_of_end(
    plan: Plan,
    submitted: Sequence[Submitted],
    states: Sequence[str | None],
    settings: Settings,
    io: SystemIo,
    format_: str,
) -> int:
    """0 when the run COMPLETED, or each run of a group gave a result. Why it did not is printed."""
    if plan.request.sweep_point is not None:
        return 0 if _show_group(plan, settings, io, format_) else 1
    if list(states) == ["COMPLETED"]:
        return 0
    _say_why(plan, submitted[0], settings, io)
    return 1


def _wait(plan: Plan, submitted: Sequence[Submitted], io: SystemIo) -> list[str | None] | None:
    """The states in which the runs ended; None when the user did not want to wait any longer."""
    states = []
    for each in submitted:
        _say(f"{each.run_id}: submitted as {each.job_id}, waiting for its end")
        try:
            states.append(wait(each, plan.backend, io, _say))
        except KeyboardInterrupt:
            _say(f"{each.run_id} goes on; `coach cancel {each.run_id}` ends it")
            return None
    return states


def _say_why(plan: Plan, submitted: Submitted, settings: Settings, io: SystemIo) -> None:
    """The cause of a bad end in one line, where the run tells it."""
    with contextlib.suppress(UserError):
        rules = engine.Engine(lazy_engine.rules_of(settings))
        found = check.diagnose(submitted.run_id, settings, io, rules, plan.backend).findings
        for finding in (finding for finding in found if finding.is_primary):
            _say(f"{finding.rule} {finding.name}: {finding.summary}")
            _say(f"`coach check {submitted.run_id}` shows the evidence")


def _show_group(plan: Plan, settings: Settings, io: SystemIo, format_: str) -> bool:
    """The table of a group that has ended. Whether every run gave a result: a measurement, or that memory
    does not suffice."""
    group_id = plan.request.sweep_point.group_id if plan.request.sweep_point else plan.run_id
    group = read_group(group_id, settings, io, plan.backend, user_name())
    if format_ != "json":
        compare.print_group(group)
    return all(point.is_result for point in group.points)


def _answer(plan: Plan, submitted: Sequence[Submitted], states: Sequence[str | None], format_: str) -> None:
    listed = [
        {"run_id": each.run_id, "run_dir": each.run_dir, "job_id": each.job_id, "state": state}
        for each, state in zip(submitted, states, strict=True)
    ]
    point = plan.request.sweep_point
    group = {"group_id": point.group_id} if point is not None else {}
    if format_ == "json":
        print(json.dumps({"schema": 1, **listed[0], **group, "runs": listed}, indent=2))
        return
    for name, value in group.items():
        print(f"{name:<8} {printable(value)}")
    for fields in listed:
        for name, said in fields.items():
            print(f"{name:<8}{printable(said or '–')}")
    if group:
        _say(f"the whole group as a table: coach compare {group['group_id']}")


def _request(args: argparse.Namespace) -> LaunchRequest:
    counts = {name: _count(getattr(args, name), f"--{name.replace('_', '-')}") for name in _COUNTS}
    return LaunchRequest(
        recipe=args.what or "",
        backend=args.backend,
        num_nodes=counts["nodes"],
        gpus_per_node=counts["gpus"],
        nproc_per_node=counts["nproc_per_node"],
        cpus_per_task=counts["cpus_per_task"],
        cpus_per_gpu=counts["cpus_per_gpu"],
        max_restarts=counts["max_restarts"],
        until_done=args.until_done,
        resume_with=args.resume_with,
        time_limit_s=parse_time(args.time, "--time") if args.time is not None else None,
        partition=args.partition,
        account=args.account,
        qos=args.qos,
        reservation=args.reservation,
        constraint=args.constraint,
        exclude=args.exclude,
        mem=args.mem,
        gpu_type=args.gpu_type,
        gpu_request=args.gpu_request,
        environment=args.env,
        has_gpm=args.gpm,
        python=args.python,
        set=pairs(args.set, "--set"),
        sweep=pairs(args.sweep, "--sweep"),
        num_random=counts["random"],
        at_once=counts["at_once"],
        sbatch=pairs(args.sbatch, "--sbatch"),
        share=shared_place(args.share),
    )


def _count(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise UserError(f"{option} {text!r}: expected a whole number")
    return int(text)


def pairs(texts: Iterable[str], option: str) -> Mapping[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {text!r}: expected KEY=VALUE")
        pairs[key.strip()] = value
    return pairs


def _say(line: str) -> None:
    print(f"coach: {printable(line)}", file=sys.stderr)


WAITING_AFTER_S = 5.0
_CLIENTS = frozenset({"squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "sbatch"})


class TellingIo(SystemIo):
    """The real world; `tell` gets a line when a client of Slurm's has not answered for a while."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        after_s: float = WAITING_AFTER_S,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s)
        self._tell = tell
        self._after_s = after_s

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if query.argv[0] not in _CLIENTS:
            return super().run(query, timeout_s)
        with telling_of_wait(self._tell, self._after_s):
            return super().run(query, timeout_s)


@contextlib.contextmanager
def telling_of_wait(tell: Callable[[str], object], after_s: float = WAITING_AFTER_S) -> Iterator[None]:
    """Tell it if the block takes longer than this."""
    timer = threading.Timer(after_s, tell, ("waiting for the controller",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _segments(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of segments: put --until-done behind WHAT")
    return int(text)
