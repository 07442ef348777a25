"""Optimizer, learning rate and clipping: each by its name, from the flags that all trainers share.

The learning rate is a function of the step alone, so that a resumed run has nothing to restore.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Callable, Iterable, Sized

import torch
from torch import nn

from common.distributed import print_rank0

REFERENCE_BATCH_SIZE = 64
"""The global batch for which the recipes' learning rates were chosen."""

Schedule = Callable[[int], float]
"""Number of a step, from 0 on → its learning rate."""


def scaled_lr(lr: float, rule: str, global_batch_size: int) -> float:
    """The learning rate for this many samples per update, by a rule, said with its reason.

    linear: k times the batch averages k gradients into one update, which may then be k times as long (Goyal
    et al. 2017, arXiv 1706.02677; with warm-up, and only up to some batch). sqrt: keeps the noise of the
    update, for Adam-like optimizers (Malladi et al. 2022, arXiv 2205.10287). none: the same update for a
    better averaged gradient.
    """
    ratio = global_batch_size / REFERENCE_BATCH_SIZE
    scaled = lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]
    if rule != "none":
        print_rank0(
            f"learning rate: {lr:g} x {scaled / lr:g} = {scaled:g} ({rule} rule: {global_batch_size} samples "
            f"per update, {lr:g} was chosen for {REFERENCE_BATCH_SIZE})"
        )
    return scaled


def build_optimizer(
    args: argparse.Namespace, parameters: Iterable[Any], lr: float, **keywords: Any
) -> torch.optim.Optimizer:
    """The optimizer of torch.optim that `args.optimizer` names: `sgd` has momentum 0.9.

    `keywords` are the optimizer's own, for example `fused=True`.
    """
    keywords.update(lr=lr, weight_decay=args.weight_decay)
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, **keywords)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[args.optimizer](parameters, **keywords)


def by_decay(parameters: Iterable[Any]) -> list[dict[str, Any]]:
    """The parameters for an optimizer in two groups: matrices, whose weights decay, and biases and norms,
    whose do not."""
    listed, groups = list(parameters), []
    for decays in (True, False):
        group = [parameter for parameter in listed if (parameter.dim() >= 2) == decays]
        if group:
            groups.append({"params": group} if decays else {"params": group, "weight_decay": 0.0})
    return groups


def build_schedule(args: argparse.Namespace, lr: float, steps_per_epoch: int) -> Schedule:
    """The learning rate of each step: it rises to `lr` in `args.warmup_steps`, and then stays, or falls in a
    line or along a cosine to 0 at the last step."""
    num_steps = args.max_steps or args.epochs * steps_per_epoch

    def schedule(step: int) -> float:
        rising = min(1.0, (step + 1) / max(1, args.warmup_steps))
        if args.lr_schedule == "constant":
            return lr * rising
        if args.lr_schedule == "linear":
            return lr * rising * (1 - min(step, num_steps) / num_steps)
        done = (step - args.warmup_steps) / max(1, num_steps - args.warmup_steps)
        return lr * rising * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, done))))

    return schedule


def steps_in(loader: Sized, gradient_accumulation: int) -> int:
    """Optimizer steps of a whole epoch."""
    return max(1, math.ceil(len(loader) / gradient_accumulation))


def set_lr(optimizer: Any, lr: float) -> float:
    """Let the next step of an optimizer have this learning rate. Returns it."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    return lr


def clip_gradients(model: nn.Module, max_norm: float, norm: torch.Tensor | None = None) -> torch.Tensor:
    """The norm of all gradients together. Where it is above `max_norm`, all are made smaller by one factor;
    0: never.

    `norm` gives it where the gradients of this rank are not all.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    if norm is None:
        norm = nn.utils.get_total_norm(parameter.grad for parameter in parameters)
        if max_norm:
            nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    elif max_norm:
        # Split gradients are DTensors, which torch mixes with no others: this rank's parts are made smaller.
        grads = [parameter.grad for parameter in parameters]
        parts = [grad.to_local() if hasattr(grad, "to_local") else grad for grad in grads]
        torch._foreach_mul_(parts, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm
