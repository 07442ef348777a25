"""Train the GPT with pipeline parallelism: every rank computes some of the layers and hands its result on.

    torchrun --standalone --nproc-per-node=2 trainers/pipeline_parallel.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from contextlib import contextmanager
from typing import Any, Iterator

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.data import load_data
from common.distributed import (
    TrainerError,
    gather,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.loading import evaluation_loader, training_loader
from common.metrics import MetricsLog
from common.models import build_model, count_parameters, loss_of, parts_of
from common.optimization import build_optimizer, build_schedule, scaled_lr, set_lr, steps_in
from common.sharded import ShardedCheckpoints
from common.training import Training
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.utils.data import DataLoader, RandomSampler, Subset

SCHEDULES = {"naive": ScheduleGPipe, "gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["gradient_accumulation", "max_grad_norm"])
    parser.add_shared("microbatches", "async_checkpoint")
    parser.change_shared("gpt_in_parts")
    parser.change("batch_size", default=16)
    parser.add_argument(
        "--schedule",
        default="1f1b",
        choices=["naive", "gpipe", "1f1b"],
        help=(
            "naive: one micro-batch at a time through all stages; gpipe: all forward, then all backward; "
            "1f1b: backward as soon as possible, and so fewer activations in memory"
        ),
    )
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
    rank, world_size = training.rank, training.world_size
    torch.manual_seed(args.seed)

    # Data: the same samples in the same order on every rank, because each rank computes its layers of every
    # sample. Steps are whole: the stages agree once on the size of their messages.
    train_set, test_set, dataset = load_data(args)
    global_batch_size = args.batch_size * args.microbatches
    if len(train_set) < global_batch_size:
        raise TrainerError(f"one step needs {global_batch_size} samples, but there are {len(train_set)}")
    train_set = Subset(train_set, range(len(train_set) // global_batch_size * global_batch_size))
    shuffle = torch.Generator()
    sampler = RandomSampler(train_set, generator=shuffle)
    train_loader = training_loader(train_set, sampler, args, device)
    test_loader = evaluation_loader(test_set, args, device)

    # Model: every rank keeps its own layers. The stages work at the same time, each on another micro-batch.
    whole = build_model(args.model, args.width, dataset)
    self_check(whole, device, train_loader, shard=0)
    num_in_pipe = 1 if args.schedule == "naive" else args.microbatches
    num_layers, num_parameters = len(parts_of(whole)), count_parameters(whole)
    most_stages = min(num_layers, num_in_pipe) if args.schedule == "1f1b" else num_layers
    if world_size > most_stages:
        raise TrainerError(
            f"{world_size} ranks are too many: {num_layers} layers and {num_in_pipe} micro-batches make "
            f"{most_stages} stages ({args.schedule})"
        )
    model = Layers(whole, rank, world_size).to(device)
    stage = TimedStage(model, rank, world_size, device)

    def loss_of_microbatch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with stage.computing():
            return loss_of(logits, targets) / args.microbatches

    pipe = SCHEDULES[args.schedule](stage, num_in_pipe, loss_of_microbatch, scale_grads=False)

    # Optimizer, of this rank's layers.
    lr = scaled_lr(args.lr, args.lr_scaling, global_batch_size)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.microbatches))
    checkpoints = ShardedCheckpoints(args, model, optimizer)
    checkpoints.num_parameters = num_parameters  # of the whole model

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, checkpoints, samples_of_step=global_batch_size)
    for epoch in training.epochs(len(train_set)):
        shuffle.manual_seed(args.seed + epoch)
        for micro_batches in training.steps(train_loader, args.microbatches):
            lr = set_lr(optimizer, schedule(training.step))

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            with stage.step():
                for i in range(0, len(micro_batches), num_in_pipe):
                    in_pipe = zip(*micro_batches[i : i + num_in_pipe])  # noqa: B905 - no strict= in Python 3.9
                    inputs, targets = (torch.cat(part).to(device, non_blocking=True) for part in in_pipe)
                    losses: list[torch.Tensor] = []  # stays empty, except on the last stage
                    pipe.step(*([inputs] if stage.is_first else []), target=targets, losses=losses)
                    step_loss += sum(loss.detach() for loss in losses)
            # The last stage tells all the loss, and the norm is of all stages together.
            grad_norm = nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
            totals = torch.stack([step_loss, grad_norm**2])
            dist.all_reduce(totals)
            step_loss, grad_norm = totals[0], totals[1].sqrt()
            optimizer.step()
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    report_bubble(stage, args.schedule, num_in_pipe, training.metrics, training.step)
    training.finish()


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


class TimedStage(PipelineStage):
    """Keeps the times of the last steps, and in them the times in which this stage computed. In the rest it
    waited for the others."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps: deque[list[tuple[Any, Any]]] = deque(maxlen=50)

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.computing():
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self.computing():
            return super().backward_one_chunk(*args, **kwargs)

    @contextmanager
    def computing(self) -> Iterator[None]:
        started = self._now()
        yield
        self.steps[-1].append((started, self._now()))

    @contextmanager
    def step(self) -> Iterator[None]:
        self.steps.append([])
        started = self._now()
        yield
        self.steps[-1].insert(0, (started, self._now()))

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        now = torch.cuda.Event(enable_timing=True)  # by the GPU: the host is far ahead of it
        now.record()
        return now

    def seconds(self) -> list[tuple[float, float]]:
        """Of each step: how long it took, and for how long of that this stage computed."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.synchronize(self.device)
        spans = [[a.elapsed_time(b) / 1000 if on_gpu else b - a for a, b in step] for step in self.steps]
        return [(lasted, sum(computed)) for lasted, *computed in spans]


def report_bubble(stage: TimedStage, schedule: str, num_in_pipe: int, metrics: MetricsLog, step: int) -> None:
    """The measured idle time of each stage, beside that of a pipe of equal stages: (p - 1) / (m + p - 1)
    of the step with p stages and m micro-batches (GPipe, arXiv 1811.06965; the same for 1F1B, arXiv
    2104.04473)."""
    seconds = torch.tensor(gather(stage.seconds()))  # by stage and step: of the whole step, of computing
    if not seconds.numel():
        return
    lasted = seconds[:, :, 0].amax(0)  # the first stage begins first and ends last
    idle = (1 - seconds[:, :, 1] / lasted).median(1).values.tolist()
    p, m = stage.num_stages, num_in_pipe
    expected = (p - 1) / (m + p - 1)
    of_stage = {"stage": stage.stage_index, "idle_share": idle[stage.stage_index], "expected_share": expected}
    of_pipe = {"schedule": schedule, "num_stages": p, "num_microbatches": m, "num_steps": lasted.numel()}
    metrics.event("bubble", step, **of_stage, **of_pipe)
    shares = ", ".join(f"stage {i} {share:.0%}" for i, share in enumerate(idle))
    print_rank0(
        f"bubble: idle in a step, median of {lasted.numel()}: {shares}; expected (p-1)/(m+p-1) = "
        f"{expected:.0%}"
        f" ({schedule}, p = {p} stages, m = {m} micro-batches at the same time)"
    )


@torch.no_grad()
def evaluate(model: Layers, test_loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        if rank > 0:
            inputs = torch.empty(*targets.shape, model.embedding, device=device)
            dist.recv(inputs, src=rank - 1)
        logits = model(inputs)
        if rank < world_size - 1:
            dist.send(logits, dst=rank + 1)
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
