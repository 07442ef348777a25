"""The profile recipe: a table, a trace and two numbers that are right."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from coach.analysis.measured.trace_report import report
from coach.sources.io import SystemIo
from coach.sources.metrics.trace_file import read_trace
from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = pytest.mark.train


def test_a_learner_finds_top_operators_idle_share_and_a_trace_of_the_steps_that_were_asked_for(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags = {"profile_wait": 2, "profile_warmup": 1, "profile_active": 3}
    done = trainer.run("profiled.py", tmp_path, max_steps=8, **flags)
    assert done.returncode == 0, done.stderr
    assert "profile of 3 steps" in done.stdout

    records = read_records(tmp_path)
    assert len(steps_in(records)) == 8
    found = event_in(records, "profile")
    assert (found["step"], found["num_steps"]) == (6, 3)
    assert 0 <= found["idle_share"] < 1
    operators = found["operators"]
    assert "convolution" in " ".join(operator["name"] for operator in operators)
    assert operators == sorted(operators, key=lambda operator: -operator["self_time_s"])
    assert 0.5 < sum(operator["share"] for operator in operators) <= 1
    assert sum(operator["self_time_s"] for operator in operators) <= 3 * found["step_time_s"] * 2  # 2 threads

    events = json.loads(gzip.decompress(Path(found["path"]).read_bytes()))["traceEvents"]
    names = {event["name"] for event in events if event.get("cat") == "user_annotation"}
    assert {name for name in names if name.startswith("ProfilerStep#")} == {
        "ProfilerStep#3",
        "ProfilerStep#4",
        "ProfilerStep#5",
    }
    assert "aten::convolution" in Path(found["table"]).read_text()
    assert Path(found["path"]).parent == tmp_path / "profile"

    told = report(read_trace(SystemIo(dict(os.environ)), Path(found["path"])))
    assert told.idle_share == pytest.approx(found["idle_share"])
    first = next(each for each in operators if each["name"].startswith("aten::"))
    assert told.top[0].name == first["name"]
    assert told.top[0].time_s == pytest.approx(first["self_time_s"], rel=0.02)


def test_a_run_shorter_than_the_wait_is_profiled_all_the_same(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("profiled.py", tmp_path, max_steps=2)
    assert done.returncode == 0, done.stderr
    assert event_in(read_records(tmp_path), "profile")["num_steps"] == 2


def test_overlapping_events_are_counted_once_on_a_cpu_and_on_a_gpu(trainer: Trainer, tmp_path: Path) -> None:
    def event(name: str, category: str, start_us: float, end_us: float) -> dict[str, object]:
        return {"ph": "X", "name": name, "cat": category, "ts": start_us, "dur": end_us - start_us}

    trace = tmp_path / "trace.json.gz"
    events = [
        event("ProfilerStep#7", "user_annotation", 1000, 2000),
        event("ProfilerStep#8", "user_annotation", 2000, 3000),
        # an annotation on the GPU is no work
        event("ProfilerStep#8", "gpu_user_annotation", 1500, 4000),
        event("aten::conv2d", "cpu_op", 1200, 1600),
        event("aten::convolution", "cpu_op", 1250, 1550),  # inside the one before
        event("aten::relu", "cpu_op", 1500, 1700),  # another thread
        event("aten::add", "cpu_op", 900, 1100),  # began before the profiled steps
        event("kernel a", "kernel", 2000, 3200),  # still at work when the host had finished the step
        event("kernel b", "kernel", 3000, 3500),  # another stream
        event("Memcpy HtoD", "gpu_memcpy", 1000, 1100),
        {"ph": "i", "name": "no duration"},
    ]  # fmt: skip
    trace.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    code = """
import json, sys
from pathlib import Path
import torch
from profiled import idle_share_in
print(json.dumps([idle_share_in(Path(sys.argv[1]), torch.device(name)) for name in ("cpu", "cuda")]))
"""
    done = trainer.python(code, trace)
    assert done.returncode == 0, done.stderr
    on_cpu, on_gpu = json.loads(done.stdout)
    # Of 2000 us, operators cover 1000 to 1100 and 1200 to 1700.
    assert on_cpu == pytest.approx([1 - 600 / 2000, 2e-3, 2])
    # The last kernel ends at 3500: of 2500 us, the device works from 1000 to 1100 and from 2000 to 3500.
    assert on_gpu == pytest.approx([1 - 1600 / 2500, 2.5e-3, 2])
