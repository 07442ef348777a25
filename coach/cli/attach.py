"""`coach attach`: measures the GPUs of an own running job that coach did not launch. It starts one step in
the job, after showing its cost."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict

from coach.analysis.measured.provenance import visible_gpus
from coach.cli.acting import add_answers, is_confirmed
from coach.cli.reading_io import slurm_io
from coach.cli.text import print_line, say
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import Reading, TelemetryChunk
from coach.model.training.telemetry import GpuSample, HostSample, SensorGap
from coach.sources.slurm.overlap_step import StreamSource
from coach.workflows.jobs.attach import begin_attach, plan_attach, streams


def configure(parser: argparse.ArgumentParser) -> None:
    """One job, and `--yes` to answer the question in advance."""
    parser.add_argument("target", metavar="ID", help="the id of your running job")
    parser.add_argument(
        "--python", metavar="FILE", help="the interpreter on the nodes (default: coach's own)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one object per line, with all measurements",
    )
    add_answers(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Measure until the job ends, or Ctrl+C. Exit status: 0 measured until the end, 1 not confirmed, 2
    refused or nothing was measured, 130 Ctrl+C."""
    io = slurm_io(settings)
    action = plan_attach(args.target, settings, os.environ, io, args.python or sys.executable)
    if args.dry_run:
        for command in action.commands:
            print_line(command)
        return 0
    if not is_confirmed(" && ".join(action.commands), args.yes, action.notes):
        say("nothing was started in the job")
        return 1
    begin_attach(settings)
    printer = _Printer(args.format == "json")
    (stream,) = streams(action, args.target, os.environ)
    return _follow(stream, printer)


def _follow(stream: StreamSource, printer: _Printer) -> int:
    stream.run(printer.take, threading.Event())
    if printer.problem is not None:
        raise printer.problem
    if not printer.has_measured:
        raise UserError(
            printer.error or "nothing was measured", "name an interpreter that the nodes have: --python FILE"
        )
    if printer.error is not None:
        say(printer.error)
    return 0


class _Printer:
    """Prints values as they arrive, each with its source and age."""

    def __init__(self, is_json: bool) -> None:
        self.has_measured = False
        self.error: str | None = None
        self.problem: OSError | None = None
        """Why standard output takes no more: its reader has left, or its disk is full."""
        self._is_json = is_json

    def take(self, reading: Reading) -> None:
        self.error = reading.error or self.error
        if isinstance(reading.payload, TelemetryChunk):
            self.has_measured = True
            try:
                self._print(reading.payload, reading.time_s)
            except OSError as problem:
                self.problem = problem
                raise

    def _print(self, chunk: TelemetryChunk, now_s: float) -> None:
        for text in self._lines(chunk, now_s):
            print_line(text)
        sys.stdout.flush()

    def _lines(self, chunk: TelemetryChunk, now_s: float) -> Iterator[str]:
        for sample in chunk.samples:
            age_s = None if isinstance(sample, SensorGap) else max(0.0, now_s - sample.time_s)
            if self._is_json:
                record = {"schema": 1, "source": chunk.rung.name.lower(), "age_s": age_s}
                yield json.dumps(record | {"kind": type(sample).__name__} | asdict(sample))
            elif isinstance(sample, (GpuSample, HostSample)):
                yield f"{_words(sample)}  {chunk.rung.name.lower()} {age_s:.1f} s"
            elif isinstance(sample, SensorGap):
                yield f"{sample.node}  {sample.what} not measured: {sample.because}  ({sample.how})"


def _words(sample: GpuSample | HostSample) -> str:
    node = sample.node
    if isinstance(sample, HostSample):
        seen = visible_gpus(sample)
        return (
            f"{node}  cpu {_number(sample.cpu_pct)} %  memory {_number(sample.memory_used_mib)} of "
            f"{_number(sample.memory_limit_mib)} MiB{f'  {seen}' if seen else ''}"
        )
    return (
        f"{node}  gpu {sample.gpu}  power {_number(sample.power_w)} of {_number(sample.power_limit_w)} W  "
        f"utilization {_number(sample.utilization_pct)} %  memory {_number(sample.memory_used_mib)} of "
        f"{_number(sample.memory_total_mib)} MiB  {_number(sample.temperature_c)} °C"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
