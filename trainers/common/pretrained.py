"""Weights of an earlier training as the beginning of another: transfer learning.

A file holds the weights of a model of the same name. Its last layer answers for the classes of the earlier
data: where their number differs it is left as the new model began. Everything else has to fit, or the
training ends with one line: a body of which a part began anew would be no body.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from common.checkpoint import newest_checkpoint
from common.distributed import Refused, TrainerError, print_rank0
from common.images import shown

_WRAPPERS = ("module.", "_orig_mod.", "model.")
"""The prefixes that DDP, torch.compile and others put before each name."""


def begin_from(model: nn.Module, path: str) -> str:
    """Fill the model from a file, or from the newest checkpoint of a run. Returns the taken layers, in words.
    An empty path takes nothing."""
    if not path:
        return "nothing: the model begins from scratch"
    file = _file(Path(path).expanduser().absolute())
    weights = _weights(file)
    own = model.state_dict()
    head, _ = head_of(model)
    if head is None:
        raise TrainerError("model=gpt has no last layer for classes: transfer learning here is for images")
    of_head = {name for name in own if name.startswith(f"{head}.")}
    replaced = [name for name in of_head if name in weights and weights[name].shape != own[name].shape]
    if any(weights[name].shape[1:] != own[name].shape[1:] for name in replaced):
        replaced = []  # it does not only answer for other classes
    if replaced:
        weights = {name: tensor for name, tensor in weights.items() if name not in of_head}
    needed = own.keys() - (of_head if replaced else set())
    wrong = [name for name in needed if name not in weights or weights[name].shape != own[name].shape]
    wrong += [name for name in weights if name not in own]
    if wrong:
        first = min(wrong, key=lambda name: (list(own).index(name) if name in own else len(own), name))
        raise TrainerError(f"{shown(file)}: {_unfit(first, weights, own)} ({len(wrong)} names do not fit)")
    model.load_state_dict(weights, strict=False)
    what = f"{len(weights)} tensors of {shown(file)}"
    if replaced:
        return (
            f"{what}; the last layer {head} starts from random values, because the number of classes differs"
        )
    return f"{what}, the last layer too"


def freeze_body(model: nn.Module) -> str:
    """Freeze all but the last layer. Returns the trained part, in words.

    The frozen layers stay in evaluation mode, whatever mode the model gets: batch norm would go on counting
    the new images, and dropout hide some inputs of the last layer.
    """
    name, head = head_of(model)
    if head is None:
        raise TrainerError("model=gpt has no last layer for classes: nothing to leave and nothing to train")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for parameter in head.parameters():
        parameter.requires_grad = True
    for module in model.modules():
        if module is not head:
            module.train = _stay.__get__(module)  # type: ignore[method-assign] # of this module alone
    model.eval()
    num_trained = sum(parameter.numel() for parameter in head.parameters())
    return f"the last layer {name} alone is trained, {num_trained:,} parameters"


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that an optimizer is to change."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def prepare(model: nn.Module, pretrained: str, freeze: bool) -> list[nn.Parameter]:
    """Begin from an earlier training, say so, and return the parameters that are to be trained."""
    if freeze and not pretrained:
        raise TrainerError(
            "freeze=true trains only the last layer: pretrained must name the weights of the others"
        )
    print_rank0(f"pretrained: {begin_from(model, pretrained)}")
    if freeze:
        print_rank0(f"frozen: {freeze_body(model)}")
    return trained(model)


def head_of(model: nn.Module) -> tuple[str | None, nn.Module | None]:
    """The layer that answers for the classes, with its name: the last one, where it has a bias for each."""
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear or linear[-1][1].bias is None:
        return None, None
    return linear[-1]


def _stay(self: nn.Module, mode: bool = True) -> nn.Module:
    return nn.Module.train(self, False)


def _file(path: Path) -> Path:
    """The file that was named; of a run, or of its checkpoints, the newest one."""
    if path.is_dir():
        newest = newest_checkpoint(str(path)) or newest_checkpoint(str(path.parent))
        if newest is None:
            raise Refused(
                "file_not_found", f"pretrained {shown(path)}: a folder without checkpoints/step-….pt"
            )
        return newest
    if not path.is_file():
        raise Refused("file_not_found", f"pretrained {shown(path)}: no such file")
    return path


def _weights(file: Path) -> dict[str, torch.Tensor]:
    try:
        loaded: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TrainerError(f"{shown(file)}: not a file of weights ({shown(reason)})") from error
    for key in ("model", "state_dict", "model_state_dict"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if (
        not isinstance(loaded, dict)
        or not loaded
        or not all(isinstance(each, torch.Tensor) for each in loaded.values())
    ):
        raise TrainerError(f"{shown(file)}: no state_dict: expected a table of names and tensors")
    for wrapper in _WRAPPERS:
        if all(str(name).startswith(wrapper) for name in loaded):
            loaded = {str(name)[len(wrapper) :]: tensor for name, tensor in loaded.items()}
    return {str(name): tensor for name, tensor in loaded.items()}


def _unfit(name: str, weights: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> str:
    """The mismatch, and its possible cause."""
    there, here = (tuple(table[name].shape) if name in table else None for table in (weights, own))
    if there is None:
        return f"no {shown(name)} in it: it is of another model"
    if here is None:
        return f"{shown(name)} is of another model"
    hint = "another width, or made for images of another size: image_size=224 takes the layers of torchvision"
    return f"{shown(name)} has shape {there}, this model needs {here}: {hint}"
