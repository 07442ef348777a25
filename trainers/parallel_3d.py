"""Train the GPT with 3D parallelism: split by layers, every layer split by heads, and the whole of it
repeated on other data.

    torchrun --standalone --nproc-per-node=8 trainers/parallel_3d.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.data import load_data
from common.distributed import (
    TrainerError,
    gather,
    node_name,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.loading import evaluation_loader, training_loader
from common.models import build_model, count_parameters, loss_of, parts_of
from common.optimization import build_optimizer, build_schedule, scaled_lr, set_lr, steps_in
from common.sharded import ShardedCheckpoints, groups_of, norm_of_gradients
from common.training import Training
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["gradient_accumulation", "max_grad_norm"])
    parser.add_shared("microbatches", "async_checkpoint")
    parser.change_shared("gpt_in_parts")
    parser.change("batch_size", default=8)
    parser.change("num_train_samples", default=1280)
    parser.add_argument(
        "--tp",
        type=int,
        default=2,
        min=1,
        usual=(1, 8),
        unit="ranks",
        help="Ranks that share each layer; must divide the 4 heads. They are neighbours, so they share a "
        "node",
    )
    parser.add_argument(
        "--pp",
        type=int,
        default=2,
        min=1,
        usual=(1, 64),
        unit="stages",
        help=(
            "Stages that share the layers, at most as many as layers and micro-batches. What remains of the "
            "ranks are copies for other data"
        ),
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
    torch.manual_seed(args.seed)
    mesh = make_mesh(args.tp, args.pp, device)
    dp_rank, tp_rank, pp_rank = (mesh.get_local_rank(name) for name in ("dp", "tp", "pp"))
    dp_size = mesh["dp"].size()
    training.num_replicas = dp_size

    # Data: each copy of the model has its own part of it, which all ranks of the copy read in the same order.
    # Steps are whole: the stages agree once on the size of their messages.
    train_set, test_set, dataset = load_data(args)
    global_batch_size = args.batch_size * args.microbatches * dp_size
    if len(train_set) < global_batch_size:
        raise TrainerError(f"one step needs {global_batch_size} samples, but there are {len(train_set)}")
    train_set = Subset(train_set, range(len(train_set) // global_batch_size * global_batch_size))
    sampler = DistributedSampler(train_set, num_replicas=dp_size, rank=dp_rank, seed=args.seed)
    train_loader = training_loader(train_set, sampler, args, device)
    test_set = Subset(test_set, range(dp_rank, len(test_set), dp_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model: every rank keeps its own layers, and of those its heads and hidden neurons.
    whole = build_model(args.model, args.width, dataset)
    self_check(whole, device, train_loader, shard=dp_rank)
    num_parameters, num_layers = count_parameters(whole), len(parts_of(whole))
    num_heads = args.width * 2 // parts_of(whole)[0].attention.head_size
    if num_heads % args.tp or args.pp > min(num_layers, args.microbatches):
        raise TrainerError(
            f"--tp must divide {num_heads} heads, and --pp must be at most {num_layers} layers and "
            f"{args.microbatches} micro-batches"
        )
    model = Layers(whole, pp_rank, args.pp).to(device)
    for block in model.blocks.values():
        plan = {
            "attention": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate()),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.projection": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        parallelize_module(block, mesh["tp"], plan)
    stage = PipelineStage(model, pp_rank, args.pp, device, group=mesh["pp"].get_group())

    def loss_of_microbatch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(logits, targets) / (args.microbatches * dp_size)

    pipe = Schedule1F1B(stage, args.microbatches, loss_of_microbatch, scale_grads=False)

    # Optimizer, of this rank's parts.
    lr = scaled_lr(args.lr, args.lr_scaling, global_batch_size)
    optimizer = build_optimizer(args, groups_of(model), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.microbatches))
    checkpoints = ShardedCheckpoints(args, model, optimizer)
    checkpoints.num_parameters = num_parameters  # of the whole model

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, checkpoints, samples_of_step=global_batch_size)
    place = {"dp": dp_rank, "tp": tp_rank, "pp": pp_rank, "sizes": [dp_size, args.tp, args.pp]}
    training.metrics.event("mesh", training.step, **place, loss_of="all")
    for epoch in training.epochs(len(train_set)):
        sampler.set_epoch(epoch)  # without this, every epoch has the order of the first
        for micro_batches in training.steps(train_loader, args.microbatches):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            inputs, targets = (
                torch.cat(part).to(device, non_blocking=True)
                for part in zip(*micro_batches)  # noqa: B905 - no strict= in Python 3.9
            )
            losses: list[torch.Tensor] = []  # stays empty, except on the last stage
            pipe.step(*([inputs] if stage.is_first else []), target=targets, losses=losses)
            step_loss += sum(loss.detach() for loss in losses)
            add_up_gradients(model, mesh["dp"])
            # The last stages tell all the loss, and the norm is of all stages together. Each part counts
            # once, however many copies there are.
            totals = torch.stack([step_loss / args.tp, norm_of_gradients(model) ** 2 / (args.tp * dp_size)])
            dist.all_reduce(totals)
            step_loss, grad_norm = totals[0], totals[1].sqrt()
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device, mesh["pp"]))
    training.finish()


def make_mesh(tp: int, pp: int, device: torch.device) -> DeviceMesh:
    """All ranks, by their place in three directions. Neighbours share layers, because these send the most;
    stages are farthest apart."""
    world_size = dist.get_world_size()
    if world_size % (tp * pp):
        raise TrainerError(
            f"{world_size} ranks cannot be shared out evenly: start a multiple of --tp {tp} x --pp {pp}"
        )
    mesh = init_device_mesh(device.type, (pp, world_size // (tp * pp), tp), mesh_dim_names=("pp", "dp", "tp"))
    places = gather((*(mesh.get_local_rank(name) for name in ("dp", "tp", "pp")), node_name()))
    print_rank0(f"mesh: {mesh['dp'].size()} (dp) x {tp} (tp) x {pp} (pp)")
    for rank, (dp_rank, tp_rank, pp_rank, node) in enumerate(places):
        print_rank0(f"  rank {rank}: dp {dp_rank}, tp {tp_rank}, pp {pp_rank}, on {node}")
    return mesh


def add_up_gradients(model: nn.Module, copies: DeviceMesh) -> None:
    """Over the ranks that hold the same parts and had other data."""
    grads = [parameter.grad for parameter in model.parameters()]
    grads = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
    group = copies.get_group()
    for work in [dist.all_reduce(grad, group=group, async_op=True) for grad in grads]:
        work.wait()


class Layers(nn.Module):
    """The blocks of one stage, named as in the whole model; the first stage also embeds the bytes, and the
    last one predicts."""

    def __init__(self, whole: Any, index: int, num_stages: int) -> None:
        super().__init__()
        start, end = (len(whole.blocks) * i // num_stages for i in (index, index + 1))
        self.embedding = whole.tokens.embedding_dim
        if index == 0:
            self.tokens, self.positions = whole.tokens, whole.positions
        self.blocks = nn.ModuleDict({str(i): whole.blocks[i] for i in range(start, end)})
        if index == num_stages - 1:
            self.norm, self.output = whole.norm, whole.output

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "tokens"):
            hidden = self.tokens(hidden) + self.positions(torch.arange(hidden.shape[1], device=hidden.device))
        for block in self.blocks.values():
            hidden = block(hidden)
        return self.output(self.norm(hidden)) if hasattr(self, "output") else hidden


@torch.no_grad()
def evaluate(
    model: Layers, test_loader: DataLoader, device: torch.device, pipe: DeviceMesh
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    stage, ranks, group = pipe.get_local_rank(), pipe.mesh.tolist(), pipe.get_group()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        if stage > 0:
            inputs = torch.empty(*targets.shape, model.embedding, device=device)
            dist.recv(inputs, src=ranks[stage - 1], group=group)
        logits = model(inputs)
        if stage < len(ranks) - 1:
            dist.send(logits, dst=ranks[stage + 1], group=group)
            continue
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    dist.all_reduce(totals)
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
