"""The options of `coach launch`, and the request that they make. `drill` shares some of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coach.cli.launch_own import add_own
from coach.cli.text import FORMATS, add_format
from coach.config import BACKENDS
from coach.launch.long_job import DEFAULT_SEGMENTS
from coach.launch.spelling import parse_time
from coach.model.errors import UserError
from coach.model.launching.launch import GPU_REQUESTS, NOWHERE, LaunchRequest
from coach.node.brake import DEFAULT_AFTER
from coach.node.gpm import GPM_HELP
from coach.node.share import HELP

_AS_GIVEN = (
    *("backend", "until_done", "resume_with", "partition", "account", "qos", "reservation", "constraint"),
    *("exclude", "mem", "gpu_type", "gpu_request", "environment", "has_gpm", "python", "brake"),
)
"""Fields of a request that take an option's value as it is."""
_COUNTS = {
    "num_nodes": "--nodes",
    "gpus_per_node": "--gpus",
    "nproc_per_node": "--nproc-per-node",
    "cpus_per_task": "--cpus-per-task",
    "cpus_per_gpu": "--cpus-per-gpu",
    "max_restarts": "--max-restarts",
    "num_random": "--random",
    "at_once": "--at-once",
}
"""Field of a request → its option."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options; they match the keys of [launch] in config.toml."""
    add_own(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="where it trains (default: auto)")
    add_resources(parser)
    _add_long(parser)
    add_environment(parser)
    add_share(parser)
    _add_values(parser)
    add_ways(parser)


def add_resources(parser: argparse.ArgumentParser) -> None:
    """Options for the size and the place of the job, also of `ladder`."""
    parser.add_argument("--nodes", dest="num_nodes", metavar="N", help="nodes (default: 1)")
    parser.add_argument("--gpus", dest="gpus_per_node", metavar="N", help="GPUs per node; 0: train on CPUs")
    parser.add_argument("--nproc-per-node", metavar="N", help="ranks per node (default: one per GPU)")
    parser.add_argument("--time", metavar="T", help="time limit in Slurm's spelling, for example 30:00")
    parser.add_argument("--partition", metavar="P", help="the partition of the job")
    parser.add_argument("--account", metavar="A", help="the account that the job is charged to")
    parser.add_argument("--qos", metavar="Q", help="the quality of service of the job")
    parser.add_argument("--reservation", metavar="R", help="the reservation to run in")
    parser.add_argument("--constraint", metavar="C", help="features that each node must have")
    parser.add_argument("--exclude", metavar="NODES", help="nodes not to use, for example node[3-5]")
    parser.add_argument("--mem", metavar="M", help="memory per node, for example 16G")
    parser.add_argument(
        "--cpus-per-task", metavar="N", help="CPUs per node, for all its ranks and data workers"
    )
    parser.add_argument(
        "--cpus-per-gpu", metavar="N", help="CPUs for each GPU, for sites that want CPUs requested this way"
    )
    parser.add_argument(
        "--max-restarts",
        metavar="N",
        help="restart all ranks from the newest checkpoint after a rank has failed, at most N times",
    )
    parser.add_argument("--gpu-type", metavar="T", help="type of GPU to request, as the partition names it")
    parser.add_argument(
        "--gpu-request",
        choices=GPU_REQUESTS,
        help="the option of sbatch that requests GPUs (default: gpus-per-node)",
    )
    parser.add_argument(
        "--gpm",
        dest="has_gpm",
        action=argparse.BooleanOptionalAction,
        help=f"measure {GPM_HELP}",
    )


def _add_long(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--until-done",
        nargs="?",
        type=_segments,
        const=DEFAULT_SEGMENTS,
        metavar="N",
        help="when the time limit is near, resume from the newest checkpoint in another segment; at most N "
        f"segments (default {DEFAULT_SEGMENTS})",
    )
    parser.add_argument(
        "--resume-with",
        metavar="OPTION",
        help='with --until-done: how your program gets its checkpoint: "--resume {path}"; none: '
        "your program finds it by itself",
    )


def _add_values(parser: argparse.ArgumentParser) -> None:
    """Options for the recipe's or the program's own values."""
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a parameter of the recipe"
    )
    parser.add_argument(
        "--sweep",
        metavar="KEY=VALUES",
        action="append",
        default=[],
        help="a run for each value: lr=1e-4,1e-3, batch_size=16..128*2; with several options, a run for "
        "each combination",
    )
    parser.add_argument("--random", dest="num_random", metavar="N", help="N runs of a sweep, drawn at random")
    parser.add_argument(
        "--at-once", metavar="N", help="runs of a sweep that may run at the same time (default: 4)"
    )
    parser.add_argument(
        "--brake",
        nargs="?",
        type=_of_brake,
        const=DEFAULT_AFTER,
        metavar="N",
        help="if the first N runs of a sweep fail with the same cause, do not start the rest (default "
        f"{DEFAULT_AFTER})",
    )
    parser.add_argument(
        "--sbatch", metavar="KEY=VALUE", action="append", default=[], help="one more option of sbatch"
    )


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Options for the training environment, also of `drill`."""
    parser.add_argument(
        "--env",
        dest="environment",
        metavar="ENV",
        help=(
            "training environment: a name from the config, or for example venv=/path, conda=NAME, "
            "modules=NAME/1.2"
        ),
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter of the training environment")


def add_share(parser: argparse.ArgumentParser) -> None:
    """The option for the directory of its summary, also of `drill` and `ladder`."""
    parser.add_argument("--share", metavar="DIR", help=f"{HELP}; {NOWHERE}: share nothing")


def shared_place(text: str | None) -> str | None:
    """The path as an absolute one, because a job has another working directory. Raises UserError for an empty
    one: it would be the working directory."""
    if text is not None and not text.strip():
        raise UserError(f"--share {text!r}: expected a directory, or {NOWHERE}")
    return text if text is None or text == NOWHERE else str(Path(text).absolute())


def add_ways(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Options for how far a launch goes, and for the form of its answer."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, also by sbatch --test-only, and print the script; submit nothing",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end: exit status 0 when COMPLETED, else 1"
    )
    add_format(parser, formats)


def request_of(args: argparse.Namespace) -> LaunchRequest:
    """The request. Raises UserError for an invalid time, pair or place."""
    counts: dict[str, Any] = {name: _count(getattr(args, name), option) for name, option in _COUNTS.items()}
    return LaunchRequest(
        recipe=args.what or "",
        time_limit_s=parse_time(args.time, "--time") if args.time is not None else None,
        set=pairs(args.set, "--set"),
        sweep=_sweeps(args.sweep),
        sbatch=pairs(args.sbatch, "--sbatch"),
        share=shared_place(args.share),
        **{name: getattr(args, name) for name in _AS_GIVEN},
        **counts,
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


def _sweeps(texts: Sequence[str]) -> Mapping[str, str]:
    sweeps = pairs(texts, "--sweep")
    if len(sweeps) < len(texts):
        raise UserError(
            f"--sweep {' --sweep '.join(texts)}: the same parameter twice",
            "give all its values in one option",
        )
    return sweeps


def _of_brake(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of runs; write WHAT before --brake")
    return int(text)


def _segments(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a number of segments; write WHAT before --until-done"
        )
    return int(text)
