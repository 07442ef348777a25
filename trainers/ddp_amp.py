"""Train SimpleCNN on CIFAR-10 with DDP and automatic mixed precision: one process per device, matrix products
in 16 bits, gradients averaged in 32.

    torchrun --standalone --nproc-per-node=2 trainers/ddp_amp.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import load_data
from common.distributed import pick_device, require_torchrun, run, same_buffers, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.add_argument(
        "--bucket_cap_mb",
        type=int,
        default=25,
        min=1,
        usual=(1, 200),
        unit="MB",
        help="Size of a bucket of gradients: small buckets start earlier, large ones use the network better",
    )
    parser.add_argument(
        "--compression",
        default="none",
        choices=["none", "fp16", "bf16"],
        help="Number format of the gradients on the network; bf16 needs NCCL",
    )
    parser.add_argument(
        "--sync_batch_norm",
        type=bool,
        default=False,
        help="Let batch norm count over the samples of all ranks; needs GPUs",
    )
    parser.add_argument(
        "--precision",
        default="bf16",
        choices=["bf16", "fp16"],
        help="Number format of the products: bf16 has the range of fp32; fp16 has more digits, and its "
        "loss must be scaled",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    is_gpu = device.type == "cuda"
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_gpu else "gloo", device_id=device if is_gpu else None)
    with Training(args, device) as training:
        train(args, device, training)


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    torch.manual_seed(args.seed + training.rank)  # every rank drops out in its own way

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    sampler = DistributedSampler(train_set, seed=args.seed)  # every rank gets its own part of each epoch
    train_loader = training_loader(train_set, sampler, args, device)
    test_set = Subset(test_set, range(training.rank, len(test_set), training.world_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(
        args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation * training.world_size
    )
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    if args.sync_batch_norm:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

    # From here on every backward pass averages the gradients of all ranks. All start with the parameters of
    # rank 0.
    ddp_model = training.metrics.watch(
        DDP(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=args.bucket_cap_mb,
            gradient_as_bucket_view=True,  # the gradients lie where they travel from: no copy
        )
    )
    if args.compression != "none":
        ddp_model.register_comm_hook(None, getattr(default_hooks, f"{args.compression}_compress_hook"))
    self_check(model, device, train_loader)

    # Products in 16 bits. Every rank has the same scale: an overflow on one is in the mean of all.
    mixed = torch.autocast(device.type, torch.bfloat16 if args.precision == "bf16" else torch.float16)
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer, {"precision": args.precision}, scaler=scaler))
    for epoch in training.epochs(len(train_set)):
        sampler.set_epoch(epoch)  # without this, every epoch has the order of the first
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for i, (inputs, targets) in enumerate(micro_batches, 1):
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                # Gradients travel with the last micro-batch only.
                with nullcontext() if i == len(micro_batches) else ddp_model.no_sync():
                    with mixed:  # the parameters stay in 32 bits, and with them the gradients that travel
                        loss = loss_of(ddp_model(inputs), targets) * (len(targets) / num_samples)
                    scaler.scale(loss).backward()
                step_loss += loss.detach()
            scaler.unscale_(optimizer)
            grad_norm = clip_gradients(model, args.max_grad_norm)
            scaler.step(optimizer)  # does nothing where a gradient is not finite; the scale is then halved
            scaler.update()
            # The scale is read on the device: get_scale() would wait for the step.
            training.end_step(
                num_samples,
                loss=step_loss,
                lr=lr,
                grad_norm=grad_norm,
                loss_scale=scaler.scale(torch.ones((), device=device)),
                is_skipped=~grad_norm.isfinite() & scaler.is_enabled(),
            )
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish()


@torch.no_grad()
def evaluate(model: nn.Module, test_loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    same_buffers(model)  # batch norm's statistics differ by rank
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        logits = model(inputs)
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    dist.all_reduce(totals)
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
