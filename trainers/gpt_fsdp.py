"""Train a GPT on the tokens of a text with FSDP: every rank on its own blocks, with its shard of the model.

    torchrun --standalone --nproc-per-node=2 trainers/gpt_fsdp.py --max_steps 600

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.distributed import TrainerError, pick_device, require_torchrun, run, self_check
from common.loading import evaluation_loader, training_loader
from common.models import gpt2, loss_of, parts_of, weights_of_gpt
from common.optimization import (
    build_optimizer,
    build_schedule,
    by_decay,
    clip_gradients,
    scaled_lr,
    set_lr,
    steps_in,
)
from common.sharded import Beginning, ShardedCheckpoints, sharding_mesh
from common.speed import computes_in_bf16, flops_per_token, report_speed
from common.tokens import keep_tokenizer, load_tokens, show_sample
from common.training import Training
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["model", "width", "data", "image_size", "augment", "cudnn_benchmark"])
    parser.add_shared("text", "tokenizer", "vocabulary", "layers", "heads", "embedding", "sequence_length")
    parser.add_shared("dropout", "precision", "recompute", "sample_tokens")
    parser.change_shared("language")
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
    if args.embedding % args.heads:
        raise TrainerError(f"embedding={args.embedding} must be a multiple of heads={args.heads}")

    # Data: blocks of the text. Seed and epoch alone decide the order of each epoch, so a resumed run sees the
    # same order.
    text = load_tokens(args)
    sampler = DistributedSampler(text.train_set, seed=args.seed)  # every rank gets its own part of each epoch
    train_loader = training_loader(text.train_set, sampler, args, device)
    # A forward pass needs all ranks, so all need as many blocks: up to world_size - 1 are left out.
    rank, world_size = training.rank, training.world_size
    held_out = Subset(text.held_out, range(rank, len(text.held_out) // world_size * world_size, world_size))
    test_loader = evaluation_loader(held_out, args, device, args.batch_size)

    # Model: build it without memory, cut it, and only then fill it, so no rank ever holds the whole. All
    # ranks gather a block when it computes, in 16 bits where the device computes in them; each rank gets the
    # averaged gradients of its shard. Each block keeps only its input, where memory is short.
    sizes = (args.embedding, args.layers, args.heads, args.sequence_length, text.padded_vocabulary)
    with torch.device("meta"), Beginning(args.seed) as beginning:
        model = beginning.of(gpt2(*sizes, args.dropout))
    is_bf16 = computes_in_bf16(args.precision, device)
    computing = torch.bfloat16 if is_bf16 else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=computing, reduce_dtype=torch.float32)
    for block in parts_of(model) if args.recompute else []:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    mesh = sharding_mesh(device, replicas=1)
    for part in [*parts_of(model), model]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    beginning.fill(model.to_empty(device=device), device)
    self_check(model, device, train_loader, parameters=beginning.hash)  # of the whole model

    # Optimizer, of this rank's shard. Weights of matrices decay; biases and norms, which are few, do not.
    lr = scaled_lr(
        args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation * training.world_size
    )
    optimizer = build_optimizer(args, by_decay(model.parameters()), lr, betas=(0.9, 0.95), fused=True)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(
        text.info, ShardedCheckpoints(args, model, optimizer, {"vocabulary": text.padded_vocabulary})
    )
    keep_tokenizer(text, args.run_dir)
    for epoch in training.epochs(len(text.train_set)):
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
            grad_norm = clip_gradients(model, args.max_grad_norm).full_tensor()  # of all shares
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device), text.measures_of)
    of_token = flops_per_token(weights_of_gpt(model), args.layers, args.embedding, args.sequence_length)
    report_speed(training, device, of_token, args.sequence_length, is_bf16)
    training.finish(lambda: show_sample(model, text, args, device))


@torch.no_grad()
def evaluate(model: nn.Module, test_loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the held-out text."""
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
