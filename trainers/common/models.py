"""The models of the workshop. Importing this module starts nothing and reads nothing."""

from __future__ import annotations

import math
from typing import Callable, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from common.distributed import TrainerError

Builder = Callable[[int, int, int], nn.Module]
"""From width, number of classes and size of the images."""


class DataShape(Protocol):
    """The properties of a data set that a model follows: common.images.ImagesInfo has them."""

    @property
    def num_classes(self) -> int: ...

    @property
    def image_size(self) -> int: ...


class SimpleCNN(nn.Module):
    """Three convolutions and two linear layers, for images of 32x32 pixels: 2,474,506 parameters at width 64.

    `width` is the number of channels of the first convolution; every other layer follows it, the number of
    classes and the size of the images.
    """

    def __init__(self, width: int = 64, num_classes: int = 10, image_size: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_block(3, width),  # 32x32 -> 16x16
            conv_block(width, 2 * width),  # 16x16 -> 8x8
            conv_block(2 * width, 4 * width),  # 8x8 -> 4x4
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(4 * width * (image_size // 8) ** 2, 8 * width),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(8 * width, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(images))
        return logits


def conv_block(num_in: int, num_out: int) -> nn.Sequential:
    """A 3x3 convolution that keeps the size, normalised, rectified, and then halved in height and width."""
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 3, padding=1), nn.BatchNorm2d(num_out), nn.ReLU(), nn.MaxPool2d(2)
    )


class GPT(nn.Module):
    """A decoder-only transformer. As it is by default it reads bytes, and has neither batch norm nor dropout,
    so that its losses can be compared exactly.

    Inputs are (batch, sequence) of tokens, outputs (batch, sequence, vocabulary) logits of the next one.
    Pre-norm blocks. The output layer has weights of its own, unless `is_tied`: then those of the embedding of
    the tokens predict too.
    """

    def __init__(
        self,
        embedding: int = 128,
        num_layers: int = 4,
        num_heads: int = 4,
        max_length: int = 128,
        vocabulary: int = 256,
        dropout: float = 0.0,
        is_tied: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)
        self.positions = nn.Embedding(max_length, embedding)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(embedding, num_heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(embedding)
        self.output = None if is_tied else nn.Linear(embedding, vocabulary, bias=False)
        self.apply(_initialize)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        hidden = self.dropout(self.tokens(tokens) + places)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        return F.linear(hidden, self.tokens.weight) if self.output is None else self.output(hidden)


class Block(nn.Module):
    """Attention, then an MLP, each added to what it read."""

    def __init__(self, embedding: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embedding)
        self.attention = Attention(embedding, num_heads, dropout)
        self.norm2 = nn.LayerNorm(embedding)
        self.up = nn.Linear(embedding, 4 * embedding)
        self.down = nn.Linear(4 * embedding, embedding)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden)))
        result: torch.Tensor = hidden + self.dropout(self.down(F.gelu(self.up(self.norm2(hidden)))))
        return result


class Attention(nn.Module):
    """Causal self-attention. The number of heads follows from the width that the projections give, so that
    they can be split by heads."""

    def __init__(self, embedding: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.head_size = embedding // num_heads
        self.dropout = dropout
        self.query = nn.Linear(embedding, embedding)
        self.key = nn.Linear(embedding, embedding)
        self.value = nn.Linear(embedding, embedding)
        self.projection = nn.Linear(embedding, embedding)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape

        def heads(projected: torch.Tensor) -> torch.Tensor:
            return projected.view(batch, length, -1, self.head_size).transpose(1, 2)

        seen = F.scaled_dot_product_attention(
            heads(self.query(hidden)),
            heads(self.key(hidden)),
            heads(self.value(hidden)),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
        result: torch.Tensor = self.projection(seen.transpose(1, 2).reshape(batch, length, -1))
        return result


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def gpt2(
    embedding: int, num_layers: int, num_heads: int, max_length: int, vocabulary: int, dropout: float = 0.0
) -> GPT:
    """A GPT as GPT-2 is: the tokens' embedding predicts too, and the contribution of a block begins small.

    124,439,808 parameters with 12 layers, 12 heads, an embedding of 768, 1,024 positions and 50,257 tokens.
    """
    model = GPT(embedding, num_layers, num_heads, max_length, vocabulary, dropout, is_tied=True)
    for block in model.blocks:
        for adds in (block.attention.projection, block.down):
            nn.init.normal_(adds.weight, std=0.02 / math.sqrt(2 * num_layers))
    return model


def weights_of_gpt(model: GPT) -> int:
    """The parameters that each token is multiplied with: all but embeddings that are only looked up."""
    looked_up = [model.positions] if model.output is None else [model.positions, model.tokens]
    return count_parameters(model) - sum(map(count_parameters, looked_up))


def of_torchvision(name: str) -> Builder:
    """The builder of a model that torchvision has. Its import takes a second, for those models alone."""

    def build(width: int, num_classes: int, image_size: int) -> nn.Module:
        from common.vision_models import build

        return build(name, width, num_classes, image_size)

    return build


MODELS: dict[str, Builder] = {
    "simplecnn": SimpleCNN,
    "resnet18": of_torchvision("resnet18"),
    "resnet50": of_torchvision("resnet50"),
    "vgg11": of_torchvision("vgg11"),
    "vit_tiny": of_torchvision("vit_tiny"),
    "vit_b_16": of_torchvision("vit_b_16"),
    "gpt": lambda width, *_: GPT(embedding=2 * width),
}


def build_model(name: str, width: int, dataset: DataShape | None = None) -> nn.Module:
    """The model of this name, for the classes and the images of a data set: without one, 10 and 32x32.
    `width`: channels of the first convolution, or half the embedding of the GPT."""
    if name == "gpt" and width % 2:
        raise TrainerError(
            f"model=gpt: 4 heads share an embedding of 2 x width, so width must be even, not {width}"
        )
    num_classes, image_size = (dataset.num_classes, dataset.image_size) if dataset else (10, 32)
    return MODELS[name](width, num_classes, image_size)


def parts_of(model: nn.Module) -> list[nn.Module]:
    """The parts that follow each other in the model and hold most of it: what is sharded, computed again or
    put on other devices."""
    if isinstance(model, SimpleCNN):
        return [*model.features, model.classifier]
    if isinstance(model, GPT):
        return list(model.blocks)
    if hasattr(model, "features"):  # torchvision's VGG: convolutions, between them what has no parameters
        return [*(part for part in model.features if list(part.parameters())), model.classifier]
    if hasattr(model, "encoder"):  # and its VisionTransformer
        return list(model.encoder.layers)
    return [part for name, part in model.named_children() if name.startswith("layer")]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all that is predicted, one class per image or one byte per position, in fp32
    whatever the model's precision."""
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


def count_parameters(model: nn.Module) -> int:
    # Of a parameter that DeepSpeed has sharded, nothing but its size is left in the model.
    return sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in model.parameters())
