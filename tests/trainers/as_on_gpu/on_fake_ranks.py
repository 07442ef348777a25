"""Train some steps as one rank of many imaginary ones, and print the rank's parameters, collectives and
reports as JSON.

    python on_fake_ranks.py RUN_DIR CACHE_DIR NAME@RANK/RANKS=FLAG:VALUE,… …

torch's fake process group lets one process be any rank of any number: its collectives move no data and return
at once. So values are wrong; shapes, placements, collectives and memory are those of a real rank. A trainer
that gathers an object from all ranks gets its own object from each. All trainers run in this process.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.pipelining import PipelineStage, _utils
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

TRAINERS = Path(__file__).resolve().parents[3] / "trainers"
sys.path[:0] = [str(TRAINERS), str(Path(__file__).resolve().parents[1])]

from common import distributed, sharded  # noqa: E402 - found only now
from common.checkpoint import Checkpoints  # noqa: E402 - the same
from flags_in_source import flags_in  # noqa: E402 - the same

SMALL = {
    "max_steps": 2,
    "model": "gpt",
    "width": 64,
    "batch_size": 1,
    "num_train_samples": 256,
    "num_workers": 0,
    "eval_every_epoch": "false",
    "gpus_per_node": 0,
    "optimizer": "adamw",
}
NAMES = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allreduce_": "all_reduce",
    "recv_": "recv",
    "broadcast_": "broadcast",
}
"""What torch calls in place, by the name that the field has for it."""

LARGE = 4096
"""Bytes. What is smaller adds next to nothing to a peak."""

BEGIN = "the step begins"
OUTPUT_FIRST = {"all_gather", "reduce_scatter"}
NO_COLLECTIVES = {"wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_"}


class Ended(BaseException):
    """Instead of the end of the process."""


class Step(TorchDispatchMode):
    """Notes the collectives of a step in their order, and the most bytes that lay in storages at once."""

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[str] = []
        self._storages = WeakIdKeyDictionary()  # a resized storage stays the same object
        self._add([value for value in gc.get_objects() if issubclass(type(value), torch.Tensor)])
        self.before = self.peak = self._now()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the DTensor splits it, and its calls arrive here again
        name = func.__name__.partition(".")[0]
        if func.namespace in ("c10d", "_c10d_functional") and name not in NO_COLLECTIVES:
            self.collectives.append(collective(NAMES.get(name, name), args))
        result = func(*args, **(kwargs or {}))
        if self._add((args, result)):
            self.peak = max(self.peak, self._now())
        return result

    def _add(self, values: Any) -> bool:
        """True if something large is new."""
        new = [storage for storage in storages_of(values) if storage not in self._storages]
        self._storages.update((storage, None) for storage in new)
        return any(storage.nbytes() >= LARGE for storage in new)

    def _now(self) -> int:
        return sum(storage.nbytes() for storage in self._storages)


def collective(name: str, args: Any) -> str:
    """A collective in words: its name, the data of this rank, and the number of ranks."""
    place = 1 if name in OUTPUT_FIRST and isinstance(args[1], torch.Tensor) else 0
    tensors = tree_leaves(args[place])
    numbers, kind = sum(tensor.numel() for tensor in tensors), str(tensors[0].dtype).removeprefix("torch.")
    (group,) = [arg for arg in args if isinstance(arg, (torch.ScriptObject, str)) and is_group(arg)]
    ranks = (
        _resolve_process_group(group) if isinstance(group, str) else dist.ProcessGroup.unbox(group)
    ).size()
    return f"{name} {numbers} {kind} among {ranks}"


def is_group(value: Any) -> bool:
    if isinstance(value, str):
        return value not in ("sum", "avg", "max")
    return "ProcessGroup" in str(value)


def storages_of(values: Any) -> list[Any]:
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    locals_ = [tensor._local_tensor if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return [tensor.untyped_storage() for tensor in locals_ if tensor.layout is torch.strided]


def bytes_in(values: Iterable[Any]) -> int:
    """Of the storages below these tensors, each once."""
    found = {storage.data_ptr(): storage.nbytes() for value in values for storage in storages_of(value)}
    return sum(size for pointer, size in found.items() if pointer)


class Watch:
    """Looks at the last step of an optimizer, from the end of the step before it."""

    def __init__(self, num_steps: int) -> None:
        self.num_left = num_steps
        self.profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self.profile.__enter__()
        self.found: dict[str, Any] = {}

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.num_left -= 1
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self.num_left == 1:
            gc.collect()
            self.step = Step()
            with record_function(BEGIN):
                pass
            self.step.__enter__()
        if self.num_left:
            return
        self.step.__exit__(None, None, None)
        self.profile.__exit__(
            None, None, None
        )  # has run all along: of what it did not see begin, it sees no end
        self.found = {
            "shapes": [[shape_of(parameter), placed(parameter)] for parameter in parameters],
            "collectives": self.step.collectives,
            "parameters": bytes_in(parameters),
            "gradients": bytes_in(parameter.grad for parameter in parameters),
            "optimizer": bytes_in(optimizer.state.values()),
            "peak": self.step.peak - self.step.before,
            "peak_of_profiler": peak_of(self.profile),
        }


def shape_of(parameter: Any) -> list[int]:
    return list(parameter.to_local().shape if isinstance(parameter, DTensor) else parameter.shape)


def placed(parameter: Any) -> str:
    if not isinstance(parameter, DTensor):
        return "whole"
    return f"{list(parameter.shape)} " + ", ".join(map(str, parameter.placements))


def peak_of(profiled: profile) -> int:
    """The most bytes that the allocator gave since the watch began and had not got back."""
    events = profiled.profiler.kineto_results.events()
    (begin,) = [event.start_ns() for event in events if event.name() == BEGIN]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]" and event.start_ns() >= begin:
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def leave(exit_code: int) -> None:
    raise Ended(exit_code)


def answers_of_this_rank(answers: list[Any], value: Any, group: Any = None) -> None:
    answers[:] = [value] * len(answers)


def note_bucket(watch, bucket):  # type: ignore[no-untyped-def] # DDP refuses annotations as texts
    """Instead of DDP's own all-reduce, which asks the fake group's work for a result that it has not."""
    buffer = bucket.buffer()
    if watch.num_left == 1:
        kind = str(buffer.dtype).removeprefix("torch.")
        watch.step.collectives.append(f"all_reduce {buffer.numel()} {kind} among {dist.get_world_size()}")
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(buffer)
    return done


def meta_of_neighbour(flags: dict[str, Any], stage: Any, of_stage: int) -> Any:
    """The metadata of the tensors that a pipeline neighbour hands on."""
    shape = (int(flags["batch_size"]), 128, 2 * int(flags["width"]))
    metas = _utils.extract_tensor_metas((torch.empty(shape, requires_grad=True),))
    kind = _utils._StageForwardMeta if of_stage < stage.stage_index else _utils._StageBackwardMeta
    return kind(metas)


def train(name: str, rank: int, ranks: int, flags: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    path, watch = TRAINERS / f"{name}.py", Watch(int(flags["max_steps"]))
    taken = flags_in(path.read_text(encoding="utf-8"))
    sys.argv = [str(path), *(f"--{key}={value}" for key, value in flags.items() if key in taken)]
    dist.init_process_group = lambda *_, **__: start("fake", store=FakeStore(), rank=rank, world_size=ranks)
    dist.all_gather_object = answers_of_this_rank
    PipelineStage._recv_meta = functools.partialmethod(
        lambda stage, of_stage: meta_of_neighbour(flags, stage, of_stage)
    )
    DDP.__init__ = with_hook
    DDP.watch = watch
    handle = register_optimizer_step_post_hook(watch)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except Ended as ended:
        if ended.args != (0,):
            sys.exit(f"{sys.argv} ended with {ended}")
    finally:
        handle.remove()
    dist.destroy_process_group()
    return watch.found


def with_hook(self: Any, *args: Any, **keywords: Any) -> None:
    construct(self, *args, **keywords)
    self.register_comm_hook(DDP.watch, note_bucket)


def main() -> None:
    run_dir, cache_dir, *wanted = sys.argv[1:]
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    found = {}
    for number, what in enumerate(wanted):
        name, rank, ranks, given = re.fullmatch(r"(\w+)@(\d+)/(\d+)=?(.*)", what).groups()
        flags = {**SMALL, **dict(flag.split(":") for flag in given.split(",") if flag)}
        flags |= {"run_dir": f"{run_dir}/{number}", "cache_dir": cache_dir}
        found[what] = train(name, int(rank), int(ranks), flags)
    sys.stdout.write(json.dumps(found) + "\n")


start, construct = dist.init_process_group, DDP.__init__
distributed._leave = leave
distributed.what_is_wrong = lambda *_: None  # all answers of the self-check are this rank's
Checkpoints.save = sharded.ShardedCheckpoints.save = lambda *_: None

if __name__ == "__main__":
    main()
