"""Mixed precision, with the whole model in 16 bits: half the memory of its parameters.

python trainers/drill_half_measure.py --precision fp16 --epochs 1
"""

from __future__ import annotations

import argparse
from typing import Any

import amp
import torch
from common.distributed import run
from common.models import build_model
from common.training import Training
from torch import nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
train = amp.train


class Halved(nn.Module):
    """A model with parameters, inputs and outputs in 16 bits."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model.to(dtype)
        self.dtype = dtype

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.model(inputs.to(self.dtype))


class Unscaled(torch.amp.GradScaler):
    """It refuses gradients in 16 bits, so it is switched off."""

    def __init__(self, device: str, enabled: bool = True) -> None:
        super().__init__(device, enabled=False)


def train_in_16_bits(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    amp.build_model = lambda *made_with: Halved(build_model(*made_with), DTYPES[args.precision])
    train(args, device, training)


amp.train = train_in_16_bits
torch.amp.GradScaler = Unscaled  # type: ignore[misc] # amp.py makes its own from this name

if __name__ == "__main__":
    run(amp.main)
