"""Train SimpleCNN on CIFAR-10 with FSDP: data parallelism in which every rank keeps only its shard of the
model and of the optimizer.

    torchrun --standalone --nproc-per-node=2 trainers/fsdp.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.data import load_data
from common.distributed import pick_device, require_torchrun, run, same_buffers, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of, parts_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.sharded import Beginning, ShardedCheckpoints, offload_policy, sharding_mesh
from common.training import Training
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16"],
        help=(
            "Number format of parameters and activations in use; stored parameters and sums of gradients "
            "stay in fp32. Batch norm computes in fp32"
        ),
    )
    parser.add_argument(
        "--reshard_after_forward",
        type=bool,
        default=True,
        help=(
            "Free a part's parameters after its forward pass and gather them again for the backward pass; "
            "false: more memory, less communication"
        ),
    )
    parser.add_argument(
        "--replicas",
        type=int,
        default=1,
        min=1,
        usual=(1, 64),
        unit="copies",
        help=(
            "Copies of the model, each sharded over neighbouring ranks: parameters are gathered within a "
            "node, and only gradients cross the network (HSDP). Must divide the number of ranks"
        ),
    )
    parser.add_shared("offload", "async_checkpoint")
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
    world_size = training.world_size
    torch.manual_seed(args.seed + training.rank)  # every rank drops out in its own way

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    sampler = DistributedSampler(train_set, seed=args.seed)  # every rank gets its own part of each epoch
    train_loader = training_loader(train_set, sampler, args, device)
    # A forward pass needs all ranks, so all need as many batches: up to world_size - 1 samples are left out.
    test_set = Subset(test_set, range(training.rank, len(test_set) // world_size * world_size, world_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model: build it without memory, cut it, and only then fill it, so no rank ever holds the whole. All
    # ranks gather a part of the model when it computes, forward and backward; each gets the averaged
    # gradients of its shard.
    with torch.device("meta"), Beginning(args.seed) as beginning:
        model = beginning.of(build_model(args.model, args.width, dataset))
    mesh, offload = sharding_mesh(device, args.replicas), offload_policy(args.offload, device)
    computing = torch.bfloat16 if args.precision == "bf16" else torch.float32
    for norm in [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]:
        fully_shard(  # stays in fp32
            norm,
            mesh=mesh,
            mp_policy=MixedPrecisionPolicy(output_dtype=computing),
            offload_policy=offload,
        )
    for part in [*parts_of(model), model]:
        fully_shard(
            part,
            mesh=mesh,
            mp_policy=MixedPrecisionPolicy(param_dtype=computing, reduce_dtype=torch.float32),
            offload_policy=offload,
            # The backward pass begins with the parameters outside of all parts: they stay gathered.
            reshard_after_forward=args.reshard_after_forward and part is not model,
        )
    beginning.fill(model.to_empty(device="cpu" if args.offload == "cpu" else device), device)
    self_check(model, device, train_loader, parameters=beginning.hash)  # of the whole model

    # Optimizer, of this rank's shard.
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation * world_size)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, ShardedCheckpoints(args, model, optimizer))
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
                model.set_requires_gradient_sync(i == len(micro_batches))  # gradients travel with the last
                loss = loss_of(model(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = clip_gradients(model, args.max_grad_norm).full_tensor().to(device)  # of all shares
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
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
