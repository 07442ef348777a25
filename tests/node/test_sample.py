"""The sampler's records on machines with GPUs, without GPUs, and with broken ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from coach import runs
from coach.model.training.telemetry import GpuSample
from coach.node.processes import read_stat
from coach.node.sample import keep_pace
from coach.sources.metrics.telemetry_files import parse_records
from tests.node.conftest import Start, of_kind, sampled, telemetry
from tests.nvml.stand_in import NvmlStandIn
from tests.waiting import wait_until


def test_without_a_driver_the_sampler_says_so_and_still_measures_cpu_and_memory(
    start: Start, tmp_path: Path
) -> None:
    sampled(start, tmp_path, env={"NVML_STAND_IN": "", "LD_LIBRARY_PATH": ""})
    start("sample", "--stream", "--interval", "60")  # a process of the job
    host = wait_until(
        lambda: [r for r in of_kind(tmp_path, "host") if r["num_processes"] and r.get("cpu_pct") is not None]
    )[0]
    if not Path("/dev/nvidiactl").exists():
        [gap] = wait_until(lambda: of_kind(tmp_path, "gap"))
        assert (gap["what"], gap["because"]) == ("gpu.utilization", "no NVIDIA driver")
    assert 0 <= host["cpu_pct"] <= 100
    assert 0 < host["memory_used_mib"] < host["memory_limit_mib"]
    assert host["num_processes"] >= 1


def test_gpu_records_carry_the_values_of_nvml(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus(
        [
            {"util": 12},
            {"util": 87, "used_mib": 40000, "power_mw": 650500, "temp": 61, "sm": 1700, "reasons": "0x24"},
        ]
    )
    sampled(start, tmp_path, env={**nvml_stand_in.env, "CUDA_VISIBLE_DEVICES": "1,GPU-stand-in-0000"})
    first, second = wait_until(lambda: of_kind(tmp_path, "gpu")[:2])
    assert (first["gpu"], first["uuid"], first["utilization_pct"]) == (0, "GPU-stand-in-0001", 87)
    assert (first["memory_used_mib"], first["memory_total_mib"]) == (40000, 81559)
    assert (first["power_w"], first["power_limit_w"]) == (650.5, 700.0)
    assert (first["temperature_c"], first["sm_clock_mhz"], first["max_sm_clock_mhz"]) == (61, 1700, 1980)
    assert first["clocks_event_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert (second["gpu"], second["uuid"], second["utilization_pct"]) == (1, "GPU-stand-in-0000", 12)
    nvml_stand_in.set_gpus([{"util": 1}, {"util": 99}])
    wait_until(lambda: 99 in [r["utilization_pct"] for r in of_kind(tmp_path, "gpu")], what="new values")


def test_a_field_that_a_gpu_does_not_tell_is_absent_and_said_once(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 50, "unsupported": "power,util"}])
    sampled(start, tmp_path, env=nvml_stand_in.env)
    wait_until(lambda: len(of_kind(tmp_path, "gpu")) > 3)
    assert not any({"utilization_pct", "power_w"} & set(record) for record in of_kind(tmp_path, "gpu"))
    assert all(record["temperature_c"] == 30 for record in of_kind(tmp_path, "gpu"))
    assert sorted(record["what"] for record in of_kind(tmp_path, "gap")) == ["gpu.power", "gpu.utilization"]


def test_a_gpu_that_is_lost_in_the_middle_becomes_a_gap(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 50}, {"util": 60}])
    sampled(start, tmp_path, env=nvml_stand_in.env)
    wait_until(lambda: of_kind(tmp_path, "gpu"))
    nvml_stand_in.set_gpus([{"util": 51}, {"lost": 1}])
    [gap] = wait_until(lambda: of_kind(tmp_path, "gap"))
    assert gap["because"] == "GPU 1 is lost"
    assert gap["what"] == "gpu.1"
    seen = len(of_kind(tmp_path, "gpu"))
    later = wait_until(lambda: of_kind(tmp_path, "gpu")[seen + 2 :])
    assert {record["gpu"] for record in later} == {0}


def test_processes_carry_their_rank_and_hostile_names_stay_short(start: Start, tmp_path: Path) -> None:
    code = (
        "import ctypes, os\nctypes.CDLL(None).prctl(15, b'a) R 1\\n\\x1b[31m\\xff', 0, 0, 0)\n"
        "print('ready', flush=True)\ninput()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "RANK": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        sampled(start, tmp_path)
        found = wait_until(lambda: [r for r in of_kind(tmp_path, "process") if r["pid"] == child.pid])
        assert found[0]["name"] == "a) R 1\n\x1b[31m\ufffd"
        assert found[0]["rank"] == 3
        assert found[0]["rss_mib"] > 1
        path = tmp_path / "telemetry" / "node1.jsonl"
        assert all(len(line) < runs.MAX_TELEMETRY_RECORD_BYTES for line in path.read_bytes().splitlines())
    finally:
        child.kill()
        child.communicate()


def test_only_one_of_two_samplers_on_a_node_writes_until_the_other_takes_over(
    start: Start, tmp_path: Path
) -> None:
    first = sampled(start, tmp_path)
    wait_until(lambda: telemetry(tmp_path))
    start(
        "sample",
        "--run-dir",
        str(tmp_path),
        "--node",
        "node1",
        "--interval",
        "0.05",
        "--pid",
        str(os.getpid()),
    )
    times = [record["time_s"] for record in wait_until(lambda: of_kind(tmp_path, "host")[20:])]
    assert len(times) == len(set(times))
    first.kill()
    first.wait()
    seen = len(telemetry(tmp_path))
    wait_until(lambda: len(telemetry(tmp_path)) > seen, what="samples of the second")


def test_one_sample_on_standard_output_is_lines_of_json(start: Start) -> None:
    stdout, stderr = start("sample", "--once").communicate(timeout=30)
    kinds = [json.loads(line)["kind"] for line in stdout.splitlines()]
    assert "host" in kinds
    assert "process" in kinds
    assert stderr == ""


def test_a_late_sample_is_skipped_and_the_pace_does_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    ticks: list[float] = []

    def pass_by(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def tick() -> None:
        ticks.append(now_s - 100.0)
        pass_by(0.15 if len(ticks) == 2 else 0.01)

    monkeypatch.setattr("coach.node.sample.time", SimpleNamespace(monotonic=lambda: now_s, sleep=pass_by))
    keep_pace(0.1, lambda: len(ticks) < 4, tick)
    assert ticks == pytest.approx([0.0, 0.1, 0.3, 0.4])


def test_without_saying_where_to_it_does_not_start(start: Start) -> None:
    sampler = start("sample")
    _, errors = sampler.communicate(timeout=30)
    assert sampler.returncode == 2
    assert "one of the arguments --run-dir --stream --once is required" in errors


def test_a_stream_is_short_lines_that_the_source_understands(
    start: Start, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 50}] * 8)
    sampler = start("sample", "--stream", "--interval", "0.05", env=nvml_stand_in.env)
    assert sampler.stdout is not None
    lines = [sampler.stdout.readline() for _ in range(200)]
    assert all(line.endswith("}\n") and len(line) < runs.MAX_TELEMETRY_RECORD_BYTES for line in lines)
    samples, num_bad = parse_records(json.loads(line) for line in lines)
    assert num_bad == 0
    assert {sample.gpu for sample in samples if isinstance(sample, GpuSample)} == set(range(8))


def test_a_stream_waits_for_a_slow_reader_and_ends_when_the_reader_is_gone(
    start: Start, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 50}] * 8)
    sampler = start("sample", "--stream", "--interval", "0.001", env=nvml_stand_in.env)
    assert sampler.stdout is not None

    def is_held_up() -> bool:
        return "pipe" in Path(f"/proc/{sampler.pid}/wchan").read_text() or _is_asleep_in_write(sampler.pid)

    wait_until(is_held_up, what="a full pipe")
    before = read_stat(sampler.pid)
    begin = time.monotonic()
    oldest = json.loads(sampler.stdout.readline())["time_s"]
    assert time.time() - oldest < 60
    wait_until(lambda: time.monotonic() - begin > 0.3)
    after = read_stat(sampler.pid)
    assert before is not None
    assert after is not None
    assert after.rss_mib - before.rss_mib < 2, "what was not read is not kept"
    sampler.stdout.close()
    wait_until(lambda: sampler.poll() is not None, what="its end")
    assert sampler.returncode == -signal.SIGPIPE


def _is_asleep_in_write(pid: int) -> bool:
    syscall = Path(f"/proc/{pid}/syscall").read_text().split()
    return syscall[:2] == ["1", "0x1"]
