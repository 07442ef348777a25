"""Measure trainings on one device beside their roofs: SimpleCNN by batch, precision, compilation and place of
the data; ResNet-18; the GPT.

One step is the trainers' step: forward, loss, backward, SGD. The numbers exclude compilation and warm-up.
Each number is the median of several blocks of steps, with the spread of the blocks beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from common.data import MEAN, STD
from common.models import GPT, build_model, count_parameters, loss_of
from roofs import Device, Roofs, device_of, roofs_of, work_of
from torch import nn

PRECISIONS = ("fp32", "tf32", "bf16")
BATCH_SIZES = (16, 128, 512, 4096)
NUM_IMAGES = 50_000
NUM_BLOCKS = 7
BLOCK_S = 0.2
WARM_UP_STEPS = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """One row. `per_step` counts the samples or tokens of a step."""

    what: str
    per_step: int
    step_s: float
    spread: float
    """Largest less smallest block, over the median."""
    compile_s: float | None
    roofs: Roofs | None
    flops_share: float | None = None
    """Of the peak of the precision that was used (MFU)."""

    @property
    def per_s(self) -> float:
        return self.per_step / self.step_s


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: all of it, or something tiny that shows that it works."""

    batch_sizes: Sequence[int] = BATCH_SIZES
    width: int = 64
    num_images: int = NUM_IMAGES
    resnet_batch: int = 512
    gpts: Sequence[tuple[int, int, int, int, int]] = ((768, 12, 12, 1024, 32), (2048, 12, 16, 1024, 16))
    """Embedding, layers, heads, sequence length, batch size."""
    is_compiled: Sequence[bool] = (False, True)
    num_blocks: int = NUM_BLOCKS
    block_s: float = BLOCK_S


TINY = Sizes((16,), 8, 256, 2, ((16, 1, 2, 16, 2),), (False,), 2, 0.01)


def tables(
    device: torch.device, sizes: Sizes, wanted: Sequence[str]
) -> Iterator[tuple[str, str, list[Measured]]]:
    """Key, title and rows of each table that is wanted, as they are measured."""
    sheet = device_of(name_of(device))
    known = {
        "simplecnn": ("SimpleCNN, samples/s", _simplecnn),
        "resnet18": (f"ResNet-18, batch {sizes.resnet_batch}, samples/s", _resnet),
        "gpt": ("GPT, bf16, tokens/s", _gpt),
    }
    for key, (title, rows) in known.items():
        if key in wanted:
            yield key, title, list(rows(device, sheet, sizes))


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _simplecnn(device: torch.device, sheet: Device | None, sizes: Sizes) -> Iterator[Measured]:
    host = torch.randint(256, (sizes.num_images, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (sizes.num_images,))
    if device.type == "cuda":
        host, labels = host.pin_memory(), labels.pin_memory()
    resident = host.to(device), labels.to(device)
    places = {"host": (host, labels), "device": resident}
    for batch_size, precision, is_compiled, place in product(
        sizes.batch_sizes, PRECISIONS, sizes.is_compiled, places
    ):
        what = (
            f"batch {batch_size}, {precision}, {'compiled' if is_compiled else 'eager'}, data on the {place}"
        )
        model = build_model("simplecnn", sizes.width).to(device, memory_format=torch.channels_last)
        batches = _image_batches(*places[place], batch_size, device)
        yield _measure(what, model, batches, batch_size, precision, is_compiled, device, sheet, sizes)


def _resnet(device: torch.device, sheet: Device | None, sizes: Sizes) -> Iterator[Measured]:
    images = torch.randint(256, (4 * sizes.resnet_batch, 3, 32, 32), dtype=torch.uint8, device=device)
    labels = torch.randint(10, (len(images),), device=device)
    for precision in PRECISIONS:
        model = build_model("resnet18", 64).to(device, memory_format=torch.channels_last)
        batches = _image_batches(images, labels, sizes.resnet_batch, device)
        what = f"{precision}, eager"
        yield _measure(what, model, batches, sizes.resnet_batch, precision, False, device, sheet, sizes)


def _gpt(device: torch.device, sheet: Device | None, sizes: Sizes) -> Iterator[Measured]:
    for (embedding, layers, heads, length, batch_size), is_compiled in product(sizes.gpts, sizes.is_compiled):
        model = GPT(embedding, layers, heads, length).to(device)
        num_parameters = count_parameters(model)
        tokens = torch.randint(256, (4 * batch_size, length + 1), device=device)

        def batches(tokens: torch.Tensor = tokens, batch_size: int = batch_size) -> Iterator[Any]:
            while True:
                for part in tokens.split(batch_size):
                    yield part[:, :-1], part[:, 1:]

        what = f"{num_parameters / 1e6:.1f} M parameters, {layers} layers, {length} tokens x {batch_size}"
        what += ", compiled" if is_compiled else ", eager"
        # 6N + 12 L H Q T for each token (PaLM, appendix B): H Q is the embedding.
        flops = (6 * num_parameters + 12 * layers * embedding * length) * batch_size * length
        yield _measure(
            what, model, batches(), batch_size * length, "bf16", is_compiled, device, sheet, sizes, flops
        )


def _image_batches(
    images: torch.Tensor, labels: torch.Tensor, batch_size: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, STD))
    start = 0
    while True:
        start = start if start + batch_size <= len(images) else 0
        part = slice(start, start + batch_size)
        inputs, targets = (tensor[part].to(device, non_blocking=True) for tensor in (images, labels))
        yield ((inputs - mean) / std).contiguous(memory_format=torch.channels_last), targets
        start += batch_size


def _measure(
    what: str,
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    per_step: int,
    precision: str,
    is_compiled: bool,
    device: torch.device,
    sheet: Device | None,
    sizes: Sizes,
    flops: float | None = None,
) -> Measured:
    """`flops`: of a step, by a formula; None: as counted."""
    with _precision(precision):
        iterator = iter(batches)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=1e-3, momentum=0.9, fused=device.type == "cuda" or None
        )

        def step_with(forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
            inputs, targets = next(iterator)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                logits = forward(inputs)
            loss_of(logits, targets).backward()
            optimizer.step()

        step_with(model)
        work = work_of(lambda: step_with(model))
        forward, compile_s = model, None
        if is_compiled:
            torch._dynamo.reset()
            forward, started = torch.compile(model), time.perf_counter()
            step_with(forward)
            _synchronize(device)
            compile_s = time.perf_counter() - started
        blocks = _blocks(lambda: step_with(forward), device, sizes)
    median = statistics.median(blocks)
    peak = getattr(sheet, precision) if sheet else None
    return Measured(
        what=what,
        per_step=per_step,
        step_s=median,
        spread=(max(blocks) - min(blocks)) / median,
        compile_s=compile_s,
        roofs=roofs_of(work, sheet, precision) if sheet else None,
        flops_share=(flops or work.flops) / median / peak if peak else None,
    )


def _blocks(step: Callable[[], None], device: torch.device, sizes: Sizes) -> list[float]:
    """Seconds of a step, of several blocks of steps each long enough that waiting for its end does not
    count."""
    for _ in range(WARM_UP_STEPS):
        step()
    _synchronize(device)
    started = time.perf_counter()
    step()
    _synchronize(device)
    num_steps = max(1, round(sizes.block_s / (time.perf_counter() - started)))
    seconds = []
    for _ in range(sizes.num_blocks):
        started = time.perf_counter()
        for _ in range(num_steps):
            step()
        _synchronize(device)
        seconds.append((time.perf_counter() - started) / num_steps)
    return seconds


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _precision:
    """TF32 for products and convolutions on where it is measured, off elsewhere, and as it was before
    afterwards."""

    def __init__(self, precision: str) -> None:
        self._is_tf32 = precision == "tf32"

    def __enter__(self) -> None:
        self._before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self._is_tf32

    def __exit__(self, *error: object) -> None:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = self._before


def as_markdown(title: str, rows: Sequence[Measured]) -> str:
    """A table; an unknown value is a dash."""
    lines = [
        f"## {title}",
        "",
        (
            "| | measured | blocks differ by | compute roof | memory roof (eager) | launch roof (eager) | "
            "binding | of binding | of peak FLOP/s | compilation |"
        ),
        "|---|---:|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row.what, f"{row.per_s:,.0f}", f"{row.spread:.0%}"]
        if row.roofs is None:
            cells += ["–"] * 5
        else:
            roofs = row.roofs
            limits = (roofs.compute_s, roofs.memory_s, roofs.launch_s)
            cells += [f"{row.per_step / limit:,.0f}" for limit in limits]
            cells += [roofs.binding, f"{roofs.least_s / row.step_s:.0%}"]
        cells += ["–" if row.flops_share is None else f"{row.flops_share:.1%}"]
        cells += ["–" if row.compile_s is None else f"{row.compile_s:.1f} s"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
