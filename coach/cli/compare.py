"""`coach compare`: the effect of a change, with the noise of each number."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from coach.analysis.comparing.fix_chain import Link
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import WORLD_SIZE, Group, Point, best_first
from coach.analysis.comparing.two_runs import Comparison, Row
from coach.cli.cluster import add_options, backend_of
from coach.cli.reading_io import Io, slurm_io
from coach.cli.text import UNKNOWN, print_line, print_table
from coach.config import Settings
from coach.model.errors import UserError
from coach.sources.machine.user import user_name
from coach.workflows.judging.comparing import compare_targets, read_chain
from coach.workflows.judging.targets import resolve_target
from coach.workflows.launching.sweep import NoGroup, read_group

_RESULTS = ("eval_accuracy", "eval_loss", "loss")
"""Metrics for a training's result in the table: the first that a run has is used."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "before",
        metavar="RUN",
        help=(
            "the run to compare with: a run id, a run directory, or the id of any job whose log or metric "
            "files have steps; alone: a run of a group, or a run before or after a fix"
        ),
    )
    parser.add_argument("after", metavar="RUN", nargs="?", help="the run that was changed")
    parser.add_argument(
        "--best",
        metavar="METRIC",
        help="rank the runs of a group by this metric: loss, eval_accuracy, samples_per_s … (less is "
        "better for losses, times and memory)",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    backend, user = backend_of(args.backend, settings), user_name()
    io = slurm_io(settings)
    if args.after is None:
        return _show_group(args, settings, io, backend, user)
    if args.best is not None:
        raise UserError(
            "--best ranks the runs of a group: two runs were named", "`coach compare GROUP --best METRIC`"
        )
    comparison = _compare(args.before, args.after, settings, io, backend, user)
    if args.format == "json":
        print(json.dumps(comparison_object(comparison), indent=2))
    else:
        print_comparison(comparison)
    return 0


def _compare(before: str, after: str, settings: Settings, io: Io, backend: str, user: str) -> Comparison:
    old, new = (resolve_target(text, settings, io, backend, user) for text in (before, after))
    return compare_targets(old, new, settings, io, backend)


def _show_group(args: argparse.Namespace, settings: Settings, io: Io, backend: str, user: str) -> int:
    text, format_ = args.before, args.format
    try:
        group = read_group(text, settings, io, backend)
        if args.best is not None:
            group = replace(group, points=best_first(group.points, args.best))
    except NoGroup:
        if args.best is not None:
            raise
        chain = read_chain(text, settings, io, backend)
        comparison = _compare(chain.before, chain.after, settings, io, backend, user)
        if format_ == "json":
            links = [asdict(link) for link in chain.links]
            print(json.dumps({**comparison_object(comparison), "chain": links}, indent=2))
        else:
            print_comparison(comparison)
            _print_chain(chain.links)
        return 0
    if format_ == "json":
        print(json.dumps(group_object(group), indent=2))
    else:
        print_group(group, args.best)
    return 0


def _print_chain(chain: Sequence[Link]) -> None:
    """Print the chain of runs that fixes made from a run, one line each."""
    print_table(
        ("", "RUN", "STATE", "SAMPLES/S", "FOUND", "FIX"),
        [
            (
                "best" if link.is_best else "",
                link.run_id,
                link.state or UNKNOWN,
                _estimate(link.throughput),
                _found(link),
                UNKNOWN if link.fix is None else f"{link.fix}{_trial(link)}",
            )
            for link in chain
        ],
        "lllrll",
    )


def _found(link: Link) -> str:
    if link.found is not None:
        return link.found
    return "no warning" if link.is_well else UNKNOWN


def _trial(link: Link) -> str:
    return "" if link.trial_steps is None else f" (tried for {link.trial_steps} steps)"


def group_object(group: Group) -> dict[str, object]:
    """The JSON of a group."""
    scaling = group.scaling
    return {"schema": 1, **asdict(group), "scaling": None if scaling is None else asdict(scaling)}


def print_group(group: Group, best: str | None = None) -> None:
    """A group as one table, with a line per value. `best` is the metric that sorts its points."""
    metric = best or _result_of(group)
    print_line(f"{group.group_id}: {group.recipe}, a run for each {group.parameter}")
    efficiency = "EFFICIENCY" if group.parameter == WORLD_SIZE else "OF BEST"
    has_target = any(point.target is not None for point in group.points)
    print_table(
        (
            group.parameter.upper(),
            metric.upper(),
            "SAMPLES/S",
            "N",
            "RATIO",
            efficiency,
            "STEP (s)",
            "DATA (s)",
            "MEMORY (MiB)",
            *(("TO ACCURACY",) if has_target else ()),
            "RESULT",
            "RUN",
        ),
        [_point_cells(point, metric, has_target) for point in group.points],
        f"rrrrrrrrr{'l' * has_target}ll",
    )
    for words in (*group.reasons, *group.scaling_words):
        print_line(words)
    if best is not None:
        first = group.points[0]
        print_line(f"best {metric}: {first.value} ({first.run_id})")


def _result_of(group: Group) -> str:
    """The metric that shows the results of a group's trainings."""
    return next((name for name in _RESULTS if any(name in each.metrics for each in group.points)), "loss")


def _point_cells(point: Point, metric: str, has_target: bool) -> tuple[str, ...]:
    return (
        str(point.value),
        point.metric_words(metric) or _number(point.metrics.get(metric), None),
        _estimate(point.throughput),
        UNKNOWN if point.throughput is None else str(point.throughput.num_values),
        point.ratio_words or UNKNOWN,
        point.efficiency_words or UNKNOWN,
        _estimate(point.step_time),
        _estimate(point.data_time),
        UNKNOWN if point.memory_mib is None else f"{point.memory_mib:.0f}",
        *((point.target_words or UNKNOWN,) if has_target else ()),
        point.result_words,
        point.run_id,
    )


def _estimate(value: Estimate | None) -> str:
    return UNKNOWN if value is None else _number(value.value, value.noise)


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The JSON of a comparison."""
    return {
        "schema": 1,
        "before": comparison.before,
        "after": comparison.after,
        "changes": list(comparison.changes),
        "rows": [asdict(row) for row in comparison.rows],
        "findings": None if comparison.findings is None else [asdict(each) for each in comparison.findings],
        "speedup": asdict(comparison.speedup),
    }


def print_comparison(comparison: Comparison) -> None:
    """The comparison as a table with the changes first, a line with the values that neither run measured,
    and the findings."""
    print_line(f"{comparison.before} → {comparison.after}")
    for change in comparison.changes:
        print_line(f"  {change}")
    measured = [row for row in comparison.rows if not row.is_unmeasured]
    print_table(
        ("QUANTITY", "BEFORE", "AFTER", "RATIO", "VERDICT"), [_cells(row) for row in measured], "lrrrl"
    )
    missing = [row.quantity for row in comparison.rows if row.is_unmeasured]
    if missing:
        print_line(f"not measured in either run: {', '.join(missing)}")
    for each in comparison.findings or ():
        print_line(f"found {each.where_words}: {each.rule} {each.name}")
    if comparison.findings == ():
        print_line("found in neither run: a warning or worse")


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    name = f"{row.quantity} ({row.unit})" if row.unit else row.quantity
    verdict = f"{row.verdict}: {row.because}" if row.because else row.verdict
    ratio = UNKNOWN if row.ratio is None else f"{row.ratio:.3g}"
    return name, _number(row.before, row.before_noise), _number(row.after, row.after_noise), ratio, verdict


def _number(value: float | None, noise: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.4g}" if noise is None else f"{value:.4g} ± {noise:.2g}"
