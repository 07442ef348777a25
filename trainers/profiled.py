"""Train SimpleCNN on CIFAR-10 and look at a few of its steps with torch.profiler: which operators take the
time, and is the device idle?

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
from common.checkpoint import (
    load_checkpoint,
    newest_checkpoint,
    restore_rng_state,
    rng_state,
    save_checkpoint,
)
from common.data import ResumableSampler, SeededSamples, leave_signals_to_trainer, load_data, steps_of
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    describe_process,
    finish,
    pick_device,
    print_rank0,
    require_single_process,
    run,
)
from common.metrics import MetricsLog
from common.models import build_model, count_parameters, loss_of
from common.schedule import scaled_lr, warmed_up
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, RandomSampler


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("gradient_accumulation")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_shared("model", "width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
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
        help="Steps that are profiled and thrown away",
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
    parser.add_shared("tensorboard")
    parser.add_places()
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with MetricsLog(
        args.run_dir, device, log_steps=args.log_metrics, tensorboard=args.tensorboard
    ) as metrics:
        train(args, device, metrics, stop)


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal) -> None:
    torch.manual_seed(args.seed)

    # Data: in another order in every epoch, decided by seed and epoch alone, so that a resumed run sees the
    # same.
    train_set, test_set, dataset = load_data(args)
    shuffle = torch.Generator()
    sampler = ResumableSampler(RandomSampler(train_set, generator=shuffle))
    train_loader = DataLoader(
        SeededSamples(train_set, args.seed),  # the same crops in whichever process, also after a resume
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        persistent_workers=args.num_workers > 0,
        worker_init_fn=leave_signals_to_trainer,
        generator=torch.Generator(),  # loading takes no number from dropout's generator
        pin_memory=device.type == "cuda",
    )
    test_loader = DataLoader(test_set, batch_size=256, generator=torch.Generator())

    # Model and optimizer.
    model = build_model(args.model, args.width).to(device)
    global_batch_size = args.batch_size * args.gradient_accumulation
    base_lr = scaled_lr(args.lr, args.lr_scaling, global_batch_size)
    if args.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=base_lr, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=base_lr)

    # Resume: from this run's own newest checkpoint, else from the one that was named.
    step, epoch, position = 0, 0, 0  # position: samples of the epoch that have been trained on
    made_with = {"model": args.model, "width": args.width, "optimizer": args.optimizer}
    resume_from = newest_checkpoint(args.run_dir) or args.resume_from
    if resume_from:
        saved = load_checkpoint(resume_from, made_with)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, epoch, position = saved["step"], saved["epoch"], saved["position"]
        if position >= len(train_set):
            epoch, position = epoch + 1, 0
        restore_rng_state(saved["rng"], device)

    metrics.event(
        "start",
        step,
        rank=metrics.rank,
        world_size=metrics.world_size,
        dataset=vars(dataset),
        num_parameters=count_parameters(model),
        **describe_process(device),
    )
    print_rank0(
        f"model: {args.model}, width {args.width}, {count_parameters(model):,} parameters, on {device.type}"
    )
    if resume_from:
        metrics.event("resume", step, path=str(resume_from))
        print_rank0(f"resumed at step {step} from {resume_from}")

    def save(reason: str) -> None:
        started = time.perf_counter()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "made_with": made_with}
        state.update(step=step, epoch=epoch, position=position, rng=[rng_state(device)])
        path = save_checkpoint(args.run_dir, state)
        seconds = time.perf_counter() - started
        metrics.event("checkpoint", step, path=str(path), seconds=seconds, reason=reason)
        print_rank0(f"checkpoint at step {step}: {path} ({reason})")

    def why_stop() -> str | None:
        if stop.is_requested:
            return stop.reason
        if args.max_steps:
            return "max_steps" if step >= args.max_steps else None
        return "epochs" if epoch >= args.epochs else None

    # Profiling slows every step, and the first profiled ones most: wait until training is steady, throw some
    # away, keep a few.
    def keep(profiler: profile) -> None:
        started = time.perf_counter()
        folder = Path(args.run_dir) / "profile"
        folder.mkdir(exist_ok=True)
        trace, table = folder / f"step-{step:08d}.json.gz", folder / f"step-{step:08d}.txt"
        profiler.export_chrome_trace(str(trace))
        table.write_text(profiler.key_averages().table(f"self_{device.type}_time_total", row_limit=50))
        idle_share, window_s, num_steps = idle_share_in(trace, device)
        operators = top_operators(profiler, device)
        metrics.event(
            "profile",
            step,
            path=str(trace),
            table=str(table),
            idle_share=idle_share,
            num_steps=num_steps,
            step_time_s=window_s / num_steps,
            operators=operators,
            seconds=time.perf_counter() - started,
        )
        print_rank0(f"profile of {num_steps} steps, {1000 * window_s / num_steps:.4g} ms each:")
        print_rank0(f"  {idle_share:6.1%} of the time no operator ran on the {device.type}")
        for operator in operators:
            print_rank0(
                (
                    f"  {operator['share']:6.1%} of the operators' time: {operator['name']}, "
                    f"{operator['calls']} calls"
                )
            )
        print_rank0(f"all operators: {table}\ntrace: {trace}, for https://ui.perfetto.dev")

    # The last profiled step writes all; a run that a signal cuts short before has no profile, as its
    # checkpoint is more urgent.
    num_left = (args.max_steps or args.epochs * len(train_loader) // args.gradient_accumulation) - step
    active = max(1, min(args.profile_active, num_left))  # a short run has less time to look, and none to wait
    num_before = max(0, min(args.profile_wait + args.profile_warmup, num_left - active))
    warmup = min(num_before, args.profile_warmup)
    profiler = profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda"),
        schedule=schedule(wait=num_before - warmup, warmup=warmup, active=active, repeat=1),
        on_trace_ready=keep,
    )

    reason = why_stop()  # a run that had ended before it was started again has nothing left to do
    if reason is None:
        profiler.start()
    while reason is None:
        shuffle.manual_seed(args.seed + epoch)
        sampler.begin(epoch, position)
        epoch_started = step_ended = time.perf_counter()
        epoch_loss, epoch_samples = torch.zeros((), device=device), 0

        for micro_batches, data_time_s in steps_of(train_loader, args.gradient_accumulation):
            lr = warmed_up(base_lr, step, args.warmup_steps)
            for group in optimizer.param_groups:
                group["lr"] = lr

            # One optimizer step: the gradients of its micro-batches add up to the gradient of their mean.
            num_samples = sum(len(targets) for _, targets in micro_batches)
            step_loss = torch.zeros((), device=device)
            optimizer.zero_grad()
            for inputs, targets in micro_batches:
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                loss = loss_of(model(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
            optimizer.step()

            step += 1
            position += num_samples
            epoch_samples += num_samples
            epoch_loss += step_loss * num_samples
            now = time.perf_counter()
            metrics.step(
                step=step,
                epoch=epoch,
                loss=step_loss,  # still on the device: reading it here would wait for the step
                lr=lr,
                num_samples=num_samples,
                num_samples_global=num_samples,
                data_time_s=data_time_s,
                step_time_s=now - step_ended,
                grad_norm=grad_norm,
            )
            profiler.step()
            step_ended = (
                time.perf_counter()
            )  # what the profiler does between two steps is not the next one's time

            reason = why_stop()
            if reason:
                break
            if args.checkpoint_every and step % args.checkpoint_every == 0:
                save("interval")
                step_ended = time.perf_counter()

        if reason not in STOPPED_EARLY:
            mean_loss, seconds = epoch_loss.item() / epoch_samples, time.perf_counter() - epoch_started
            metrics.event(
                "epoch_end", step, epoch=epoch, loss=mean_loss, num_samples=epoch_samples, seconds=seconds
            )
            print_rank0(
                f"epoch {epoch}: loss {mean_loss:.4f}, {epoch_samples / seconds:.0f} samples/s on this rank"
            )
            if args.eval_every_epoch:
                started = time.perf_counter()
                loss_on_test, accuracy = evaluate(model, test_loader, device)
                seconds = time.perf_counter() - started
                metrics.event(
                    "eval", step, epoch=epoch, loss=loss_on_test, accuracy=accuracy, seconds=seconds
                )
                print_rank0(
                    f"epoch {epoch}: test loss {loss_on_test:.4f}, accuracy {accuracy:.2%}{dataset.caveat}"
                )
                metrics.reached(args.target_accuracy, accuracy, step)
        if position >= len(train_set):
            epoch, position = epoch + 1, 0
        reason = reason or why_stop()

    if reason in STOPPED_EARLY:
        print_rank0(f"{stop.name or 'stop signal'} received: leaving at step {step}")
    save("signal" if reason in STOPPED_EARLY else "end")
    finish(metrics, step, reason)


def idle_share_in(trace: Path, device: torch.device) -> tuple[float, float, int]:
    """The share of the profiled time in which nothing ran on the device, that time in seconds, and the number
    of steps in it.

    Several kernels can run at once, and an operator contains those that it calls: what counts is the time
    that they cover together.
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
        # Of a step itself, only what is none of its operators would count. A kernel counts as the operator
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
