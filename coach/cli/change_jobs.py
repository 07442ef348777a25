"""`coach cancel`, `hold`, `release`, `requeue`, `timelimit`: change own jobs, after showing the commands."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coach.analysis.comparing.sweep_table import group_of
from coach.analysis.jobs.named_run import first_of_group
from coach.analysis.spelling.slurm import parse_time, whole_minutes
from coach.cli.acting import add_answers, carry_out
from coach.cli.reading_io import slurm_io
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import Verb
from coach.sources.io import Io
from coach.workflows.jobs.job_actions import perform, plan_action
from coach.workflows.judging.targets import list_runs


@dataclass(frozen=True, slots=True)
class ChangeJobs:
    """The command of one verb."""

    verb: Verb

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Any number of targets. A time limit comes before them."""
        if self.verb is Verb.TIMELIMIT:
            parser.add_argument(
                "limit", metavar="TIME", help="in Slurm's spelling: 30 (minutes), 30:00, 1-12:00:00"
            )
        parser.add_argument(
            "targets", metavar="ID", nargs="+", help="your job ids (17, 17_3, 17_[2-5]) and run ids"
        )
        add_answers(parser)
        if self.verb is Verb.CANCEL:
            parser.add_argument(
                "--group", action="store_true", help="all runs of the sweep that this run was launched with"
            )

    def run(self, args: argparse.Namespace, settings: Settings) -> int:
        """Exit status: 0 done for all named targets, 1 not confirmed, 2 refused or some left out."""
        limit_s = None
        if self.verb is Verb.TIMELIMIT:
            limit_s = whole_minutes(parse_time(args.limit, "TIME"))
        io = slurm_io(settings)
        targets: Sequence[str] = args.targets
        if self.verb is Verb.CANCEL and args.group:
            targets = [run_id for target in targets for run_id in _group_of(target, settings, io)]
        action = plan_action(self.verb, targets, settings, os.environ, io, limit_s)
        return carry_out(action, args, lambda action: perform(action, os.environ, time.time()))


COMMANDS: Mapping[str, ChangeJobs] = {
    "cancel": ChangeJobs(Verb.CANCEL),
    "hold": ChangeJobs(Verb.HOLD),
    "release": ChangeJobs(Verb.RELEASE),
    "requeue": ChangeJobs(Verb.REQUEUE),
    "timelimit": ChangeJobs(Verb.TIMELIMIT),
}


def _group_of(target: str, settings: Settings, io: Io) -> list[str]:
    """The runs of a sweep that have not ended, the last first: otherwise each would start when the one before
    it ends."""
    known = list_runs(io, settings.runs_root)
    named = first_of_group(target, known)
    if named is None or named.sweep is None:
        raise UserError(f"{target}: not a run of a sweep", "leave out --group to cancel this run alone")
    alive = [run.run_id for run in group_of(named.sweep.group_id, known) if not is_final(run.state)]
    if not alive:
        raise UserError(f"{target}: all runs of its group have ended")
    return alive[::-1]
