"""Train SimpleCNN on CIFAR-10 on several ranks of MPI, which average their gradients by one all-reduce: DDP
without its cleverness.

    mpiexec -n 2 python trainers/mpi_allreduce.py --epochs 1
    srun --mpi=pmi2 --ntasks=4 python trainers/mpi_allreduce.py --epochs 1

Started alone, it starts --ranks of itself by the mpiexec of its environment. Gradients travel through the
host's memory: any MPI will do.

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import load_data
from common.distributed import pick_device, run, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of
from common.mpi_start import start_ranks
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.add_shared("ranks")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    mpi = start_ranks(args.ranks or args.gpus_per_node or 2)  # mpi4py's MPI, in each of the ranks
    comm = mpi.COMM_WORLD
    device = pick_device(args.gpus_per_node)
    # All ranks leave in the same step, or the others would wait forever.
    with Training(
        args, device, gather=comm.allgather, any_rank=lambda is_true: comm.allreduce(is_true, op=mpi.LOR)
    ) as training:
        train(args, device, training, mpi)


def train(args: argparse.Namespace, device: torch.device, training: Training, mpi: Any) -> None:
    comm, rank, world_size = mpi.COMM_WORLD, training.rank, training.world_size
    torch.manual_seed(args.seed + rank)  # every rank drops out in its own way

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, seed=args.seed)
    train_loader = training_loader(train_set, sampler, args, device)
    test_set = Subset(test_set, range(rank, len(test_set), world_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation * world_size)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # All start with the parameters of rank 0.
    model.load_state_dict(comm.bcast({name: tensor.cpu() for name, tensor in model.state_dict().items()}))
    self_check(model, device, train_loader, gather=comm.allgather)

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))
    for epoch in training.epochs(len(train_set)):
        sampler.set_epoch(epoch)  # without this, every epoch has the order of the first
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

            # Every gradient becomes the mean of all ranks' gradients. DDP does the same while the backward
            # pass still computes others.
            for p in model.parameters():
                gradient = p.grad.cpu().contiguous().numpy()
                comm.Allreduce(mpi.IN_PLACE, gradient, op=mpi.SUM)
                p.grad = torch.from_numpy(gradient).to(device) / world_size
            grad_norm = clip_gradients(model, args.max_grad_norm)
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device, comm))
    training.finish(before_leaving=mpi.Finalize)  # a rank that leaves without it counts as lost


@torch.no_grad()
def evaluate(
    model: nn.Module, test_loader: DataLoader, device: torch.device, comm: Any
) -> tuple[float, float]:
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
    loss, num_correct, num_answers = comm.allreduce(totals.cpu().numpy()).tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
