"""Snapshots and series as tests need them, with little to say where little matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.run import Run
from coach.model.training.telemetry import GpuSample, TelemetrySample
from coach.rules.engine import Engine
from coach.rules.registry import build, signatures
from coach.sources.logs.scanner import LogScanner


def run(
    parameters: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    state: str | None = "RUNNING",
    **more: Any,
) -> Run:
    """A run that coach launched."""
    values: dict[str, Any] = {
        "run_id": "20261121-040000-ddp-0000",
        "run_dir": "/runs/ddp",
        "recipe": "ddp",
        "backend": "slurm",
        "job_id": "17",
        "launch": {},
        "created_time_s": None,
        "started_time_s": None,
        "ended_time_s": None,
        "parent_run_id": None,
        "fix": None,
        "device": {},
        "dataset": {},
        "versions": {},
    }
    return Run(**{**values, **more}, state=state, parameters=parameters or {}, resources=resources or {})


def scan(text: str) -> tuple[LogHit, ...]:
    """The hits of the rules' signatures in a log."""
    scanner = LogScanner(signatures(build()), "train.log")
    return tuple(scanner.feed(text.encode()) + scanner.flush())


def tail_of(text: str, file: str = "train.log") -> LogTail:
    """The end of a log, with its error blocks."""
    scanner = LogScanner((), file)
    scanner.feed(text.encode())
    return scanner.tail()


def diagnose_log(text: str, run: Run | None = None) -> Diagnosis:
    """The diagnosis of all rules for a log whose end is not known."""
    snapshot = TargetSnapshot("train.log", None, run=run, log_hits=scan(text))
    return Engine(build()).diagnose(snapshot, History())


def diagnose_whole(text: str) -> Diagnosis:
    """The diagnosis of all rules for a log that ended, read from its first line to its last."""
    snapshot = TargetSnapshot("train.log", None, log_hits=scan(text), log_tails=(tail_of(text),))
    return Engine(build()).diagnose(snapshot, History())


def steps(
    losses: Sequence[float],
    rank: int = 0,
    step_time_s: float = 0.1,
    data_time_s: float = 0.001,
    start_s: float = 1000.0,
    **more: Any,
) -> list[Step]:
    """One step per loss, in order."""
    return [
        Step(
            rank,
            number,
            start_s + number * step_time_s,
            epoch=0,
            loss=loss,
            step_time_s=step_time_s,
            data_time_s=data_time_s,
            **more,
        )
        for number, loss in enumerate(losses, 1)
    ]


def history(series: Iterable[Step] = (), samples: Iterable[TelemetrySample] = ()) -> History:
    result = History()
    result.add_steps(series)
    result.add_samples(samples)
    return result


def gpu_samples(
    utilizations: Sequence[float | None], gpu: int = 0, start_s: float = 1000.0, **more: Any
) -> list[GpuSample]:
    """One sample a second."""
    values: dict[str, Any] = {
        "power_w": 70.0,
        "power_limit_w": 400.0,
        "memory_used_mib": 40000.0,
        "memory_total_mib": 81920.0,
    }
    return [
        GpuSample("node1", start_s + second, gpu, None, utilization_pct=utilization, **{**values, **more})
        for second, utilization in enumerate(utilizations)
    ]


def judge(
    series: Iterable[Step] = (),
    samples: Iterable[TelemetrySample] = (),
    run: Run | None = None,
    now_s: float | None = 2000.0,
    events: Sequence[MetricEvent] = (),
) -> Diagnosis:
    """The diagnosis of all rules for metrics and telemetry."""
    snapshot = TargetSnapshot("run", now_s, run=run, events=tuple(events))
    return Engine(build()).diagnose(snapshot, history(series, samples))


def causes(diagnosis: Diagnosis) -> list[str]:
    """Causes at warning or above, in order."""
    return [finding.cause for finding in diagnosis.findings if finding.severity >= 2]


def of_a_whole_log(*lines: str) -> list[str]:
    """The causes in a log that ended, read from its first line to its last."""
    return causes(diagnose_whole("\n".join(lines) + "\n"))
