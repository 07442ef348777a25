"""`coach ticket`: the facts that a help desk asks for about a job, as Markdown, without secrets.

It goes to standard output. A file is new, readable only by its owner, and written only after its text was
shown and confirmed. `--share` puts it where the instructor of a course can read it, after the same question.
"""

from __future__ import annotations

import argparse
import json

from coach.cli.acting import is_confirmed
from coach.cli.cluster import ENDED_JOB_HELP, add_options, backend_of
from coach.cli.reading_io import slurm_io
from coach.cli.text import say
from coach.config import Settings
from coach.model.errors import UserError
from coach.render.ticket import ticket_markdown
from coach.runs import expand_home
from coach.sources.machine.new_file import refuse_if_there, save_new
from coach.workflows.judging import newest_bad
from coach.workflows.judging.ticket import struck_words, ticket
from coach.workflows.teaching.shared_ticket import run_to_share, share_ticket


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
    file = None if args.save is None else expand_home(args.save).absolute()
    if file is not None:
        refuse_if_there(file)
    backend = backend_of(args.backend, settings)
    job = args.job if args.job is not None else newest_bad.newest_bad(settings, io, backend)
    if job is None:
        raise UserError("no job of yours is known to have ended badly", "name one: coach ticket JOB")
    if args.share and file is not None:
        raise UserError("--save and --share: two places", "say one")
    place = run_to_share(job, settings, io) if args.share else None
    found = ticket(job, settings, io, args.backend)
    lines = json.dumps(found, indent=2).split("\n") if args.format == "json" else ticket_markdown(found)
    text = "\n".join(lines) + "\n"
    notes = struck_words(found["num_struck"])
    for line in lines:
        print(line)
    if place is not None:
        directory, run = place
        if not is_confirmed(f"share it with everybody who can read {directory}", args.yes, notes):
            say("nothing was shared")
            return 1
        say(f"shared {share_ticket(directory, run, text)}")
    elif file is not None:
        if not is_confirmed(f"save {file}", args.yes, notes):
            say("nothing was saved")
            return 1
        save_new(file, text)
        say(f"saved {file}")
    else:
        for note in notes:
            say(note)
    return 0
