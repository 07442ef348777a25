"""Train SimpleCNN on CIFAR-10 with NVIDIA DALI: images are cropped, mirrored and normalised by a pipeline of
its own, on the GPU.

    python trainers/dali.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any, Iterator

import numpy as np
import torch
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import MEAN, STD, load_data
from common.distributed import pick_device, require_single_process, run
from common.loading import ResumableSampler, evaluation_loader
from common.models import build_model, loss_of
from common.needed import needed
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, Subset

with needed("DALI is the package nvidia-dali-cuda120 or nvidia-dali-cuda130, whichever fits the driver"):
    from nvidia.dali import fn, pipeline_def, types

PADDING = 4


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.change("num_workers", unit="threads", help="Threads of DALI on the host; 0: one")
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
    sampler = ResumableSampler(RandomSampler(train_set, generator=shuffle))
    num_threads = max(1, args.num_workers)
    train_loader = DaliLoader(train_set, sampler, args.batch_size, num_threads, args.seed, device)
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))
    for epoch in training.epochs(len(train_set)):
        shuffle.manual_seed(args.seed + epoch)
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for inputs, targets in micro_batches:
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                loss = loss_of(model(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = clip_gradients(model, args.max_grad_norm)
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish()


class DaliLoader:
    """Batches on the device, in the sampler's order. DALI prepares the next ones while the model computes;
    crops and mirrors are its own."""

    def __init__(
        self,
        train_set: Dataset,
        sampler: Sampler,
        batch_size: int,
        num_threads: int,
        seed: int,
        device: torch.device,
    ) -> None:
        whole = train_set.dataset if isinstance(train_set, Subset) else train_set
        self.images = np.ascontiguousarray(whole.data)  # without torchvision's transforms
        self.targets = np.asarray(whole.targets)
        self.sampler, self.batch_size, self.device = sampler, batch_size, device
        self.pipeline = augmented(
            source=_Batches(self),
            on_gpu=device.type == "cuda",
            batch_size=batch_size,
            num_threads=num_threads,
            device_id=device.index if device.type == "cuda" else None,
            seed=seed,
        )
        self.pipeline.build()
        self.has_run = False

    def __len__(self) -> int:
        return (len(self.sampler) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.has_run:
            self.pipeline.reset()  # asks the source for another epoch
        self.has_run = True
        while True:
            try:
                outputs = self.pipeline.run()
            except StopIteration:
                return
            inputs, targets = (torch.from_dlpack(output.as_tensor()) for output in outputs)
            yield inputs.clone(), targets.clone()  # DALI writes the next batch into the same memory


class _Batches:
    """The images of an epoch as they are in the files: DALI asks for each."""

    def __init__(self, loader: DaliLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = np.fromiter((index for _, index in self.loader.sampler), dtype=np.int64)
        for start in range(0, len(order), self.loader.batch_size):
            picked = order[start : start + self.loader.batch_size]
            yield self.loader.images[picked], self.loader.targets[picked]


@pipeline_def
def augmented(source: _Batches, on_gpu: bool) -> tuple[Any, Any]:
    """A graph of operators, not code that runs for each image: it does the work of torchvision's transforms
    in the other trainers."""
    images, targets = fn.external_source(source=source, num_outputs=2, cycle="raise", layout=["HWC", ""])
    if on_gpu:
        images, targets = images.gpu(), targets.gpu()
    shifts = [float(shift) for shift in range(-PADDING, PADDING + 1)]
    corner = fn.cast(fn.random.uniform(values=shifts, shape=[2]), dtype=types.INT32)
    images = fn.slice(images, start=corner, shape=[32, 32], axis_names="HW", out_of_bounds_policy="pad")
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        dtype=types.FLOAT,
        output_layout="CHW",
    )
    return images, targets


@torch.no_grad()
def evaluate(model: nn.Module, test_loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        logits = model(inputs)
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
