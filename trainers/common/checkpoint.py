"""Checkpoints: complete as soon as they are visible, found again by their step.

A job can be killed at any instant, so a checkpoint is written under another name and renamed when it is
whole: a visible `step-00000040.pt` can be loaded. The keys are plain values and tensors, so that loading runs
no code of the file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from common.distributed import TrainerError, rank_from_env
from common.models import count_parameters

NUM_KEPT = 2
_NAME = re.compile(r"step-(\d{8,})\.pt")
_FITS = ("model", "width", "layers", "heads", "embedding", "sequence_length", "optimizer")
"""Flags that must be the same for the tensors of a checkpoint to fit."""


class Written(NamedTuple):
    """A checkpoint that was written while training went on."""

    step: int
    path: Path
    seconds: float


class Checkpoints:
    """The checkpoints of one training: the states of a model, of its optimizer and of any other part that has
    one.

    Each is one file that rank 0 writes. `parts` are objects with `state_dict` and `load_state_dict`;
    `made_with` are values, besides the flags of the model, that must be the same for a checkpoint to fit.
    `is_async`: True where `save` returns before all is written.
    """

    is_async = False

    def __init__(
        self,
        args: argparse.Namespace,
        model: nn.Module,
        optimizer: Any,
        made_with: dict[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        self.made_with = {key: getattr(args, key) for key in _FITS if hasattr(args, key)}
        self.made_with.update(made_with or {})
        self.num_parameters = count_parameters(model)
        self._model, self._optimizer = model, optimizer
        self._parts = {"model": model, "optimizer": optimizer, **parts}

    @property
    def description(self) -> str:
        """The model in words, from its flags."""
        said = {"model": type(self._model).__name__.lower(), **self.made_with}
        said.pop("optimizer", None)
        name = said.pop("model")
        return ", ".join([str(name), *(f"{key} {value}" for key, value in said.items() if key in _FITS)])

    @property
    def differs(self) -> dict[str, str]:
        """`model_differs`: how the model differs from the one that was published under its name; empty where
        it is none of those."""
        found = [module.said for module in self._model.modules() if hasattr(module, "said")]
        return {"model_differs": found[0]} if found else {}

    def newest(self, run_dir: str) -> Path | None:
        """The checkpoint from which a restarted run goes on."""
        return newest_checkpoint(run_dir)

    def load(self, path: str | Path) -> dict[str, Any]:
        """Fill all parts. Returns the state that was saved with them. All ranks call it."""
        saved = load_checkpoint(path, self.made_with)
        for name, part in self._parts.items():
            try:
                part.load_state_dict(saved[name])
            except (
                RuntimeError,
                ValueError,
            ) as error:  # other classes, images of another size, frozen layers
                what = str(error).strip().splitlines()[-1].strip()
                raise TrainerError(f"{path}: does not fit this {name}: {what}") from error
        return saved

    def save(self, run_dir: str, state: dict[str, Any]) -> Path | None:
        """Write all parts and this state. All ranks call it; None: rank 0 wrote for this one."""
        if rank_from_env() != 0:
            return None
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return save_checkpoint(run_dir, {**state, **parts, "made_with": self.made_with})

    def wait(self) -> Written | None:
        """Wait for a checkpoint that is still being written, and tell of it once. None: there is none, as
        `save` returns when all is written."""
        return None


def save_checkpoint(run_dir: str, state: dict[str, Any]) -> Path:
    """Write `checkpoints/step-<step>.pt` atomically and remove all but the newest ones."""
    folder = Path(run_dir) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{state['step']:08d}.pt"
    unfinished = folder / f".{path.name}.{os.getpid()}"
    remove_unfinished(folder)
    try:
        with open(unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        to_disk(folder)  # the new name; without this, a node that loses its power may lose the file with it
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
    for old in _checkpoints(folder)[:-NUM_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def remove_unfinished(folder: Path) -> None:
    """Remove what a run that was killed while it wrote has left. The process that writes calls it."""
    for stale in folder.glob(".step-*.pt.*"):
        with contextlib.suppress(OSError):
            stale.unlink()


def to_disk(path: Path) -> None:
    """Wait until the storage has the file's bytes, or the directory's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_checkpoint(run_dir: str) -> Path | None:
    """The checkpoint that a restarted run goes on from."""
    found = _checkpoints(Path(run_dir) / "checkpoints")
    return found[-1] if found else None


def load_checkpoint(path: str | Path, made_with: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint to host memory. `made_with` are the values that must be the same for its tensors to
    fit."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        differing = [key for key, value in made_with.items() if state["made_with"].get(key) != value]
    except FileNotFoundError:
        raise TrainerError(f"{path}: no such checkpoint") from None
    except Exception as error:
        raise TrainerError(f"{path}: not a checkpoint of these trainers ({first_line(error)})") from error
    if differing:
        theirs = ", ".join(f"{key}={state['made_with'].get(key)}" for key in differing)
        ours = ", ".join(f"{key}={made_with[key]}" for key in differing)
        raise TrainerError(f"{path}: was made with {theirs}, but this run has {ours}")
    return state


def rng_state(device: torch.device) -> dict[str, torch.Tensor]:
    """Where this process stands in its random numbers: those of dropout, and of augmentation on the
    device."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng_state(states: list[dict[str, torch.Tensor]], device: torch.device, rank: int = 0) -> None:
    """Continue this rank's random numbers. A rank that the checkpoint does not know keeps its own seed."""
    if rank >= len(states):
        return
    torch.set_rng_state(states[rank]["cpu"])
    if device.type == "cuda" and "cuda" in states[rank]:
        torch.cuda.set_rng_state(states[rank]["cuda"], device)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _checkpoints(folder: Path) -> list[Path]:
    numbered = [
        (int(match[1]), path) for path in folder.glob("step-*.pt") if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(numbered)]
