"""DeepSpeed's start: told its device before it is imported, and its configuration checked before it is used.

DeepSpeed takes any key: a misspelt one, or `zero` for `zero_optimization`, is ignored in silence, and the
training runs without it. No place lists the known keys, but DeepSpeed's own reader tells: a key that it never
asked for has no effect.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Iterator

import torch

from common.checkpoint import Checkpoints
from common.distributed import Refused, TrainerError
from common.sharded import load_state, newest_checkpoint, save_together

DECIDED_BY = {
    "train_micro_batch_size_per_gpu": "--batch_size",
    "gradient_accumulation_steps": "--gradient_accumulation",
    "optimizer": "--optimizer and --lr",
    "scheduler": "--lr and --warmup_steps",
}
"""Values of the trainer's flags, which a file may only repeat."""


def import_deepspeed(device: torch.device) -> Any:
    """The module. It looks for its device when it is imported, and takes the node's GPU even where the
    training uses the CPU."""
    os.environ["DS_ACCELERATOR"] = device.type
    try:
        import deepspeed
    except ModuleNotFoundError as error:
        raise Refused(
            "module_not_found", f"{error}; install it, for example with `pip install deepspeed`"
        ) from None
    deepspeed.utils.logger.setLevel(logging.WARNING)
    # DeepSpeed calls them by their older names, and torch would say so in every step of stage 3.
    deprecated = "`torch.distributed.(all_gather_into|reduce_scatter)_tensor` is deprecated"
    warnings.filterwarnings("ignore", deprecated, FutureWarning)
    if device.type == "cpu":
        # Reductions in shared memory, compiled for most of a minute at the first start. gloo reduces as well.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def cast_the_rest(model: torch.nn.Module) -> None:
    """Give the statistics of batch norm and the inputs the type to which the engine has cast the parameters.

    DeepSpeed 0.19 leaves both in fp32, also with `bf16: enabled`, and an operation takes one type only.
    Tokens are numbers of rows and keep their type.
    """
    dtype = next(model.parameters()).dtype
    model.to(dtype)

    def cast(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)

    model.register_forward_pre_hook(cast)


class EngineCheckpoints(Checkpoints):
    """Checkpoints in the format of DeepSpeed: the shares of all ranks, for as many ranks and the same
    stage."""

    def __init__(self, args: argparse.Namespace, engine: Any) -> None:
        made_with = {"stage": engine.zero_optimization_stage(), "ranks": engine.world_size}
        super().__init__(args, engine.module, None, made_with)
        self._engine = engine

    def newest(self, run_dir: str) -> Path | None:
        return newest_checkpoint(run_dir)

    def load(self, path: str | Path) -> dict[str, Any]:
        state = load_state(path, self.made_with)
        self._engine.load_checkpoint(str(path), tag="zero")
        return state

    def save(self, run_dir: str, state: dict[str, Any]) -> Path | None:
        state = {**state, "made_with": self.made_with}
        return save_together(run_dir, state, lambda folder: self._engine.save_checkpoint(folder, tag="zero"))


def checked_config(config: dict[str, Any], file: str | None) -> dict[str, Any]:
    """The configuration, its sections replaced by those of a JSON file where there is one.

    Raises TrainerError for keys that DeepSpeed does not know, values that it does not take, and values that
    contradict the trainer's flags.
    """
    from deepspeed.runtime.config import DeepSpeedConfig  # not before import_deepspeed

    if file:
        config = _with_file(config, file)
    if config["zero_optimization"].get("stage", 0) == 0 and any(
        _device(config, part) != "none" for part in ("offload_optimizer", "offload_param")
    ):
        raise TrainerError("offloading needs stage 1, 2 or 3: in stage 0 DeepSpeed would ignore it")
    # DeepSpeed checks the sections of a section.
    asked = _Asked({key: _Asked(part) if isinstance(part, dict) else part for key, part in config.items()})
    try:
        DeepSpeedConfig(asked)
    except Exception as error:
        raise TrainerError(f"{file or 'configuration'}: {' '.join(str(error).split())}") from error
    unknown = list(asked.never_asked_for())
    if unknown:
        raise TrainerError(f"{file or 'configuration'}: DeepSpeed does not know {', '.join(unknown)}")
    return config


def _with_file(config: dict[str, Any], file: str) -> dict[str, Any]:
    try:
        with open(file, encoding="utf-8") as opened:
            said = json.load(opened)
    except (OSError, ValueError) as error:
        raise TrainerError(f"{file}: not a readable JSON file ({error})") from None
    if not isinstance(said, dict):
        raise TrainerError(f"{file}: expected a JSON object, not a {type(said).__name__}")
    for key, flags in DECIDED_BY.items():
        if key in said and said[key] != config.get(key):
            raise TrainerError(f"{file}: {key} does not agree with {flags}, which decide: leave it out")
    zero = {"zero_optimization": {}}  # without the section, a file means stage 0
    return {**config, **zero, **said}


def _device(config: dict[str, Any], part: str) -> str:
    section = config["zero_optimization"].get(part) or {}
    return str(section.get("device", "none"))


class _Asked(dict):  # type: ignore[type-arg] # DeepSpeed wants a dict
    """A dict that knows which of its keys were asked for. One that was copied as a whole was asked for all of
    them."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.keys_asked: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        self.keys_asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self.keys_asked.add(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:  # because it is here, `**section` and dict(section) ask for each key
        return super().__iter__()

    def get(self, key: Any, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)

    def never_asked_for(self, section: str = "") -> Iterator[str]:
        for key, value in super().items():
            if key not in self.keys_asked:
                near = get_close_matches(str(key), map(str, self.keys_asked), 1)
                yield f"{section}{key}" + (f" (did you mean {near[0]}?)" if near else "")
            elif (
                isinstance(value, _Asked) and value.keys_asked
            ):  # else it was handed on as a whole, and checked there
                yield from value.never_asked_for(f"{section}{key}.")
