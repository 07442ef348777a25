"""Models of torchvision by their names, made for small images: each training of one says so.

They were published for images of 224x224, which their first layers make 4 to 32 times smaller: of 32x32
nothing would be left. Up to SMALL pixels those layers differ; above, the models are torchvision's own, so its
checkpoints fit.
"""

from __future__ import annotations

from torch import nn

from common.distributed import TrainerError
from common.images import shown
from common.vision import IS_COMPILED, models

SMALL = 64
_PUBLISHED = "as torchvision has it"
_NO_OPERATORS = (
    "; torchvision's compiled part does not load beside this torch: its own operators "
    "(nms, decoding of images)"
    " are missing, which no model here uses"
)


def build(name: str, width: int, num_classes: int, image_size: int) -> nn.Module:
    """The model, with the sentence `said` on how it differs from what torchvision has under this name."""
    if width != 64:
        raise TrainerError(
            f"model={shown(name)} has the widths of torchvision: leave width at 64, not {width}"
        )
    model, said = {
        "resnet18": _resnet,
        "resnet50": _resnet,
        "vgg11": _vgg,
        "vit_tiny": _vit,
        "vit_b_16": _vit,
    }[name](name, num_classes, image_size)
    model.said = said + ("" if IS_COMPILED else _NO_OPERATORS)  # type: ignore[assignment] # a text
    return model


def _resnet(name: str, num_classes: int, image_size: int) -> tuple[nn.Module, str]:
    model: nn.Module = getattr(models, name)(num_classes=num_classes)
    if image_size > SMALL:
        return model, _PUBLISHED
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return (
        model,
        "torchvision's, but a 3x3 convolution first instead of 7x7 with stride 2, and no pooling after it",
    )


def _vgg(name: str, num_classes: int, image_size: int) -> tuple[nn.Module, str]:
    model: nn.Module = getattr(models, name)(num_classes=num_classes)
    if image_size > SMALL:
        return model, _PUBLISHED
    # 32x32 is one pixel after its five poolings: 7x7 copies of it would feed 103 million weights.
    model.avgpool = nn.AdaptiveAvgPool2d(1)
    model.classifier = nn.Sequential(
        nn.Linear(512, 512),
        nn.ReLU(True),
        nn.Dropout(),
        nn.Linear(512, 512),
        nn.ReLU(True),
        nn.Dropout(),
        nn.Linear(512, num_classes),
    )
    return (
        model,
        "torchvision's, but one mean of each channel instead of 7x7, and hidden layers of "
        "512 instead of 4096",
    )


_VITS = {"vit_tiny": (6, 3, 192), "vit_b_16": (12, 12, 768)}
"""Name → layers, heads, embedding. The first has half the layers of DeiT-Ti; torchvision "
"has no name for it."""


def _vit(name: str, num_classes: int, image_size: int) -> tuple[nn.Module, str]:
    patch = 4 if image_size <= SMALL else 16
    if image_size % patch:
        raise TrainerError(
            f"model={name} cuts images into patches of {patch}x{patch}: image_size {image_size} is not a "
            f"multiple of {patch}"
        )
    layers, heads, embedding = _VITS[name]
    model: nn.Module = models.VisionTransformer(
        image_size, patch, layers, heads, embedding, 4 * embedding, num_classes=num_classes
    )
    nn.init.zeros_(model.class_token)  # as it is; but in place, which FSDP's building on no device can note
    said = f"patches of {patch}x{patch}, {layers} layers, {heads} heads, embedding {embedding}"
    if name == "vit_b_16":
        return model, _PUBLISHED if patch == 16 else "torchvision's, but patches of 4x4 instead of 16x16"
    return model, f"torchvision's VisionTransformer with {said}"
