"""Checkpoints of which every rank writes its shard: called like those of common.checkpoint, complete as soon
as they are visible.

All ranks write into a directory of another name, and when all have finished, rank 0 renames it: a visible
`step-00000040` can be loaded. torch.distributed.checkpoint cuts tensors by their place in the whole, so that
any number of ranks reads what any other number wrote. Its index is a pickle, as are DeepSpeed's files: unlike
a single file of common.checkpoint, a directory from a stranger may run code.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from common.checkpoint import NUM_KEPT, Checkpoints, Written, first_line, to_disk
from common.checkpoint import load_checkpoint as load_plain
from common.distributed import TrainerError, add_to_hash, rank_from_env, short


class ShardedCheckpoints(Checkpoints):
    """Checkpoints of which each rank writes its shares, and reads those that it has now, however many ranks
    wrote them."""

    def __init__(
        self,
        args: argparse.Namespace,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        made_with: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(args, model, optimizer, made_with)
        self.is_async = getattr(args, "async_checkpoint", False)
        self._background = Background() if self.is_async else None

    def newest(self, run_dir: str) -> Path | None:
        return newest_checkpoint(run_dir)

    def load(self, path: str | Path) -> dict[str, Any]:
        return load_checkpoint(path, self.made_with, self._model, self._optimizer)

    def save(self, run_dir: str, state: dict[str, Any]) -> Path | None:
        state = {**state, "made_with": self.made_with}
        if self._background is None:
            return save_checkpoint(run_dir, state, self._model, self._optimizer)
        shares, _ = _shares(self._model, self._optimizer)
        return self._background.begin(run_dir, state, shares)

    def wait(self) -> Written | None:
        return self._background.wait() if self._background else None


class Background:
    """Writes one checkpoint at a time while training goes on, from a copy in the node's memory.

    Its ranks speak in a group of their own: among the messages of training theirs would be taken for those.
    The directory gets its name when all ranks have written, so a job that is killed earlier has the one
    before it.
    """

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo")  # on the host, whatever training uses
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Written] | None = None

    def begin(self, run_dir: str, state: dict[str, Any], shares: dict[str, Any]) -> Path:
        """Copy the shares, and return: from here on training may change them. All ranks call it, after
        `wait`."""
        assert self._pending is None, "one checkpoint at a time"
        unfinished, final = _begin_together(run_dir, state)
        started = time.monotonic()
        if rank_from_env() == 0:
            torch.save(state, unfinished / _WHOLE)
        planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)
        shares_written = dcp.async_save(
            shares, checkpoint_id=unfinished, planner=planner, process_group=self._group
        )

        def end() -> Written:
            shares_written.result()  # of all ranks: each waits for the index, which rank 0 writes last
            if rank_from_env() == 0:
                _publish(unfinished, final)
            return Written(state["step"], final, time.monotonic() - started)

        self._pending = self._thread.submit(end)
        return final

    def wait(self) -> Written | None:
        """Wait until what was begun is whole, and tell of it once. An error in writing is raised here."""
        pending, self._pending = self._pending, None
        return pending.result() if pending is not None else None


class Beginning(TorchDispatchMode):
    """How the tensors of a model begin, for a model that is built on the meta device, which holds no numbers.

    During the building it notes the operations on each tensor in place, and the state of `seed`'s random
    numbers. `fill` repeats them, one tensor at a time, and keeps this rank's shard of each: all ranks have
    shares of the same beginning, the one that `baseline.py` has, and none ever holds the whole.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._done: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            done = self._done.setdefault(args[0].untyped_storage(), [])
            is_random = any(argument.name == "generator" for argument in func._schema.arguments)
            done.append((func, args[1:], kwargs, self._generator.get_state() if is_random else None))
            if is_random:  # from the seed's numbers and from this rank's own, which dropout goes on with
                scratch = torch.empty(args[0].shape, dtype=args[0].dtype, device="cpu")
                func(scratch, *args[1:], **kwargs)
                func(scratch, *args[1:], **{**kwargs, "generator": self._generator})
        return func(*args, **kwargs)

    def of(self, model: nn.Module) -> nn.Module:
        """Learn the names of the model's tensors, which cutting will replace. Returns the model."""
        self._by_name = {
            name: (tensor.shape, tensor.dtype, self._done.get(tensor.untyped_storage()))
            for name, tensor in model.state_dict(keep_vars=True).items()
        }
        return model

    @torch.no_grad()
    def fill(self, model: nn.Module, device: torch.device) -> None:
        """Let the model, which has memory for its shares by now, begin. Its buffers, which all ranks have
        whole, go to the device. From then on `hash` is that of the whole, as `self_check` makes it of a model
        that is not cut."""
        digest = hashlib.sha256()
        for name, tensor in model.state_dict(keep_vars=True).items():
            shape, dtype, done = self._by_name[name]
            if done is None:
                raise TrainerError(
                    f"{name}: its initial values are not defined, so it cannot be built in shares"
                )
            whole = torch.empty(shape, dtype=dtype, device="cpu")
            for func, args, kwargs, state in done:
                if state is not None:
                    self._generator.set_state(state)
                    kwargs = {**kwargs, "generator": self._generator}
                func(whole, *args, **kwargs)
            add_to_hash(digest, whole)
            if isinstance(tensor, DTensor):
                local = distribute_tensor(
                    whole.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None
                )
                tensor.to_local().copy_(local.to_local())
            else:
                tensor.copy_(whole)
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)
        self.hash = short(digest)


def sharding_mesh(device: torch.device, replicas: int) -> DeviceMesh:
    """All ranks, over which a model is cut, or several groups of neighbours with a copy of it each."""
    world_size = dist.get_world_size()
    if world_size % replicas:
        raise TrainerError(f"{world_size} ranks cannot be shared out evenly over --replicas {replicas}")
    ranks = torch.arange(world_size)
    if replicas == 1:
        return DeviceMesh(device.type, ranks)
    return DeviceMesh(device.type, ranks.view(replicas, -1), mesh_dim_names=("replicas", "shares"))


def offload_policy(offload: str, device: torch.device) -> OffloadPolicy:
    """Where FSDP keeps its shares: on the device, or in the node's memory, from which a GPU copies best where
    it is pinned. Without a GPU, both are the same memory."""
    if offload != "cpu":
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=device.type == "cuda")


_NAME = re.compile(r"step-(\d{8,})")
_WHOLE = "trainer.pt"
"""Values that are no shards: step, position, random numbers."""


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """The model's parameters for an optimizer: the split ones in one group, those that each rank has whole in
    another.

    On a GPU an optimizer updates a group in one call, and torch refuses a call that mixes DTensors and plain
    tensors.
    """
    return [{"params": parameters} for parameters in _split_and_whole(model) if parameters]


def norm_of_gradients(model: nn.Module) -> torch.Tensor:
    """Of the model, or of a stage: a split gradient counts with the parts of all its ranks, one that each of
    them has whole counts once."""
    split, whole = (
        nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        for parameters in _split_and_whole(model)
    )
    return torch.hypot(split.full_tensor(), whole)


def _split_and_whole(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    split = [parameter for parameter in model.parameters() if isinstance(parameter, DTensor)]
    whole = [parameter for parameter in model.parameters() if not isinstance(parameter, DTensor)]
    return split, whole


def save_checkpoint(
    run_dir: str, state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
) -> Path:
    """Write `checkpoints/step-<step>/`: every rank its shares of model and optimizer, rank 0 also `state`.
    All ranks call it."""
    # Rank 0 writes the tensors that all ranks have whole, such as the statistics of batch norm.
    planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)

    def write(folder: Path) -> None:
        shares, _ = _shares(model, optimizer)
        dcp.save(shares, checkpoint_id=folder, planner=planner)

    return save_together(run_dir, state, write)


def load_checkpoint(
    path: str | Path, made_with: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Fill model and optimizer, which are sharded already, and return the state. `made_with` must be the
    same. All ranks call it."""
    state = load_state(path, made_with)
    shares, groups = _shares(model, optimizer)
    try:
        dcp.load(shares, checkpoint_id=path)
    except Exception as error:
        raise TrainerError(f"{path}: not a checkpoint of this trainer ({first_line(error)})") from error
    of_optimizer = {"state": shares["optimizer"], "param_groups": groups}
    set_state_dict(model, optimizer, model_state_dict=shares["model"], optim_state_dict=of_optimizer)
    return state


def save_together(run_dir: str, state: dict[str, Any], write: Callable[[Path], object]) -> Path:
    """Let every rank write into one directory, which becomes `checkpoints/step-<step>` when all have. All
    ranks call it.

    An error on one rank ends the job before the directory has its name.
    """
    unfinished, final = _begin_together(run_dir, state)
    write(unfinished)
    dist.barrier()
    if rank_from_env() == 0:
        torch.save(state, unfinished / _WHOLE)
        _publish(unfinished, final)
    dist.barrier()
    return final


def _begin_together(run_dir: str, state: dict[str, Any]) -> tuple[Path, Path]:
    """Make the directory that all write into. Returns its path, and the one it will have."""
    folder = Path(run_dir) / "checkpoints"
    unfinished, final = (folder / f"{prefix}step-{state['step']:08d}" for prefix in (".unfinished-", ""))
    if rank_from_env() == 0:
        for stale in folder.glob(".*-step-*"):  # of a run that was killed while it wrote, or removed
            shutil.rmtree(stale, ignore_errors=True)
        unfinished.mkdir(parents=True)
    dist.barrier()
    return unfinished, final


def load_state(path: str | Path, made_with: dict[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint that was saved together, without anyone's shares. `made_with` must be the
    same."""
    return load_plain(Path(path) / _WHOLE, made_with)


def newest_checkpoint(run_dir: str) -> Path | None:
    """The checkpoint that a restarted run goes on from."""
    found = _checkpoints(Path(run_dir) / "checkpoints")
    return found[-1] if found else None


def _shares(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], Any]:
    """The saved state, by the names of parameters, and the optimizer's groups, which this run's flags have
    made: a stage of a pipeline knows no parameters but its own."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer["state"]}, of_optimizer["param_groups"]


def _publish(unfinished: Path, final: Path) -> None:
    for path in [*unfinished.rglob("*"), unfinished]:
        to_disk(path)
    # The same step again, when a training that had ended is started again: the old one goes when the new one
    # is there.
    hidden = [_hide(final)] if final.exists() else []
    unfinished.rename(final)
    to_disk(final.parent)
    hidden += [_hide(old) for old in _checkpoints(final.parent)[:-NUM_KEPT]]
    for path in hidden:
        shutil.rmtree(path, ignore_errors=True)


def _hide(path: Path) -> Path:
    """The path under a name that is no checkpoint's: half of one, while it is removed, must not be
    visible."""
    hidden = path.with_name(f".removed-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    return path.rename(hidden)


def _checkpoints(folder: Path) -> list[Path]:
    numbered = [
        (int(match[1]), path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(numbered)]
