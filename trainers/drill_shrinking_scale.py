"""Mixed precision with a loss in other units.

python trainers/drill_shrinking_scale.py --precision fp16 --epochs 1
"""

from __future__ import annotations

import amp
import torch
from common.distributed import run
from common.models import loss_of

NANO = 1e9
"""Of the loss: the axis of the plot is in nanonats."""


def loss_in_nanonats(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return NANO * loss_of(logits, targets)


amp.loss_of = loss_in_nanonats

if __name__ == "__main__":
    run(amp.main)
