"""Train SimpleCNN on CIFAR-10 with Horovod, which averages gradients in the optimizer. For environments that
still have it: use DDP.

    horovodrun -np 2 python trainers/horovod_cnn.py --epochs 1

Started alone, it starts --ranks of itself by horovodrun. Horovod 0.28.1, the last one, does not build against
torch 2.1 and newer unless it is patched.

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import torch
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import load_data
from common.distributed import TrainerError, pick_device, run, self_check
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of
from common.needed import needed
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset

with needed(
    "Horovod has to be built from patched sources, as 0.28.1 is too old for torch 2.1; ddp.py does the same"
):
    import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["gradient_accumulation"])
    parser.add_shared("ranks")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if "HOROVOD_RANK" not in os.environ:
        start_ranks(args.ranks or args.gpus_per_node or 2)
    hvd.init()
    os.environ.update(RANK=str(hvd.rank()), WORLD_SIZE=str(hvd.size()), LOCAL_RANK=str(hvd.local_rank()))
    device = pick_device(args.gpus_per_node)
    # All ranks leave in the same step, or the others would wait forever.
    with Training(
        args,
        device,
        gather=hvd.allgather_object,
        any_rank=lambda is_true: any(hvd.allgather_object(is_true)),
    ) as training:
        train(args, device, training)


def start_ranks(num_ranks: int) -> None:
    """Become the horovodrun that belongs to this Python."""
    beside = Path(sys.executable).with_name("horovodrun")
    horovodrun = str(beside) if beside.is_file() else shutil.which("horovodrun")
    if horovodrun is None:
        raise TrainerError("no horovodrun beside this Python or on the PATH")
    os.execv(horovodrun, [horovodrun, "-np", str(num_ranks), sys.executable, *sys.argv])


def train(args: argparse.Namespace, device: torch.device, training: Training) -> None:
    rank, world_size = training.rank, training.world_size
    torch.manual_seed(args.seed + rank)  # every rank drops out in its own way

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, seed=args.seed)
    train_loader = training_loader(train_set, sampler, args, device)
    test_set = Subset(test_set, range(rank, len(test_set), world_size))
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * world_size)
    optimizer = build_optimizer(args, model.parameters(), lr)
    # From here on gradients are averaged as soon as they are ready. This is a new optimizer: save and load
    # its state.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = build_schedule(args, lr, steps_in(train_loader, 1))

    # All start with the parameters of rank 0.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    self_check(model, device, train_loader, gather=hvd.allgather_object)

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))
    for epoch in training.epochs(len(train_set)):
        sampler.set_epoch(epoch)  # without this, every epoch has the order of the first
        for [(inputs, targets)] in training.steps(train_loader):
            lr = set_lr(optimizer, schedule(training.step))
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()  # sends every gradient as soon as it is ready
            optimizer.synchronize()  # now every gradient is the mean of all ranks' gradients
            grad_norm = clip_gradients(model, args.max_grad_norm)
            with optimizer.skip_synchronize():
                optimizer.step()
            training.end_step(len(targets), loss=loss.detach(), lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish(before_leaving=leave)


def leave() -> None:
    """No rank leaves before all have arrived."""
    hvd.allgather_object(None)
    hvd.shutdown()


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
    loss, num_correct, num_answers = hvd.allreduce(totals, op=hvd.Sum).tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
