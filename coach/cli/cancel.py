"""`coach cancel`: ends own runs and jobs, after showing the commands."""

from __future__ import annotations

import argparse

from coach.analysis.comparing.sweep_table import group_of
from coach.analysis.jobs.named_run import first_of_group
from coach.cli import acting
from coach.cli.reading_io import slurm_io
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import Verb
from coach.sources.io import SystemIo
from coach.workflows.judging.targets import list_runs


def configure(parser: argparse.ArgumentParser) -> None:
    """Any number of targets; with `--group` one target, for all runs of its group."""
    acting.configure(parser)
    parser.add_argument(
        "--group", action="store_true", help="all runs of the sweep that this run was launched with"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: see `run_action`."""
    targets = args.targets
    if args.group:
        io = slurm_io(settings)
        targets = [run_id for target in targets for run_id in _group_of(target, settings, io)]
    return acting.run_action(Verb.CANCEL, args, settings, targets)


def _group_of(target: str, settings: Settings, io: SystemIo) -> list[str]:
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
