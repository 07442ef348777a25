"""The baseline with a table of how well each place of a sequence is predicted.

python trainers/drill_chatty_step.py --model gpt --epochs 1
"""

from __future__ import annotations

from collections import Counter

import baseline
import torch
import torch.nn.functional as F
from common.distributed import run

table: Counter[int] = Counter()


def tabled_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    losses = F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction="none")
    for place, loss in enumerate(losses):
        table[place % targets.shape[-1]] += loss.item()
    return losses.mean()


baseline.loss_of = tabled_loss

if __name__ == "__main__":
    run(baseline.main)
