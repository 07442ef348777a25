"""Train SimpleCNN on CIFAR-10 with all of the data on the device: batches are picked, cropped and mirrored
there, no loader in between.

    python trainers/gpu_data.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any, Iterator, Sequence

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import MEAN, STD, load_data
from common.distributed import pick_device, require_single_process, run
from common.loading import steps_of
from common.models import build_model, loss_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.utils.data import Dataset, Subset

PADDING = 4


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["num_workers"])
    parser.change_shared("cifar10_alone")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Training(args, device) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    torch.manual_seed(args.seed)

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    shuffle = torch.Generator()
    train_images, train_targets = put_on(device, train_set, padding=PADDING)
    test_images, test_targets = put_on(device, test_set)
    statistics = torch.tensor([MEAN, STD], device=device) * 255
    test_inputs = normalized(test_images, statistics)
    test_batches = list(zip(test_inputs.split(256), test_targets.split(256)))  # noqa: B905 - no strict= in Python 3.9

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(
        args, lr, steps_in(train_targets.split(args.batch_size), args.gradient_accumulation)
    )

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))
    for epoch in training.epochs(len(train_set)):
        shuffle.manual_seed(args.seed + epoch)
        order = torch.randperm(len(train_set), generator=shuffle).to(device)[training.position :]
        batches = batches_of(train_images, train_targets, statistics, order.split(args.batch_size))
        for micro_batches in training.timed(steps_of(batches, args.gradient_accumulation)):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for inputs, targets in micro_batches:
                loss = loss_of(model(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = clip_gradients(model, args.max_grad_norm)
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_batches, device))
    training.finish()


def put_on(
    device: torch.device, dataset: Dataset[Any], padding: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """All images as bytes (image, row, column, colour), with a black margin, and their classes: CIFAR-10 is
    154 MB so."""
    images, num_images = dataset, len(dataset)  # type: ignore[arg-type] # it has a length
    if isinstance(dataset, Subset):  # the first ones
        images = dataset.dataset
    pixels = torch.from_numpy(images.data[:num_images]).to(device)
    targets = torch.tensor(images.targets[:num_images], device=device)
    return F.pad(pixels, (0, 0, padding, padding, padding, padding)), targets


def batches_of(
    images: torch.Tensor,
    targets: torch.Tensor,
    statistics: torch.Tensor,
    order: Sequence[torch.Tensor],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of an epoch, each cut out, mirrored and normalised in a few kernels instead of image by
    image."""
    for picked in order:
        yield normalized(cropped_and_mirrored(images, picked), statistics), targets[picked]


def cropped_and_mirrored(images: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
    """Of each picked image a window of 32x32 somewhere in its margin, half of them mirrored: one read for
    all."""
    along = torch.arange(32, device=images.device)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, len(picked), 1), device=images.device)
    is_mirrored = torch.rand(len(picked), 1, device=images.device) < 0.5
    rows, columns = top + along, left + torch.where(is_mirrored, along.flip(0), along)
    return images[picked[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalized(images: torch.Tensor, statistics: torch.Tensor) -> torch.Tensor:
    """The model's input: (image, colour, row, column), every colour with mean 0 and deviation 1 over the data
    set."""
    mean, deviation = statistics
    return ((images - mean) / deviation).permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def evaluate(
    model: nn.Module, test_batches: list[tuple[torch.Tensor, torch.Tensor]], device: torch.device
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_batches:
        logits = model(inputs)
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
