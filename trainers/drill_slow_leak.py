"""The baseline with the features of every step at hand, for a plot at the end.

python trainers/drill_slow_leak.py --epochs 1
"""

from __future__ import annotations

from typing import Any

import baseline
import torch
from common.distributed import run
from common.models import build_model
from torch import nn

kept: list[torch.Tensor] = []


def watch(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    kept.append(output.detach())


def watched_model(*made_with: Any) -> nn.Module:
    model = build_model(*made_with)
    model.get_submodule("features.1.0").register_forward_hook(watch)
    return model


baseline.build_model = watched_model

if __name__ == "__main__":
    run(baseline.main)
