"""The learning rate of a step: a function of the step alone, so that a resumed run has nothing to restore."""

from __future__ import annotations

import math

from common.distributed import print_rank0

REFERENCE_BATCH_SIZE = 64
"""The global batch for which the recipes' learning rates were chosen."""


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
            "per update,"
            f" {lr:g} was chosen for {REFERENCE_BATCH_SIZE})"
        )
    return scaled


def warmed_up(lr: float, step: int, warmup_steps: int) -> float:
    """The learning rate of the step after `step`: rises from lr / warmup_steps to lr in the first
    `warmup_steps` steps."""
    return lr * min(1.0, (step + 1) / max(1, warmup_steps))
