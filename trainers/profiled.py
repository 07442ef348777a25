"""Train SimpleCNN on CIFAR-10 and look at a few of its steps with torch.profiler: the operators that take the
time, and the idle time of the device.

    python trainers/profiled.py

Table and trace end up in --run_dir/profile; metrics, checkpoints and the model in --run_dir. Started again
with the same --run_dir, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import torch
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import load_data
from common.distributed import counted, pick_device, print_rank0, require_single_process, run
from common.loading import evaluation_loader, training_loader
from common.models import build_model, loss_of
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.training import Training
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, RandomSampler


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual()
    parser.change("max_steps", default=40)
    parser.add_argument(
        "--profile_wait", type=int, default=5, min=0, unit="steps", help="Steps before the profiler starts"
    )
    parser.add_argument(
        "--profile_warmup",
        type=int,
        default=2,
        min=0,
        unit="steps",
        help="Steps that are profiled and discarded",
    )
    parser.add_argument(
        "--profile_active",
        type=int,
        default=5,
        min=1,
        usual=(1, 50),
        unit="steps",
        help="Steps that are profiled and kept; a trace grows with each",
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

    # Data: seed and epoch alone decide the order of each epoch, so a resumed run sees the same order.
    train_set, test_set, dataset = load_data(args)
    shuffle = torch.Generator()
    sampler = RandomSampler(train_set, generator=shuffle)
    train_loader = training_loader(train_set, sampler, args, device)
    test_loader = evaluation_loader(test_set, args, device)

    # Model and optimizer.
    model = build_model(args.model, args.width, dataset).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, model.parameters(), lr)
    lr_of_step = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))

    # Profiling slows every step, and the first profiled ones most: wait until training is steady, throw some
    # away, keep a few.
    def keep(profiler: profile) -> None:
        started = time.perf_counter()
        folder = Path(args.run_dir) / "profile"
        folder.mkdir(exist_ok=True)
        trace, table = folder / f"step-{training.step:08d}.json.gz", folder / f"step-{training.step:08d}.txt"
        profiler.export_chrome_trace(str(trace))
        table.write_text(profiler.key_averages().table(f"self_{device.type}_time_total", row_limit=50))
        idle_share, window_s, num_steps = idle_share_in(trace, device)
        operators = top_operators(profiler, device)
        training.metrics.event(
            "profile",
            training.step,
            path=str(trace),
            table=str(table),
            idle_share=idle_share,
            num_steps=num_steps,
            step_time_s=window_s / num_steps,
            operators=operators,
            seconds=time.perf_counter() - started,
        )
        print_rank0(f"profile of {counted(num_steps, 'step')}, {1000 * window_s / num_steps:.4g} ms each:")
        print_rank0(f"  {idle_share:6.1%} of the time no operator ran on the {device.type}")
        for operator in operators:
            print_rank0(
                f"  {operator['share']:6.1%} of the operators' time: {operator['name']}, "
                f"{counted(operator['calls'], 'call')}"
            )
        print_rank0(f"all operators: {table}\ntrace: {trace}, for https://ui.perfetto.dev")

    # The last profiled step writes all; a run that a signal cuts short before has no profile, as its
    # checkpoint is more urgent.
    num_left = (
        args.max_steps or args.epochs * len(train_loader) // args.gradient_accumulation
    ) - training.step
    active = max(1, min(args.profile_active, num_left))  # a short run has less time to look, and none to wait
    num_before = max(0, min(args.profile_wait + args.profile_warmup, num_left - active))
    warmup = min(num_before, args.profile_warmup)
    profiler = profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda"),
        schedule=schedule(wait=num_before - warmup, warmup=warmup, active=active, repeat=1),
        on_trace_ready=keep,
    )
    profiler.start()

    for epoch in training.epochs(len(train_set)):
        shuffle.manual_seed(args.seed + epoch)
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, lr_of_step(training.step))

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
            profiler.step()
            training.begin_step()  # the profiler's work between two steps is not the next one's time
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device))
    training.finish()


def idle_share_in(trace: Path, device: torch.device) -> tuple[float, float, int]:
    """The share of the profiled time in which nothing ran on the device, that time in seconds, and the number
    of steps in it.

    Several kernels can run at once, and an operator contains those that it calls: the time that they cover
    together counts.
    """
    events = [
        event for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if "dur" in event
    ]
    steps = [
        event
        for event in events
        if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    kinds = {"cpu": ["cpu_op"], "cuda": ["kernel", "gpu_memcpy", "gpu_memset"]}[device.type]
    work = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["cat"] in kinds)
    started = covered = min(event["ts"] for event in steps)  # microseconds
    ended = max([event["ts"] + event["dur"] for event in steps] + [end for _, end in work])
    busy = 0.0
    for begin, end in work:
        busy += max(0.0, end - max(begin, covered))
        covered = max(covered, end)
    return 1 - busy / (ended - started), (ended - started) / 1e6, len(steps)


def top_operators(profiler: profile, device: torch.device, num_shown: int = 10) -> list[dict[str, Any]]:
    """The operators that took most of the device's time by themselves, without what they called."""
    times = {}
    for row in profiler.key_averages():
        own_time = row.self_cpu_time_total if device.type == "cpu" else row.self_device_time_total
        # A step itself would count only the time outside of its operators. A kernel counts as the operator
        # that launched it.
        if own_time > 0 and row.device_type == DeviceType.CPU and not row.key.startswith("ProfilerStep"):
            times[row.key] = (own_time, row.count)
    total = sum(own_time for own_time, _ in times.values())
    top = sorted(times.items(), key=lambda item: item[1], reverse=True)[:num_shown]
    return [
        {"name": name, "calls": calls, "self_time_s": own_time / 1e6, "share": own_time / total}
        for name, (own_time, calls) in top
    ]


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
