"""Make the folders of `hosts/` again: `python tests/recordings/make_host_recordings.py [NAME…]`.

Real programs that use a node as their folder's name says, under the real sampler; the GPUs beside them are
the stand-in's.
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
LEAKING = (
    "import sys\nkept = []\nfor line in sys.stdin:\n    kept.append(b'x' * int(line))\n    print('done', "
    "flush=True)"
)
WORKING = "while True:\n    pass"
_SAMPLE = """
import os, sys, time
from pathlib import Path
from coach import runs
from coach.node.sample import Writer
from coach.node.sampler import Moment, Options, Sampler

options = Options("node1", int(sys.argv[2]), gpu_limit_s=60.0, ignored=(os.getpid(),))
sampler = Sampler(options, os.environ)
writer = Writer(sampler, runs.RunPaths(Path(sys.argv[1])), "node1", None)
begin = time.monotonic()
for line in sys.stdin:
    after_s = float(line)
    writer.tick(Moment(float(sys.argv[3]) + after_s, begin + after_s))
    print("done", flush=True)
"""


def answer(program: subprocess.Popen[str], line: str) -> None:
    """Tell it the next line, and wait until it has done it."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{line}\n")
    program.stdin.flush()
    program.stdout.readline()


def python(program: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def leak(run_dir: Path, mib_per_tick: int) -> None:
    """A leaking program with a limit of 3 GiB. Only the clock is passed in: ten seconds a tick."""
    program = python(LEAKING)
    sampler = python(
        _SAMPLE, str(run_dir), str(os.getpid()), str(BEGIN_S), env={"SLURM_MEM_PER_NODE": "3072"}
    )
    for tick in range(70):
        answer(program, str(mib_per_tick * 2**20))
        answer(sampler, str(10 * tick))
    for each in (program, sampler):
        each.stdin.close()  # type: ignore[union-attr] # it was opened with a pipe
        each.wait()


def leaking(run_dir: Path) -> None:
    leak(run_dir, 20)


def steady(run_dir: Path) -> None:
    leak(run_dir, 0)


def cpu_bound(run_dir: Path) -> None:
    """All CPUs at work for two minutes, beside a GPU that has little to do."""
    nvml = NvmlStandIn(run_dir.parent / "nvml")
    nvml.set_gpus([{"name": "NVIDIA_A100-SXM4-80GB", "util": 14, "power_mw": 90_000, "limit_mw": 400_000}])
    work = (
        "import os, threading, subprocess, sys\nall = [subprocess.Popen([sys.executable, '-c', "
        f"{WORKING!r}]) for _ in os.sched_getaffinity(0)]\n"
    )
    program = python(work + "sys.stdin.read()\nfor each in all:\n    each.kill()\n    each.wait()")
    begin = time.time()
    sampler = python(_SAMPLE, str(run_dir), str(program.pid), str(begin), env=nvml.env)
    for tick in range(132):
        time.sleep(max(0.0, begin + tick - time.time()))  # the sampler's own pace
        answer(sampler, str(time.time() - begin))
    for each in (program, sampler):
        each.stdin.close()  # type: ignore[union-attr] # it was opened with a pipe
        each.wait()


def hanging(run_dir: Path) -> None:
    """Two ranks over gloo: for more than six minutes one waits in a collective that the other never
    enters."""
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", str(HERE / "several_ranks.py")]
    program = subprocess.Popen([sys.executable, "-m", *command, "hanging", str(run_dir)])
    begin = time.time()
    sampler = python(_SAMPLE, str(run_dir), str(os.getpid()), str(begin))
    try:
        for tick in range(125):
            time.sleep(max(0.0, begin + 4 * tick - time.time()))  # the sampler's own pace
            answer(sampler, str(time.time() - begin))
    finally:
        program.terminate()
        program.wait()
        sampler.kill()
        sampler.wait()


PROGRAMS: dict[str, Callable[[Path], None]] = {
    "leaking": leaking,
    "steady": steady,
    "cpu-bound": cpu_bound,
    "hanging": hanging,
}


def record(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / name
        (run_dir / "telemetry").mkdir(parents=True)
        PROGRAMS[name](run_dir)
        target = HERE / "hosts" / name
        shutil.rmtree(target, ignore_errors=True)
        (target / "telemetry").mkdir(parents=True)
        lines = (run_dir / "telemetry" / "node1.jsonl").read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["kind"] in ("host", "gpu")]
        (target / "telemetry" / "node1.jsonl").write_text("".join(kept))
        if (run_dir / "metrics").exists():
            shutil.copytree(run_dir / "metrics", target / "metrics")
    told = {"schema": 1, "run_id": f"20261121-040000-{name}-0000", "recipe": "baseline", "state": "COMPLETED"}
    told |= {"backend": "slurm", "parameters": {"batch_size": 64, "num_workers": 2}}
    told |= {"resources": {"num_nodes": 1, "nproc_per_node": 1, "cpus_per_task": 2, "mem": "3G"}}
    runs.write_json(target / "run.json", told)


def main() -> None:
    for name in sys.argv[1:] or PROGRAMS:
        record(name)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
