"""Train the GPT with tensor parallelism: every matrix of a block is split over the ranks, which compute each
sample together.

    torchrun --standalone --nproc-per-node=2 trainers/tensor_parallel.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.data import load_data
from common.distributed import TrainerError, pick_device, require_torchrun, run, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of, parts_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.sharded import ShardedCheckpoints, groups_of, norm_of_gradients
from common.training import Training
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, RandomSampler


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.change_shared("gpt_in_parts")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    is_gpu = device.type == "cuda"
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    with Training(args, device, num_replicas=1) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    torch.manual_seed(args.seed)

    # Data: the same samples in the same order on every rank, because each rank computes its part of every
    # sample.
    train_set, test_set, dataset = load_data(args)
    shuffle = torch.Generator()
    sampler = RandomSampler(train_set, generator=shuffle)
    train_loader = training_loader(train_set, sampler, args, device)
    test_loader = evaluation_loader(test_set, args, device)

    # Model: of every pair of matrices, the first is split by columns and the second by rows. A rank has whole
    # heads, and the hidden neurons between its parts of `up` and `down`, so that only sums have to travel:
    # forward those after each second matrix, one for attention and one for the MLP; backward those before
    # each first matrix, one and one. Attention gets its input as one DTensor: the rank first adds up the
    # gradients of query, key and value, and they travel once.
    model = build_model(args.model, args.width, dataset).to(device)
    self_check(model, device, train_loader, shard=0)
    mesh = dist.init_device_mesh(device.type, (training.world_size,))
    for block in parts_of(model):
        num_heads = block.attention.query.out_features // block.attention.head_size
        if num_heads % training.world_size:
            raise TrainerError(f"{num_heads} heads cannot be split evenly over {training.world_size} ranks")
        plan = {
            "attention": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate()),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.projection": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        parallelize_module(block, mesh, plan)

    # Optimizer, of this rank's parts.
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, groups_of(model), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, ShardedCheckpoints(args, model, optimizer))
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
            grad_norm = clip_gradients(model, args.max_grad_norm, norm_of_gradients(model))
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish()


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
