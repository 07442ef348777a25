"""Each value of NVML is written to its field of the records, and each missing value to a gap, through the
real binding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pynvml
import pytest

from coach import runs
from coach.model.training.telemetry import GpuHealth, GpuLink, GpuSample, HostSample, ProcessSample
from coach.node import sampler as sampler_module
from coach.node.gpus import Gpus, Sample
from coach.node.sampler import GpuWatch, Moment, Options, Sampler
from coach.sources.metrics.telemetry_files import parse_records
from tests.node.conftest import Start, of_kind, sampled
from tests.nvml.stand_in import NvmlStandIn
from tests.waiting import wait_until

Once = Callable[..., list[dict[str, Any]]]

# All values differ, so a test notices swapped fields.
TALKATIVE = {
    "util": 97,
    "used_mib": 40000,
    "power_mw": 650500,
    "limit_mw": 660000,
    "temp": 61,
    "mem_temp": 71,
    "sm": 1700,
    "max_sm": 1980,
    "mem": 2600,
    "max_mem": 2619,
    "reasons": "0x84",
    "pcie": "4:8:5:16",
    "pcie_kb": "1024:2048",
    "replays": 3,
    "nvlinks": "18:17",
    "nvlink_kib": "1000:2000",
    "nvlink_errors": "1:2:5:7",
    "ecc": "11:12:13:14",
    "rows": "21:22:1:0",
    "pages": "31:32:1",
    "limits": "92:89:95:87",
    "persistence": 0,
    "compute_mode": 3,
    "gpm": "41:42:43:44",
}


@pytest.fixture
def once(start: Start, nvml_stand_in: NvmlStandIn) -> Once:
    """One sample of the stand-in's GPUs."""

    def sample(*options: str, **env: str) -> list[dict[str, Any]]:
        sampler = start("sample", "--once", *options, env={**nvml_stand_in.env, **env})
        output, errors = sampler.communicate(timeout=30)
        assert errors == ""
        assert all(len(line) < runs.MAX_TELEMETRY_RECORD_BYTES for line in output.encode().splitlines())
        return [json.loads(line) for line in output.splitlines()]

    return sample


def _of(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["kind"] == kind]


def _gaps(records: list[dict[str, Any]]) -> dict[str, str]:
    return {gap["what"]: gap["because"] for gap in _of(records, "gap") if gap["what"].startswith("gpu")}


def test_every_value_of_a_gpu_reaches_the_model(once: Once, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set_gpus([TALKATIVE])
    records = once("--gpm")
    assert _gaps(records) == {}
    samples, num_bad = parse_records(records)
    assert num_bad == 0
    [gpu] = [sample for sample in samples if isinstance(sample, GpuSample)]
    assert gpu == GpuSample(
        node="node1",
        time_s=gpu.time_s,
        gpu=0,
        uuid="GPU-stand-in-0000",
        name="Stand-in H100 80GB",
        utilization_pct=97,
        memory_utilization_pct=48,
        memory_used_mib=40000,
        memory_total_mib=81559,
        power_w=650.5,
        power_limit_w=660.0,
        temperature_c=61,
        memory_temperature_c=71,
        sm_clock_mhz=1700,
        max_sm_clock_mhz=1980,
        memory_clock_mhz=2600,
        max_memory_clock_mhz=2619,
        clocks_event_reasons=("sw_power_cap", "hw_power_brake_slowdown"),
        sm_activity_pct=41,
        sm_occupancy_pct=42,
        tensor_activity_pct=43,
        dram_activity_pct=44,
    )
    [link] = [sample for sample in samples if isinstance(sample, GpuLink)]
    assert link == GpuLink(
        node="node1",
        time_s=gpu.time_s,
        gpu=0,
        uuid="GPU-stand-in-0000",
        pcie_generation=4,
        pcie_width=8,
        max_pcie_generation=5,
        max_pcie_width=16,
        pcie_tx_mib_s=1.0,
        pcie_rx_mib_s=2.0,
        pcie_replays=3,
        num_nvlinks=18,
        num_active_nvlinks=17,
        nvlink_tx_mib_s=0.0,
        nvlink_rx_mib_s=0.0,
        nvlink_crc_errors=3,
        nvlink_replays=5,
        nvlink_recoveries=7,
    )
    [health] = [sample for sample in samples if isinstance(sample, GpuHealth)]
    assert health == GpuHealth(
        node="node1",
        time_s=gpu.time_s,
        gpu=0,
        uuid="GPU-stand-in-0000",
        has_ecc=True,
        ecc_volatile_corrected=11,
        ecc_volatile_uncorrected=12,
        ecc_aggregate_corrected=13,
        ecc_aggregate_uncorrected=14,
        remapped_rows_corrected=21,
        remapped_rows_uncorrected=22,
        is_row_remap_pending=True,
        has_row_remap_failed=False,
        retired_pages_single_bit=31,
        retired_pages_double_bit=32,
        is_page_retirement_pending=True,
        shutdown_temperature_c=92,
        slowdown_temperature_c=89,
        max_memory_temperature_c=95,
        max_temperature_c=87,
        is_persistent=False,
        compute_mode="exclusive_process",
        is_mig=False,
    )


def test_the_sampler_writes_nothing_that_the_model_does_not_know(
    once: Once, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{**TALKATIVE, "process": f"{os.getpid()}:300"}])
    records = once("--gpm")
    samples, _ = parse_records(records)
    assert len(samples) == len(records)
    for record, sample in zip(records, samples, strict=True):
        assert set(record) - {"kind"} <= {field.name for field in fields(sample)} | {"time_s"}, record["kind"]


def test_gpm_is_not_touched_unless_asked_for(once: Once, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set_gpus([TALKATIVE])
    assert "sm_activity_pct" not in _of(once(), "gpu")[0]


# The stand-in's name of the missing value, the field that is then absent, and the name of the gap.
LACKING = [
    ("util", "utilization_pct", "gpu.utilization"),
    ("memory", "memory_used_mib", "gpu.memory"),
    ("power", "power_w", "gpu.power"),
    ("limit", "power_limit_w", "gpu.power_limit"),
    ("temp", "temperature_c", "gpu.temperature"),
    ("mem_temp", "memory_temperature_c", "gpu.memory_temperature"),
    ("reasons", "clocks_event_reasons", "gpu.clocks_event_reasons"),
    ("processes", "gpus", "gpu.processes"),
    ("gpm", "sm_activity_pct", "gpu.gpm"),
    ("pcie", "pcie_generation", "gpu.links"),
    ("throughput", "pcie_tx_mib_s", "gpu.links"),
    ("nvlink", "num_nvlinks", "gpu.links"),
    ("ecc", "has_ecc", "gpu.health"),
    ("rows", "remapped_rows_corrected", "gpu.health"),
    ("pages", "retired_pages_single_bit", "gpu.health"),
    ("limits", "slowdown_temperature_c", "gpu.health"),
    ("persistence", "is_persistent", "gpu.health"),
    ("compute_mode", "compute_mode", "gpu.health"),
    ("mig", "is_mig", "gpu.health"),
    ("events", "xid", "gpu.xid"),
]


OPTIONAL = {"mem_temp", "nvlink", "pages", "mig"}


@pytest.mark.parametrize(
    ("how", "said"), [("unsupported", "Not Supported"), ("denied", "Insufficient Permissions")]
)
def test_a_value_that_a_device_does_not_report_is_absent_and_a_gap_names_it(
    once: Once, nvml_stand_in: NvmlStandIn, how: str, said: str
) -> None:
    nvml_stand_in.set_gpus({**TALKATIVE, how: what} for what, _, _ in LACKING)
    records = once("--gpm")
    for gpu, (lacking, field, what) in enumerate(LACKING):
        own = [record for record in records if record.get("gpu") == gpu]
        assert not any(field in record for record in own), field
        gaps = [gap for gap in _of(records, "gap") if gap["because"].endswith(f" of GPU {gpu}: {said}")]
        if how == "denied" or lacking not in OPTIONAL:
            assert [gap["what"] for gap in gaps] == [what]
            assert ("administrators" in gaps[0]["how"]) == (how == "denied")
        else:
            assert gaps == [], "a device without such hardware is no gap"
        for _, other, _ in LACKING[:7]:
            assert other == field or any(other in record for record in own), "the rest is told all the same"


def test_devices_that_lack_the_same_value_share_one_gap(once: Once, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set_gpus([{"unsupported": "pcie,ecc,rows"}] * 4 + [{"unsupported": "pcie"}])
    records = once()
    assert _gaps(records) == {
        "gpu.links": "PCIe link, PCIe replays of GPU 0-4: Not Supported",
        "gpu.health": "ECC, row remapping of GPU 0-3: Not Supported",
    }


def test_an_ecc_that_is_off_counts_nothing_rather_than_zero(once: Once, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set_gpus([{"ecc_off": 1}])
    [health] = _of(once(), "gpu_health")
    assert health["has_ecc"] is False
    assert not any(name.startswith("ecc") for name in health)


def test_a_divided_gpu_is_replaced_by_its_mig_instances(once: Once, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set_gpus(
        [
            {**TALKATIVE, "temp": 50},
            {"parent": 0, "used_mib": 500, "total_mib": 9728, "gpm": "1:2:3:4"},
            {
                "parent": 0,
                "used_mib": 700,
                "total_mib": 9728,
                "gpm": "5:6:7:8",
                "process": f"{os.getpid()}:600",
            },
            {"util": 5},
        ]
    )
    records = once("--gpm")
    first, second, undivided = _of(records, "gpu")
    assert [gpu["uuid"] for gpu in (first, second, undivided)] == [
        "MIG-stand-in-0001",
        "MIG-stand-in-0002",
        "GPU-stand-in-0003",
    ]
    assert (second["gpu"], second["whole_uuid"]) == (1, "GPU-stand-in-0000")
    assert (second["memory_used_mib"], second["sm_activity_pct"], second["temperature_c"]) == (700, 5.0, 50)
    assert not {"power_w", "power_limit_w", "utilization_pct"} & {*first, *second}
    assert undivided["utilization_pct"] == 5
    assert "GPU 0-1: MIG instances;" in _gaps(records)["gpu.power"]
    assert "power_w" in undivided
    assert [health["is_mig"] for health in _of(records, "gpu_health")] == [True, True, False]
    only_one = once(CUDA_VISIBLE_DEVICES="MIG-stand-in-0002")
    assert [gpu["memory_used_mib"] for gpu in _of(only_one, "gpu")] == [700]
    assert "GPU 0: a MIG instance;" in _gaps(only_one)["gpu.power"]


def test_a_sampler_that_sees_fewer_gpus_than_the_job_has_says_how_many(
    once: Once, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 1}] * 8)
    records = once(CUDA_VISIBLE_DEVICES="0,1,2,3,4,5", SLURM_GPUS_ON_NODE="8")
    assert _gaps(records)["gpu.utilization"].startswith("6 of the job's 8 GPUs on this node are visible")
    host = parse_records(_of(records, "host"))[0][0]
    assert isinstance(host, HostSample)
    assert (host.num_gpus, host.num_gpus_allotted) == (6, 8)


@pytest.mark.parametrize(
    ("visible", "seen", "lost"),
    [
        ("0,2", {0: 5, 1: 7}, None),
        ("0,1,2", {0: 5, 2: 7}, "gpu.1"),
        (None, {0: 5, 2: 7}, "gpu.1"),
        ("GPU-stand-in-0000,GPU-stand-in-0001,GPU-stand-in-0002", {0: 5, 2: 7}, "gpu.1"),
        ("1", {}, "gpu.0"),
    ],
)
def test_a_gpu_that_has_fallen_off_the_bus_costs_no_other_one_of_the_node(
    once: Once, nvml_stand_in: NvmlStandIn, visible: str | None, seen: dict[int, int], lost: str | None
) -> None:
    nvml_stand_in.set_gpus([{"util": 5}, {"fallen": 1}, {"util": 7}])
    records = once(**({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    assert {gpu["gpu"]: gpu["utilization_pct"] for gpu in _of(records, "gpu")} == seen
    assert _gaps(records) == ({} if lost is None else {lost: f"GPU {lost[-1]} is lost"})


def test_each_process_on_a_gpu_is_shown_with_its_rank_and_its_memory(
    once: Once, start: Start, nvml_stand_in: NvmlStandIn
) -> None:
    rank = start("sample", "--stream", "--interval", "60", env={"RANK": "11", "LOCAL_RANK": "3"})
    nvml_stand_in.set_gpus([{"process": [f"{rank.pid}:300", "99999999:7"]}, {"process": f"{rank.pid}:200"}])
    tasks = Path(f"/proc/{rank.pid}/task")
    wait_until(lambda: len(list(tasks.iterdir())) > 1, what="its second thread")
    samples, _ = parse_records(_of(once(), "process"))
    assert isinstance(samples[0], ProcessSample), "those on a GPU come first"
    assert (samples[0].pid, samples[0].gpu_memory_mib, samples[0].gpus) == (rank.pid, 500, (0, 1))
    assert (samples[0].rank, samples[0].local_rank) == (11, 3)
    assert samples[0].num_threads is not None
    assert samples[0].num_threads > 1
    assert samples[0].read_mib_s is not None


def test_a_driver_older_than_the_binding_still_gives_every_value(start: Start, tmp_path: Path) -> None:
    old_driver = NvmlStandIn(tmp_path / "old", is_old=True)
    old_driver.set_gpus([{**TALKATIVE, "process": f"{os.getpid()}:300"}])
    output, _ = start("sample", "--once", "--gpm", env=old_driver.env).communicate(timeout=30)
    records = [json.loads(line) for line in output.splitlines()]
    assert _gaps(records) == {}
    assert _of(records, "gpu")[0]["clocks_event_reasons"] == ["sw_power_cap", "hw_power_brake_slowdown"]
    assert _of(records, "process")[0]["gpu_memory_mib"] == 300


def test_a_binding_that_lacks_functions_loses_only_their_fields(
    once: Once, nvml_stand_in: NvmlStandIn, tmp_path: Path
) -> None:
    # As in nvidia-ml-py 12.535, which has no _v2, and in an even older version.
    older = Path(pynvml.__file__).read_text()
    for name in ("ComputeRunningProcesses_v2", "ComputeRunningProcesses_v3", "PowerUsage"):
        older = older.replace(f"def nvmlDeviceGet{name}(", f"def _without_{name}(")
    older += "\ndef nvmlDeviceGetComputeRunningProcesses(handle):\n"
    older += "    return _without_ComputeRunningProcesses_v3(handle)\n"
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "pynvml.py").write_text(older)
    nvml_stand_in.set_gpus([{**TALKATIVE, "process": f"{os.getpid()}:300"}])
    records = once(PYTHONPATH=str(tmp_path / "older"))
    [gpu] = _of(records, "gpu")
    assert (gpu["utilization_pct"], gpu["memory_used_mib"], "power_w" in gpu) == (97, 40000, False)
    assert _of(records, "process")[0]["gpu_memory_mib"] == 300
    [gap] = [gap for gap in _of(records, "gap") if gap["what"] == "gpu.power"]
    assert gap["how"] == "a newer nvidia-ml-py reports it"
    assert _of(records, "gpu_health"), "all else is told"


def test_a_driver_that_cannot_be_opened_is_tried_once_a_minute_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[None] = []

    def fails(*_: object) -> Gpus:
        opened.append(None)
        raise ValueError("no such thing")

    monkeypatch.setattr(sampler_module, "Gpus", fails)
    sampler = Sampler(Options("node1", os.getpid(), gpu_limit_s=5.0), {})
    said = [line for second in range(130) for line in sampler.sample(Moment(second, second))]
    assert len(opened) == 3
    assert sum(b"no such thing" in line for line in said) == 1
    assert sum(b"no such thing" in line for line in sampler.gap_lines(Moment(130, 130))) == 1


@pytest.mark.parametrize(("took_s", "num_records"), [(0.6, 1), (7.0, 0)])
def test_an_answer_that_waits_for_the_next_sample_is_as_old_as_it_took(
    monkeypatch: pytest.MonkeyPatch, took_s: float, num_records: int
) -> None:
    clock_s = [0.0]

    class Slow:
        counts = None

        def sample(self, _: float) -> Sample:
            clock_s[0] += took_s
            return Sample([{"kind": "gpu"}], {}, [])

    monkeypatch.setattr(sampler_module, "Gpus", lambda *_: Slow())
    monkeypatch.setattr("coach.node.sampler.time.monotonic", lambda: clock_s[0])
    watch = GpuWatch({}, False, 10.0)
    watch.sample(0.0, 0.0)  # opens the driver, and is over before the answer comes
    answer = watch.sample(10.0, 20.0)
    assert len(answer.records) == num_records
    silent = [] if num_records else ["the driver has not answered for 7 s"]
    assert [because for _, because, _ in answer.gaps] == silent


def test_an_xid_comes_at_once_and_names_the_gpu(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 1}, {"util": 1}])
    sampled(start, tmp_path, env=nvml_stand_in.env)
    wait_until(lambda: of_kind(tmp_path, "gpu"))
    nvml_stand_in.set_gpus([{"util": 1}, {"xid": 79, "lost": 1}])
    [event] = wait_until(lambda: of_kind(tmp_path, "gpu_event"))
    assert (event["gpu"], event["uuid"], event["xid"]) == (1, "GPU-stand-in-0001", 79)


def test_a_driver_that_hangs_costs_its_gpus_and_nothing_else(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"util": 1}])
    sampled(start, tmp_path, env=nvml_stand_in.env)
    wait_until(lambda: of_kind(tmp_path, "gpu"))
    nvml_stand_in.set_gpus([{"util": 2, "hang": "power", "xid": 119}])
    wait_until(lambda: of_kind(tmp_path, "gpu_event"), what="an Xid of the GPU that no longer answers")
    seen = len(of_kind(tmp_path, "host"))
    wait_until(lambda: of_kind(tmp_path, "host")[seen + 20 :], what="samples of the host")
    [gap] = wait_until(lambda: of_kind(tmp_path, "gap"))
    assert gap["because"] == "the driver has not answered for 5 s"
    assert 2 not in {gpu["utilization_pct"] for gpu in of_kind(tmp_path, "gpu")}
    nvml_stand_in.set_gpus([{"util": 3}])
    wait_until(lambda: of_kind(tmp_path, "gpu")[-1]["utilization_pct"] == 3, what="the GPU again")


def test_a_driver_that_hangs_when_it_is_opened_does_not_hold_up_the_first_sample(
    start: Start, tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus([{"hang": "mig"}])
    sampled(start, tmp_path, env=nvml_stand_in.env)
    wait_until(lambda: of_kind(tmp_path, "host")[3:])
    assert of_kind(tmp_path, "gpu") == []
