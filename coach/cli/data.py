"""`coach data`: lists the data sets that are present and verified, fetches CIFAR-10 if there is a network,
and removes generated sets."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

from coach.analysis.spelling.sizes import format_bytes
from coach.cli import sentence
from coach.cli.acting import is_confirmed
from coach.cli.reading_io import slurm_io
from coach.cli.text import add_format, print_json, print_line, print_table, say
from coach.config import Settings, Switch
from coach.runs import expand_home
from coach.sources.machine.user import user_name
from coach.workflows.launching.datasets import fetch, list_data
from coach.workflows.launching.generated_data import find_generated, remove_generated
from coach.workflows.readonly import refuse_if_readonly


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="")
    what = "get CIFAR-10, check it and put it where the trainers look"
    fetch = actions.add_parser("fetch", help=what, description=sentence(what))
    fetch.add_argument("--dir", metavar="DIR", help="folder to put it in (default: data_dir, else cache_dir)")
    fetch.add_argument(
        "--file", metavar="FILE", help="take cifar-10-python.tar.gz from here, without a network"
    )
    what = "remove the data sets that trainers generated; a run that needs one makes it again"
    clean = actions.add_parser("clean", help=what, description=sentence(what))
    clean.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0; 1 if a data set differs from the published one, or generated sets stay; 2 if nothing
    can be fetched or asked."""
    if args.action == "fetch":
        return _fetch(args, settings)
    if args.action == "clean":
        return _clean(args.yes, settings)
    places = list_data(settings, os.environ)
    if args.format == "json":
        print_json("datasets", [asdict(place) for place in places])
    else:
        print_table(
            ("DATA SET", "KIND", "STATE", "USED", "WHERE", "DETAIL"),
            [
                (
                    place.dataset,
                    place.kind,
                    place.state,
                    "yes" if place.is_used else "",
                    place.path,
                    place.detail,
                )
                for place in places
            ],
        )
        if not any(place.kind == "real" and place.state == "verified" for place in places):
            say("`coach data fetch` gets CIFAR-10 on a node with internet")
    return int(any(place.state == "damaged" for place in places))


def _fetch(args: argparse.Namespace, settings: Settings) -> int:
    folder = expand_home(args.dir).absolute() if args.dir else None
    file = expand_home(args.file).absolute() if args.file else None
    is_shown = sys.stderr.isatty()
    final = fetch(
        settings,
        os.environ,
        _show_progress if is_shown else lambda done, whole: None,
        folder=folder,
        file=file,
    )
    if is_shown:
        print(file=sys.stderr)
    print_line(str(final))
    if folder is not None and folder != settings.data_dir:
        say(f'data_dir = "{folder}" in config.toml lets recipes use it')
    return 0


def _clean(is_agreed: bool, settings: Settings) -> int:
    io = slurm_io(settings)
    found = find_generated(settings, io, user_name())
    if not found.sets:
        say("nothing to remove")
        return 0
    sizes = (None if one.size_bytes is None else format_bytes(one.size_bytes) for one in found.sets)
    print_table(
        ("SIZE", "GENERATED SET"),
        [(size, str(one.path)) for size, one in zip(sizes, found.sets, strict=True)],
        "r",
    )
    if found.readers:
        say(f"kept: {', '.join(found.readers)} may be reading them")
        return 1
    what = f"{len(found.sets)} generated set{'' if len(found.sets) == 1 else 's'}"
    if not is_agreed:
        refuse_if_readonly(settings, "removes nothing", Switch.CLEAN)
    if not is_confirmed(f"remove {what}, {format_bytes(found.size_bytes)}", is_agreed):
        say("nothing was removed")
        return 1
    problems: list[str] = []
    removed_bytes = remove_generated(found, settings, problems.append)
    for problem in problems:
        say(f"not removed: {problem}")
    say(f"removed {format_bytes(removed_bytes)}")
    return 1 if problems else 0


def _show_progress(num_done: int, num_bytes: int | None) -> None:
    of = f" of {format_bytes(num_bytes)}" if num_bytes else ""
    os.write(2, f"\r\x1b[Kcoach: {format_bytes(num_done)}{of}".encode())
