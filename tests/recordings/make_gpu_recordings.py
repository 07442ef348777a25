"""Make the folder `gpus` again: `python tests/recordings/make_gpu_recordings.py [NAME…]`.

It runs the real sampler with the real NVML binding on stand-in GPUs that fail like real ones. Only the clock
is passed in. Samples of this machine itself are removed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from coach import runs  # noqa: E402 (found by the line above)
from tests.nvml.stand_in import NvmlStandIn  # noqa: E402 (found by the line above)

BEGIN_S = 1_795_236_000.0
INTERVAL_S = 2
NUM_TICKS = 66
KINDS = ("gpu", "gpu_link", "gpu_health", "gpu_event")
Gpu = dict[str, object]

_SAMPLE = """
import os, sys, time
from pathlib import Path
from coach import runs
from coach.node.sample import Writer
from coach.node.sampler import Moment, Options, Sampler

paths = runs.RunPaths(Path(sys.argv[1]))
sampler = Sampler(Options("node1", os.getppid(), has_gpm=sys.argv[2] == "gpm", gpu_limit_s=60.0), os.environ)
writer = Writer(sampler, paths, "node1", None)
begin = time.monotonic()
for line in sys.stdin:
    after_s = float(line)
    writer.tick(Moment(float(sys.argv[3]) + after_s, begin + after_s))
    print("done", flush=True)
"""


def at_work(tick: int, **more: object) -> Gpu:
    """An H100 that trains: at its power limit, warm, its link at full speed."""
    shift = tick * 7 % 5 - 2
    values: Gpu = {
        "name": "NVIDIA_H100_80GB_HBM3",
        "util": 95 + shift,
        "used_mib": 61_000,
        "power_mw": 655_000 + 5_000 * shift,
        "sm": 1755,
        "temp": 64,
        "reasons": "4",
    }
    return {**values, **more}


def healthy(tick: int) -> list[Gpu]:
    """At rest for the first seconds, where the link sleeps; then power-capped at full load, as all GPUs are,
    with an old corrected error."""
    if tick < 3:
        rest = {"util": 0, "power_mw": 72_000, "sm": 345, "reasons": "1", "pcie": "1:16:5:16"}
        return [at_work(tick, **rest) for _ in range(2)]
    return [at_work(tick, used_mib=used, ecc="3:0:9:1", rows="1:1:0:0") for used in (61_000, 80_200)]


def throttled(tick: int) -> list[Gpu]:
    """One of two gets too hot after a third of the time."""
    hot = {"reasons": "48", "sm": 705, "temp": 91, "power_mw": 310_000} if tick > NUM_TICKS // 3 else {}
    return [at_work(tick), at_work(tick, **hot)]


def pcie(tick: int) -> list[Gpu]:
    return [at_work(tick), at_work(tick, pcie="5:4:5:16")]


def pcie_generation(tick: int) -> list[Gpu]:
    return [at_work(tick), at_work(tick, pcie="1:16:5:16")]


def nvlink(tick: int) -> list[Gpu]:
    return [at_work(tick), at_work(tick, nvlinks="18:12")]


def memory_errors(tick: int) -> list[Gpu]:
    """A double-bit error in the middle of the run."""
    return [at_work(tick), at_work(tick, ecc="0:2:0:2" if tick > NUM_TICKS // 2 else "0:0:0:0")]


def row_pending(tick: int) -> list[Gpu]:
    return [at_work(tick, rows="0:1:1:0"), at_work(tick)]


def xid(tick: int) -> list[Gpu]:
    """NVLink fails in the middle of the run; before it the program's own mistake."""
    number = 0 if tick < 20 else 31 if tick < 40 else 74
    return [at_work(tick, xid=number), at_work(tick)]


def underfed(tick: int) -> list[Gpu]:
    """A kernel runs all the time on a few of the multiprocessors."""
    return [at_work(tick, util=99, used_mib=9_000, gpm="6:4:0:3", power_mw=140_000, reasons="0")]


def well_fed(tick: int) -> list[Gpu]:
    return [at_work(tick, gpm="71:38:40:55")]


def uneven(tick: int) -> list[Gpu]:
    return [at_work(tick), at_work(tick), at_work(tick), at_work(tick, util=48, power_mw=390_000)]


def leaking(tick: int) -> list[Gpu]:
    """One of two keeps something of each step; the other needs more while its longest batches come."""
    return [
        at_work(tick, used_mib=30_000 + 300 * tick),
        at_work(tick, used_mib=30_000 + min(8_000, 1_500 * tick)),
    ]


PROGRAMS: dict[str, tuple[Callable[[int], list[Gpu]], int, int]] = {
    "healthy": (healthy, NUM_TICKS, INTERVAL_S),
    "throttled": (throttled, NUM_TICKS, INTERVAL_S),
    "pcie": (pcie, NUM_TICKS, INTERVAL_S),
    "pcie-generation": (pcie_generation, NUM_TICKS, INTERVAL_S),
    "nvlink": (nvlink, NUM_TICKS, INTERVAL_S),
    "memory-errors": (memory_errors, NUM_TICKS, INTERVAL_S),
    "row-pending": (row_pending, NUM_TICKS, INTERVAL_S),
    "xid": (xid, NUM_TICKS, INTERVAL_S),
    "underfed": (underfed, NUM_TICKS, INTERVAL_S),
    "well-fed": (well_fed, NUM_TICKS, INTERVAL_S),
    "uneven": (uneven, 68, 10),
    "leaking": (leaking, 68, 10),
}
"""Name → the GPUs at each tick, how many ticks, and the seconds between them."""


def record(name: str, folder: Path) -> None:
    gpus, num_ticks, interval_s = PROGRAMS[name]
    run_dir = folder / name
    (run_dir / "telemetry").mkdir(parents=True)
    nvml = NvmlStandIn(folder / "nvml")
    nvml.set_gpus(gpus(0))
    gpm = "gpm" if name in ("underfed", "well-fed") else "-"
    sampler = subprocess.Popen(
        [sys.executable, "-c", _SAMPLE, run_dir, gpm, str(BEGIN_S)],
        cwd=REPOSITORY,
        env={**os.environ, **nvml.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sampler.stdin is not None
    assert sampler.stdout is not None
    before: list[object] = []
    for tick in range(num_ticks):
        now = gpus(tick)
        nvml.set_gpus(now)
        numbers: list[object] = [gpu.get("xid") for gpu in now]
        if numbers != before:
            time.sleep(1.5)  # the driver's event comes by a thread, at its own time
        before = numbers
        sampler.stdin.write(f"{tick * interval_s}\n")
        sampler.stdin.flush()
        sampler.stdout.readline()
    sampler.stdin.close()
    sampler.wait()
    keep(run_dir, HERE / "gpus" / name)


def keep(run_dir: Path, target: Path) -> None:
    """The samples of the GPUs, and the record of a run that ended well."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "telemetry").mkdir(parents=True)
    lines = (run_dir / "telemetry" / "node1.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["kind"] in KINDS]
    (target / "telemetry" / "node1.jsonl").write_text("".join(kept))
    record = {"schema": 1, "run_id": f"20261121-040000-{run_dir.name}-0000", "recipe": run_dir.name}
    record |= {"state": "COMPLETED", "backend": "slurm", "parameters": {"batch_size": 64}}
    record |= {"resources": {"num_nodes": 1, "nproc_per_node": 2, "cpus_per_task": 8, "gpus_per_node": 2}}
    runs.write_json(target / "run.json", record)


def main() -> None:
    for name in sys.argv[1:] or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            record(name, Path(folder))
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
