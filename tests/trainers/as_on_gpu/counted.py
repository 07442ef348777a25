"""Train some steps with each trainer and print how many values each step reads back: `counted.py RUN_DIR
CACHE_DIR NAME=FLAG,… …`.

To read a value of a tensor on a GPU is to wait for the GPU; on the CPU the reads can be counted. All trainers
run in this process, on one rank. `step` counts the reads between two calls of MetricsLog.step, `record` the
reads within each call.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

TRAINERS = Path(__file__).resolve().parents[3] / "trainers"
SMALL = {
    "max_steps": 11,
    "width": 8,
    "batch_size": 4,
    "num_train_samples": 256,
    "num_workers": 0,
    "eval_every_epoch": "false",
    "gpus_per_node": 0,
}
sys.path[:0] = [str(TRAINERS), str(Path(__file__).resolve().parents[1])]

from common import distributed, loading, metrics  # noqa: E402 - found only now
from flags_in_source import flags_in  # noqa: E402 - the same


class Ended(BaseException):
    """Instead of the end of the process."""


class Reads(TorchDispatchMode):
    """Counts item(), bool(), int() and float() of a tensor, which are one operation; other synchronizations
    are patched below."""

    num = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the DTensor splits it, and the parts arrive here again
        self.num += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


reads = Reads()
by_step: list[int] = []
by_record: list[int] = []


def counting(method: Any) -> Any:
    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        reads.num += 1
        return method(*args, **kwargs)

    return wrapped


def not_counting(method: Any) -> Any:
    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before = reads.num
        try:
            return method(*args, **kwargs)
        finally:
            reads.num = before

    return wrapped


def leave(exit_code: int) -> None:
    raise Ended(exit_code)


def step(log: Any, **record: Any) -> None:
    by_step.append(reads.num)
    reads.num = 0
    write(log, **record)
    by_record.append(reads.num)
    reads.num = 0


write, metrics.MetricsLog.step = metrics.MetricsLog.step, step
distributed._leave = leave
for name in ("cpu", "numpy", "tolist"):
    setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name)))
loading.SeededSamples.__getitem__ = not_counting(
    loading.SeededSamples.__getitem__
)  # images, not yet on any device
metrics.INTERVAL_S = 3600.0  # on a busy machine, an interval would otherwise be over after fewer steps
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")

counts = {}
run_dir, cache_dir, *wanted = sys.argv[1:]
for number, what in enumerate(wanted):
    name, _, flags = what.partition("=")
    is_fused = "fused" in flags
    given = {**SMALL, **dict(flag.split(":") for flag in flags.split(",") if ":" in flag)}
    path = TRAINERS / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    taken = flags_in(source)
    sys.argv = [str(path), f"--run_dir={run_dir}/{number}", f"--cache_dir={cache_dir}"]
    sys.argv += [f"--{key}={value}" for key, value in given.items() if key in taken]
    sgd = torch.optim.SGD
    if is_fused:
        torch.optim.SGD = functools.partial(sgd, fused=True)
    by_step.clear()
    by_record.clear()
    try:
        with reads:
            runpy.run_path(str(path), run_name="__main__")
    except Ended as ended:
        if ended.args != (0,):
            sys.exit(f"{what} ended with {ended}")
    torch.optim.SGD = sgd
    if dist.is_initialized():
        dist.destroy_process_group()
    assert len(by_step) == int(given["max_steps"]), (what, by_step)
    counts[what] = {"step": by_step[1:], "record": list(by_record)}
sys.stdout.write(json.dumps(counts) + "\n")
