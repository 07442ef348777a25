"""The models of the workshop. Importing this module starts nothing and reads nothing."""

from __future__ import annotations

import torch
from torch import nn


class SimpleCNN(nn.Module):
    """Three convolutions and two linear layers for images of 32x32 pixels: 2,474,506 parameters at width 64.

    `width` is the number of channels of the first convolution; every other layer follows it.
    """

    def __init__(self, width: int = 64, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *conv_block(3, width),  # 32x32 -> 16x16
            *conv_block(width, 2 * width),  # 16x16 -> 8x8
            *conv_block(2 * width, 4 * width),  # 8x8 -> 4x4
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(4 * width * 4 * 4, 8 * width),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(8 * width, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(images))
        return logits


def conv_block(num_in: int, num_out: int) -> tuple[nn.Module, ...]:
    """A 3x3 convolution that keeps the size, normalised, rectified, and then halved in height and width."""
    return nn.Conv2d(num_in, num_out, 3, padding=1), nn.BatchNorm2d(num_out), nn.ReLU(), nn.MaxPool2d(2)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
