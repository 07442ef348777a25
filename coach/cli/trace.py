"""`coach trace`: summarizes torch.profiler's trace as text: idle time and its cause, the slowest operations,
the hidden share of communication, and the copies."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from coach.cli.cluster import add_options, backend_of
from coach.cli.reading_io import slurm_io
from coach.cli.text import UNKNOWN, print_line, print_table
from coach.config import Settings
from coach.model.training.trace import Share, TraceReport
from coach.sources.machine.user import user_name
from coach.workflows.judging.traces import trace_report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="RUN",
        help="a run, whose newest trace is read; a trace, .json or .json.gz; or a folder with traces",
    )
    add_options(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    backend, user = backend_of(args.backend, settings), user_name()
    io = slurm_io(settings)
    path, report = trace_report(args.target, settings, io, backend, user)
    if args.format == "json":
        print(json.dumps({"schema": 1, "trace": str(path), **asdict(report)}, indent=2))
    else:
        _print_report(path, report)
    return 0


def _print_report(path: Path, report: TraceReport) -> None:
    print_line(str(path))
    device = report.device or ("a GPU" if report.is_gpu else "the CPU")
    rank = "" if report.rank is None else f", rank {report.rank} of {report.world_size or UNKNOWN}"
    print_line(f"  {_steps(report)} on {device}{rank}")
    for name, share, more in _of_window(report):
        print_line(f"  {share:6.1%}  {name}{f': {more}' if more else ''}")
    if report.gaps:
        print()
        _print_shares("HOST OPERATOR WHILE NOTHING RAN", "OF IDLE", report.gaps)
    print()
    title = "KERNEL" if report.is_gpu else "OPERATOR (SELF TIME)"
    _print_shares(title, "OF ALL", report.top)
    if report.copies:
        print()
        print_table(
            ("COPY", "TIME", "CALLS", "BYTES", "RATE"),
            [
                (
                    kind.name,
                    _time(kind.time_s),
                    str(kind.num_calls),
                    None if kind.num_bytes is None else f"{kind.num_bytes:,}",
                    None if kind.bytes_per_s is None else f"{kind.bytes_per_s / 1e9:.3g} GB/s",
                )
                for kind in report.copies
            ],
            "lrrrr",
        )
    print()
    for text in report.remarks:
        print_line(f"→ {text}")


def _steps(report: TraceReport) -> str:
    if report.num_steps is None:
        return f"{_time(report.window_s)}, the program marks no steps (profiler.step())"
    return f"{report.num_steps} steps of {_time(report.window_s / report.num_steps)}"


def _of_window(report: TraceReport) -> list[tuple[str, float, str]]:
    """(name, share of the time, remarks)."""
    rows = [("computing", report.compute_share, _kernels(report))]
    communication = report.communication
    if communication is not None:
        share = communication.time_s / report.window_s
        hidden = f"{communication.hidden_share:.0%} of their time overlaps with computing"
        words = f"{communication.num_calls} collectives, {hidden}"
        rows.append(("communicating", share, words))
    if report.waits is not None:
        rows.append(("the host waits for the device", report.waits.share, f"{report.waits.num_calls} calls"))
    what = "the device" if report.is_gpu else "the CPU, as far as the profiler records it"
    rows.append(
        (f"nothing runs on {what}", report.idle_share, f"at most {_time(report.longest_gap_s)} at once")
    )
    return rows


def _kernels(report: TraceReport) -> str:
    if report.num_kernels is None or report.median_kernel_s is None:
        return ""
    each = "" if report.num_steps is None else f"{report.num_kernels / report.num_steps:.0f} kernels a step, "
    return f"{each}half of them shorter than {_time(report.median_kernel_s)}"


def _print_shares(title: str, of: str, rows: tuple[Share, ...]) -> None:
    print_table(
        (title, of, "TIME", "CALLS", "EACH"),
        [
            (
                row.name,
                f"{row.share:.1%}",
                _time(row.time_s),
                str(row.num_calls),
                _time(row.time_s / row.num_calls),
            )
            for row in rows
        ],
        "lrrrr",
    )


def _time(seconds: float) -> str:
    """`1.2 s`, `3.4 ms`, `5.6 us`."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 0.9995:  # from here on it rounds to 1
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
