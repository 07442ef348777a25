"""`coach doctor`: shows what works here and what does not, each line with a remedy.

It reads the settings itself, because people come to it with a config that keeps coach from starting.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import Any

from coach import cli
from coach.cli.text import UNKNOWN, add_format, print_json, print_line
from coach.config import BACKENDS, Settings
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Check, CheckState, Report
from coach.sources.io import SystemIo, scrubbed_environment
from coach.sources.machine.terminal import read_terminal, started_environment
from coach.workflows.doctor import examine, with_backend, without_files
from coach.workflows.readonly import held_back

LOADS_SETTINGS = False
"""This command runs without settings being loaded first."""

_SIGNS = {
    CheckState.OK: "ok",
    CheckState.WARNING: "warning",
    CheckState.WRONG: "WRONG",
    CheckState.UNKNOWN: "unknown",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    parser.add_argument("--backend", choices=BACKENDS, help="which cluster to examine (default: auto)")


def run(args: argparse.Namespace, settings: Settings | None = None) -> int:
    """Exit status: 0 all well, 1 something does not work here, 2 cannot tell."""
    env, problem = os.environ, None
    try:
        settings = settings or cli.load_settings()
    except UserError as error:
        settings, problem = held_back(without_files(env), env), error
    settings = with_backend(settings, args.backend)
    io = SystemIo(scrubbed_environment(env), timeout_s=settings.slurm_timeout_s)
    report = examine(settings, env, io, read_terminal(started_environment(env)), config_problem=problem)
    if args.format == "json":
        print_json("checks", [as_json(check) for check in report.checks])
    else:
        print_report(report)
    return report.exit_status


def as_json(check: Check) -> dict[str, Any]:
    return {**asdict(check), "state": str(check.state)}


def print_report(report: Report) -> None:
    """Print one block per area and one line per check, with reason and remedy below it."""
    width = max((len(check.what) for check in report.checks), default=0)
    area = None
    for check in report.checks:
        if check.area != area:
            area = check.area
            print_line(area)
        value = UNKNOWN if check.value is None else check.value
        print_line(f"  {_SIGNS[check.state]:<7}  {check.what:<{width}}  {value}")
        for label, text in (("", check.because), ("→ ", check.todo)):
            if text:
                print_line(" " * (width + 13) + label + text)
    print()
    print_line(f"{report.verdict} ({report.duration_s:.1f} s)")
