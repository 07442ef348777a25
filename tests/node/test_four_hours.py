"""Four hours of sampling in minutes: the clock is passed in, everything else is real."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coach import runs
from coach.model.training.telemetry import GpuSample
from coach.node.telemetry_file import MAX_FILE_BYTES, MAX_OLD_FILES
from coach.sources.metrics.telemetry_files import parse_records
from tests.nvml.stand_in import NvmlStandIn

HOURS_S = 4 * 3600
REPOSITORY = Path(__file__).parents[2]

_SAMPLE = """
import json, os, sys, time
from pathlib import Path
from coach import runs
from coach.node.sample import Writer
from coach.node.sampler import Moment, Options, Sampler

paths, seconds = runs.RunPaths(Path(sys.argv[1])), int(sys.argv[2])
sampler = Sampler(Options("node1", os.getppid(), has_gpm=True, gpu_limit_s=60.0), os.environ)
writer = Writer(sampler, paths, "node1", None)
begin = Moment(1.7e9, time.monotonic())
for second in range(seconds):
    writer.tick(Moment(begin.wall_s + second, begin.monotonic_s + second))
    if second % 600 == 599:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = [path.stat().st_size for path in paths.telemetry_dir.rglob("*.jsonl")]
        print(json.dumps({"rss_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6, "files": files}), flush=True)
"""


@pytest.mark.long
def test_memory_stays_flat_files_stay_bounded_and_the_whole_time_can_be_looked_back_on(
    tmp_path: Path, nvml_stand_in: NvmlStandIn
) -> None:
    nvml_stand_in.set_gpus({"util": 90 + gpu, "used_mib": 40000, "gpm": "40:30:20:10"} for gpu in range(8))
    paths = runs.RunPaths(tmp_path / "run")
    paths.telemetry_dir.mkdir(parents=True)
    job = [subprocess.Popen(["sleep", "600"], env={**os.environ, "RANK": str(rank)}) for rank in range(8)]
    try:
        sampler = subprocess.run(
            [sys.executable, "-c", _SAMPLE, str(paths.run_dir), str(HOURS_S)],
            cwd=REPOSITORY,
            env={**os.environ, **nvml_stand_in.env},
            stdout=subprocess.PIPE,
            timeout=300,
            check=True,
        )
    finally:
        for process in job:
            process.kill()
            process.wait()
    looks = [json.loads(line) for line in sampler.stdout.splitlines()]
    rss = [look["rss_mb"] for look in looks]
    assert max(rss) < 40
    assert max(rss[1:]) - rss[1] < 2
    assert all(len(look["files"]) <= MAX_OLD_FILES + 1 for look in looks)
    assert all(max(look["files"]) < 1.6 * MAX_FILE_BYTES for look in looks)
    times: set[float] = set()
    for path in paths.telemetry_dir.rglob("*.jsonl"):
        samples, num_bad = parse_records(runs.decode_records(path.read_bytes())[0])
        assert num_bad == 0
        times |= {sample.time_s for sample in samples if isinstance(sample, GpuSample) and sample.gpu == 7}
    ordered = sorted(times)
    assert ordered[-1] - ordered[0] == pytest.approx(HOURS_S, abs=60)
    assert max(b - a for a, b in itertools.pairwise(ordered)) <= 16
    assert max(b - a for a, b in itertools.pairwise(ordered[-600:])) <= 1
