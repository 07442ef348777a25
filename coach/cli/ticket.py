"""`coach ticket`: the facts that a help desk asks for about a job, as Markdown, without secrets.

It goes to standard output. A file is new, readable only by its owner, and written only after its text was
shown and confirmed. `--share` puts it where the instructor of a course can read it, after the same question.
"""

from __future__ import annotations

import argparse
import json
import os

from coach.analysis.judging.ticket_markdown import ticket_markdown
from coach.cli.cluster import ENDED_JOB_HELP, add_options
from coach.cli.reading_io import slurm_io
from coach.cli.saving import new_path_of, save_shown
from coach.cli.shared_ticket import place_of, share_shown
from coach.cli.text import say
from coach.config import Settings
from coach.model.errors import UserError
from coach.workflows.backend import resolve_backend
from coach.workflows.judging import newest_bad
from coach.workflows.judging.ticket import struck_words, ticket


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help=ENDED_JOB_HELP)
    parser.add_argument(
        *("-o", "--save"),
        metavar="FILE",
        help="show the ticket, ask, and save it in a new file that only you can read",
    )
    parser.add_argument(
        "--share",
        action="store_true",
        help="show the ticket, ask, and put it into the shared directory of the course (launch.share), for "
        "everybody to read",
    )
    parser.add_argument("--yes", action="store_true", help="save or share without asking")
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 printed or saved, 1 not confirmed, 2 not readable."""
    io = slurm_io(settings)
    file = None if args.save is None else new_path_of(args.save)
    backend = resolve_backend(args.backend or settings.launch.backend, os.environ)
    job = args.job if args.job is not None else newest_bad.newest_bad(settings, io, backend)
    if job is None:
        raise UserError("no job of yours is known to have ended badly", "name one: coach ticket JOB")
    if args.share and file is not None:
        raise UserError("--save and --share: two places", "say one")
    place = place_of(job, settings, io) if args.share else None
    told = ticket(job, settings, io, args.backend)
    is_json = args.format == "json"
    lines = json.dumps(told, indent=2).split("\n") if is_json else ticket_markdown(told)
    notes = struck_words(told["num_struck"])
    text = "\n".join(lines) + "\n"
    if place is not None:
        return share_shown(place, text, lines, notes, is_known=args.yes)
    if file is not None:
        return save_shown(file, text, lines, notes, is_known=args.yes)
    for line in lines:
        print(line)
    for note in notes:
        say(note)
    return 0
