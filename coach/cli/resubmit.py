"""`coach resubmit`: submits the same script again, after showing the command; a run of coach's becomes a new
run."""

from __future__ import annotations

import argparse
import os
import time

from coach.cli.acting import add_answers, carry_out, is_confirmed
from coach.cli.launch import print_launched
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_verbatim, say
from coach.config import Settings
from coach.model.slurm.job_action import JobAction
from coach.workflows.launching.resubmit import perform_resubmit, plan_resubmit
from coach.workflows.launching.start import command_of
from coach.workflows.launching.sweep import prepare, submit


def configure(parser: argparse.ArgumentParser) -> None:
    """One job or run, and `--yes` to answer the question in advance."""
    parser.add_argument("target", metavar="ID", help="a job id (17, 17_3, 17_[2,5]) or a run id of yours")
    parser.add_argument("--failed", action="store_true", help="of an array: only the tasks that failed")
    add_answers(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 0 submitted, 1 not confirmed, 2 refused."""
    io = slurm_io(settings)
    planned = plan_resubmit(args.target, settings, os.environ, io, only_failed=args.failed)
    if isinstance(planned, JobAction):
        return carry_out(planned, args, lambda action: perform_resubmit(action, os.environ))
    plan = prepare(planned, settings, os.environ, io, time.time())
    if args.dry_run:
        print_verbatim(plan.script)
        return 0
    notes = (*plan.notes, *(f"warning: {line}" for line in plan.warnings))
    if not is_confirmed(command_of(plan), args.yes, notes):
        say("nothing was launched")
        return 1
    done = submit(plan, settings, os.environ, io)
    print_launched(done, [each.state for each in done])
    return 0
