"""`coach drill --all`: test coach itself by all drills, and print a table or JSON.

It is separate from drill.py, which is for learners, because this command shows all answers.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from coach.cli.acting import end_as_by_ctrl_c
from coach.cli.text import fields_of, print_json, print_line, print_table, say
from coach.config import Settings, Switch
from coach.model.launching.launch import LaunchRequest
from coach.sources.io import SystemIo
from coach.workflows.launching.prepare import look_at_site
from coach.workflows.readonly import refuse_if_readonly
from coach.workflows.teaching.every_drill import DrillResult, choose, run_drills
from coach.workflows.watching.launch_watch import Launches


def run(args: argparse.Namespace, backend: str, settings: Settings, io: SystemIo) -> int:
    """Exit status: 0 if each drill that ran has passed, else 1; 130 after an interrupt, which cancels the
    running drill."""
    refuse_if_readonly(settings, "launches nothing", Switch.LAUNCH, Switch.DRILLS)
    drills = choose([name.strip() for name in args.only.split(",")] if args.only is not None else ())
    end_as_by_ctrl_c()
    launches = Launches(settings, os.environ, io, backend, say)
    results: list[DrillResult] = []
    is_stopped = False
    given = LaunchRequest("", backend, environment=args.environment, python=args.python)
    site = look_at_site(backend, io)
    try:
        for result in run_drills(drills, given, launches, site, io):
            results.append(result)
            say(f"{len(results)} of {len(drills)}  {result.name}: {_standing(result)}")
    except KeyboardInterrupt:
        is_stopped = True
    results.sort(key=lambda result: result.name)
    if args.format == "json":
        print_json("drills", [_as_json(result) for result in results])
    else:
        _print(results)
    return 130 if is_stopped else int(any(result.misses for result in results))


def _standing(result: DrillResult) -> str:
    if result.skipped is not None:
        return f"skipped: {result.skipped}"
    return "; ".join(result.misses) or "all well"


_FIELDS = ("name", "planted", "run_dir", "seconds_to_finding", "skipped", "found", "mended_by")


def _as_json(result: DrillResult) -> dict[str, Any]:
    ratio = result.throughput_ratio
    return {
        **fields_of(result, *_FIELDS),
        "diagnosed": result.is_diagnosed,
        "fixed": result.is_fixed,
        "throughput_ratio": ratio.value if ratio is not None else None,
        "throughput_ratio_noise": ratio.noise if ratio is not None else None,
        "missed": list(result.misses),
    }


def _print(results: Sequence[DrillResult]) -> None:
    print_table(
        ("DRILL", "PLANTED", "FOUND", "AFTER_S", "FIXED", "RATIO", "MENDED BY"),
        [_cells(result) for result in results],
        "lllrlrl",
    )
    for result in results:
        for miss in result.misses:
            print_line(f"{result.name}: {miss}")
    num_run = sum(result.skipped is None for result in results)
    num_met = sum(result.skipped is None and not result.misses for result in results)
    print_line(f"{num_met} of {num_run} passed, {len(results) - num_run} skipped")


def _cells(result: DrillResult) -> tuple[str | None, ...]:
    seconds, ratio = result.seconds_to_finding, result.throughput_ratio
    noise = f" ± {ratio.noise:.2f}" if ratio is not None and ratio.noise is not None else ""
    return (
        result.name,
        result.planted,
        result.found,
        None if seconds is None else f"{seconds:.0f}",
        None if result.is_fixed is None else "yes" if result.is_fixed else "no",
        None if ratio is None else f"{ratio.value:.2f}{noise}",
        f"skipped: {result.skipped}" if result.skipped is not None else result.mended_by,
    )
