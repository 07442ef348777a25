"""On a real GPU: the sampler's values beside those of nvidia-smi in the same second, and the sampler's
gaps."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from coach.model.training.telemetry import GpuHealth, GpuLink, GpuSample
from coach.sources.metrics.telemetry_files import parse_records
from tests.node.conftest import Start
from tests.waiting import wait_until

pytestmark = pytest.mark.gpu

_QUERY = {
    "uuid": "uuid",
    "name": "name",
    "memory_used_mib": "memory.used",
    "memory_total_mib": "memory.total",
    "power_limit_w": "enforced.power.limit",
    "temperature_c": "temperature.gpu",
    "max_sm_clock_mhz": "clocks.max.sm",
    "max_memory_clock_mhz": "clocks.max.memory",
    "max_pcie_generation": "pcie.link.gen.max",
    "pcie_width": "pcie.link.width.current",
    "max_pcie_width": "pcie.link.width.max",
    "ecc_volatile_corrected": "ecc.errors.corrected.volatile.total",
    "ecc_volatile_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "ecc_aggregate_corrected": "ecc.errors.corrected.aggregate.total",
    "ecc_aggregate_uncorrected": "ecc.errors.uncorrected.aggregate.total",
}
# Tolerance for values that move between two queries of the same second.
_TOLERANCE = {"memory_used_mib": 64.0, "temperature_c": 3.0, "memory_total_mib": 1.0, "power_limit_w": 0.5}


def _nvidia_smi() -> list[dict[str, str]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY.values())}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout
    return [dict(zip(_QUERY, line.split(", "), strict=True)) for line in output.splitlines()]


def _sample(
    start: Start, *options: str
) -> tuple[list[GpuSample | GpuLink | GpuHealth], list[dict[str, Any]]]:
    output, errors = start("sample", "--once", *options).communicate(timeout=60)
    assert errors == ""
    records = [json.loads(line) for line in output.splitlines()]
    samples, num_bad = parse_records(records)
    assert num_bad == 0
    gpus = [sample for sample in samples if isinstance(sample, GpuSample | GpuLink | GpuHealth)]
    return gpus, [record for record in records if record["kind"] == "gap"]


def test_the_sampler_and_nvidia_smi_agree(start: Start) -> None:
    said = {row["uuid"]: row for row in _nvidia_smi()}
    samples, gaps = _sample(start)
    assert {sample.uuid for sample in samples} == set(said)
    num_compared = 0
    for sample in samples:
        for field, text in said[str(sample.uuid)].items():
            value = getattr(sample, field, None)
            if text.startswith("[") or field in ("uuid", "name") or value is None:
                continue
            assert value == pytest.approx(float(text), abs=_TOLERANCE.get(field, 0)), (field, gaps)
            num_compared += 1
    assert num_compared >= 8 * len(said)


def test_every_field_has_a_value_or_is_a_gap(start: Start) -> None:
    samples, gaps = _sample(start)
    words = " ".join(f"{gap['what']} {gap['because']}" for gap in gaps)
    for sample in samples:
        if isinstance(sample, GpuSample):
            for field in ("utilization_pct", "memory_used_mib", "power_w", "temperature_c", "sm_clock_mhz"):
                assert getattr(sample, field) is not None or f"gpu.{field.rpartition('_')[0]}" in words, field
        elif isinstance(sample, GpuLink):
            assert sample.pcie_generation is not None or "PCIe link" in words
            assert sample.pcie_tx_mib_s is not None or "PCIe throughput" in words
            assert sample.num_nvlinks is not None or "NVLink" in words
        else:
            assert sample.has_ecc is not None or "ECC" in words
            assert sample.remapped_rows_corrected is not None or "row remapping" in words
            assert sample.slowdown_temperature_c is not None or "temperature limits" in words


_BUSY = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    a = a @ a
    a /= a.norm()
    torch.cuda.synchronize()
"""


@pytest.mark.train
def test_a_busy_gpu_shows_its_users_and_the_activity_of_its_tensor_cores(start: Start) -> None:
    busy = subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"ready\n"

        def used() -> GpuSample | None:
            samples, gaps = _sample(start, "--gpm")
            has_gpm = not any(gap["what"] == "gpu.gpm" for gap in gaps)
            for sample in samples:
                if isinstance(sample, GpuSample) and (sample.utilization_pct or 0) > 50:
                    assert (sample.tensor_activity_pct is not None) == has_gpm
                    assert not has_gpm or (sample.tensor_activity_pct or 0) > 1
                    return sample
            return None

        assert wait_until(used, what="a GPU in use")
    finally:
        busy.kill()
        busy.communicate()
