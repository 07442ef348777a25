"""Train SimpleCNN on CIFAR-10 from a copy of the data on this node's own disk, and tell what the copy took.

    python trainers/staged.py --epochs 1 --stage_to /tmp

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from common.arguments import TrainerParser
from common.checkpoint import (
    load_checkpoint,
    newest_checkpoint,
    restore_rng_state,
    rng_state,
    save_checkpoint,
)
from common.data import (
    FOLDER,
    ResumableSampler,
    SeededSamples,
    default_cache_dir,
    find_cifar10,
    generate_cifar10,
    leave_signals_to_trainer,
    load_data,
    steps_of,
)
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
from common.staging import stage
from torch import nn
from torch.utils.data import DataLoader, RandomSampler


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("gradient_accumulation")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_shared("model", "width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
    parser.change("model", choices=["simplecnn", "resnet18"], help="SimpleCNN, or ResNet-18 with width 64")
    parser.add_argument(
        "--stage_to",
        default="",
        help="Folder on the node for the copy; empty: $SLURM_TMPDIR, else $TMPDIR, else /tmp",
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

    # Everything that reads the data from here on reads the copy on this node.
    shared = find_cifar10(args.data_dir) or generate_cifar10(Path(args.cache_dir or default_cache_dir()))
    staged = stage(shared / FOLDER, args.stage_to)
    metrics.event("staging", 0, **vars(staged))
    args.data_dir = staged.path

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

    reason = why_stop()  # a run that had ended before it was started again has nothing left to do
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
            step_ended = now

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
