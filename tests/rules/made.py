"""Data that no recording holds, written by hand: earlier runs of a user, telemetry of a fault that was never
recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from coach.lookback.history import History
from coach.model.judging.verdict import Across
from coach.model.launching.launch import SweepPoint
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.run import Refusal, RunExit
from coach.model.training.telemetry import MountSample, TelemetrySample
from tests.rules import test_efficiency, test_history, test_slurm
from tests.rules.examples import gpu_samples, history, run, steps
from tests.rules.recorded import read
from tests.rules.test_telemetry import hosts, spinning

_Made = tuple[TargetSnapshot, History]


def _across(across: Across) -> _Made:
    launched = run(state=across.this.state)
    return TargetSnapshot(across.this.target, 9e4, run=launched, across=across), History()


def _measured(samples: Iterable[TelemetrySample], now_s: float, series: Sequence[Step] = ()) -> _Made:
    return TargetSnapshot("run", now_s, run=run() if series else None), history(series, samples)


def _bad_node() -> _Made:
    this = test_history.past(5, "slurm_node_fail", "NODE_FAIL", nodes=("n3",))
    failed = (test_history.past(1), this)
    return _across(Across(this, nodes=(test_history.record(4, 6, 0.3, (1, 60), *failed),)))


def _slow_storage() -> _Made:
    mount = MountSample("node1", 1129.0, "/home", "nfs4", wait_ms=85.0)
    waiting = hosts(130, cpu_pct=20.0, io_stall_pct=55.0)
    return _measured([*gpu_samples([25.0] * 130), *waiting, mount], 1130.0)


def _few_cpus_used() -> _Made:
    launched = run(resources={"mem": "128G", "cpus_per_task": 32, "nproc_per_node": 1}, state="COMPLETED")
    samples = hosts(400, memory_used_mib=9000.0, cpu_pct=6.0, num_cpus=32)
    return TargetSnapshot("run", 1400.0, run=launched), history((), samples)


def _nothing_saved() -> _Made:
    launched = run({"max_steps": 100_000, "checkpoint_every": 0})
    job = test_efficiency.job("RUNNING", 3000, 3600)
    return TargetSnapshot("run", 1020.0, job=job, run=launched), history(steps([1.0] * 200))


def _no_log() -> _Made:
    launched = run(state="FAILED", launch=test_slurm.LAUNCH)
    job = test_slurm.job("FAILED", "RaisedSignal:53")
    return TargetSnapshot("run", 2.0, run=launched, job=job), History()


def _braked() -> _Made:
    text = "stopped by the sweep's brake: the first 3 runs failed alike (COD001: ValueError: 11 classes)"
    ended = RunExit("FAILED", 78, 2.0, (), Refusal("sweep_brake", text, None))
    launched = replace(run(state="FAILED"), sweep=SweepPoint("first", "lr", 0.1, 3, 8))
    return TargetSnapshot("run", 2.0, run=launched, exit=ended), History()


def _memory_raised() -> Across:
    return Across(test_history.asked(2, "64G"), (test_history.asked(1, "32G"),))


def _decayed_rate() -> _Made:
    snapshot, past = read("foreign/rate-decayed-early/metrics.csv")
    return replace(snapshot, run=run(state="COMPLETED")), past


MADE: Mapping[str, Callable[[], _Made]] = {
    "made/DAT006": _slow_storage,
    "made/DST007": lambda: _measured(spinning(), 1700.0, steps([1.0] * 300)),
    "made/HIS001": lambda: _across(Across(test_history.past(5), tuple(map(test_history.past, (1, 2, 3, 4))))),
    "made/HIS002": lambda: _across(_memory_raised()),
    "made/HIS003": _bad_node,
    "made/HIS004": lambda: _across(test_history.paced(0.8, 0.86)),
    "made/HIS005": lambda: _across(test_history.grown(64, 101.0)),
    "made/JOB007": _few_cpus_used,
    "made/JOB009": lambda: (
        TargetSnapshot("17", 2000.0, job=test_efficiency.job("COMPLETED", 3600, 86400)),
        History(),
    ),
    "made/JOB017": _no_log,
    "made/JOB019": _nothing_saved,
    "made/JOB020": _braked,
    "made/NUM011": _decayed_rate,
    "made/MEM012": lambda: _measured(
        hosts(130, memory_stall_pct=30.0, swap_used_mib=lambda n: 100.0 + 20 * n), 1130.0
    ),
}
"""Name → a snapshot in which the rule of its name fires."""
