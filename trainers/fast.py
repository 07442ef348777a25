"""Train SimpleCNN on CIFAR-10 as fast as one device can: all that pays, together, and the model unchanged.

    python trainers/fast.py --compile false

Data on the device (gpu_data.py), 16-bit products (amp.py), channels last (channels_last.py), one compiled
kernel where there were many (compile.py), a fused optimizer, and large batches with the learning rate that
they need. The host never waits for the step that it has just asked for.

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import MEAN, STD, load_cifar10
from common.distributed import pick_device, require_single_process, run
from common.models import SimpleCNN, loss_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr
from common.speed import computes_in_bf16
from common.training import Training
from torch import nn
from torch.utils.data import Dataset, Subset

PADDING = 4


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(
        without=[
            "num_workers",
            "gradient_accumulation",
            "model",
            "data",
            "image_size",
            "augment",
            "cudnn_benchmark",
        ]
    )
    parser.change(
        "batch_size",
        default=2000,
        usual=(8, 16384),
        help="Samples of one step. The rest of an epoch that fills no batch is left out",
    )
    parser.change("epochs", default=15, help="Passes over the training data")
    parser.change(
        "warmup_steps",
        default=20,
        help="Steps in which the learning rate rises to lr",
    )
    parser.change("lr_scaling", default="linear")
    parser.change("lr_schedule", default="linear")
    parser.add_argument(
        "--compile",
        type=bool,
        default=True,
        help="Compile the model, which takes about a minute; false starts at once",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Training(args, device) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    torch.manual_seed(args.seed)

    # All batches have one shape: try the kernels once, keep the fastest.
    torch.backends.cudnn.benchmark = True

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_cifar10(args.data_dir, args.cache_dir, args.num_train_samples)
    shuffle = torch.Generator()
    train_images, train_targets = put_on(device, train_set, padding=PADDING)
    test_images, test_targets = put_on(device, test_set)
    statistics = torch.tensor([MEAN, STD], device=device) * 255
    test_inputs = normalized(test_images, statistics)

    # Leave out the rest of an epoch, less than a batch: another shape would be compiled anew. Each epoch
    # leaves out other images.
    num_samples = min(args.batch_size, len(train_targets))
    steps_per_epoch = len(train_targets) // num_samples

    # Model and optimizer.
    model = SimpleCNN(args.width).to(device, memory_format=torch.channels_last)
    lr = scaled_lr(args.lr, args.lr_scaling, num_samples)
    optimizer = build_optimizer(args, model.parameters(), lr, fused=True)
    schedule = build_schedule(args, lr, steps_per_epoch)

    # Products in 16 bits, where the device computes in them: elsewhere they would take several times as long.
    is_bf16 = computes_in_bf16("auto", device)

    def loss_on(picked: torch.Tensor) -> torch.Tensor:
        """From bytes to the loss in one function, so that the compiler can make one kernel of successive
        operations."""
        inputs = normalized(cropped_and_mirrored(train_images, picked), statistics)
        with torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
            return loss_of(model(inputs), train_targets[picked])

    compiled_loss_on = torch.compile(loss_on) if args.compile else loss_on
    if args.compile:
        training.watch_compilation()

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer), samples_of_step=num_samples)
    for epoch in training.epochs(steps_per_epoch * num_samples):
        shuffle.manual_seed(args.seed + epoch)
        order = torch.randperm(len(train_set), generator=shuffle).to(device)
        batches = order[training.position : steps_per_epoch * num_samples].split(num_samples)
        # There is no data to wait for: cutting out and mirroring are the device's work.
        for picked in training.timed((picked, 0.0) for picked in batches):
            lr = set_lr(optimizer, schedule(training.step))
            optimizer.zero_grad()
            loss = compiled_loss_on(picked)
            loss.backward()
            grad_norm = clip_gradients(model, args.max_grad_norm)
            optimizer.step()
            if picked is batches[-1]:
                training.metrics.wait_for_device()  # an epoch has few steps: the time of its last one counts
            training.end_step(num_samples, loss=loss.detach(), lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_inputs, test_targets, num_samples, is_bf16))
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


def cropped_and_mirrored(images: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
    """Of each picked image a window of 32x32 somewhere in its margin, half of them mirrored: one read for
    all."""
    along = torch.arange(32, device=images.device)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, len(picked), 1), device=images.device)
    is_mirrored = torch.rand(len(picked), 1, device=images.device) < 0.5
    rows, columns = top + along, left + torch.where(is_mirrored, along.flip(0), along)
    return images[picked[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalized(images: torch.Tensor, statistics: torch.Tensor) -> torch.Tensor:
    """The model's input, every colour with mean 0 and deviation 1 over the data set. The colours of a pixel
    already lie side by side."""
    mean, deviation = statistics
    return ((images - mean) / deviation).permute(0, 3, 1, 2)


@torch.no_grad()
def evaluate(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, batch_size: int, is_bf16: bool
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set. Not compiled: compiling would take longer than the
    evaluation."""
    model.eval()
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=is_bf16):
        logits = torch.cat([model(part) for part in inputs.split(batch_size)]).float()
    model.train()
    return loss_of(logits, targets).item(), (logits.argmax(-1) == targets).float().mean().item()


if __name__ == "__main__":
    run(main)
