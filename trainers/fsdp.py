"""Train SimpleCNN on CIFAR-10 with FSDP: data parallelism in which every rank keeps only its share of the
model and of the optimizer.

    torchrun --standalone --nproc-per-node=2 trainers/fsdp.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.checkpoint import restore_rng_state, rng_state
from common.data import ResumableSampler, SeededSamples, leave_signals_to_trainer, load_data, steps_of
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    any_rank_by_now,
    describe_process,
    finish,
    gather,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.metrics import MetricsLog
from common.models import build_model, count_parameters, loss_of, parts_of
from common.schedule import scaled_lr, warmed_up
from common.sharded import load_checkpoint, newest_checkpoint, save_checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("gradient_accumulation")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_shared("model", "width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16"],
        help=(
            "Of parameters and activations in use; what is kept, and the sums of gradients, stay in fp32. "
            "Batch norm computes in fp32"
        ),
    )
    parser.add_argument(
        "--reshard_after_forward",
        type=bool,
        default=True,
        help=(
            "Let a part's parameters go after its forward pass and gather them again for the backward pass; "
            "false: more memory, less communication"
        ),
    )
    parser.add_shared("tensorboard")
    parser.add_places()
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    with MetricsLog(
        args.run_dir, device, log_steps=args.log_metrics, tensorboard=args.tensorboard
    ) as metrics:
        train(args, device, metrics, stop)


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal) -> None:
    rank, world_size = metrics.rank, metrics.world_size
    torch.manual_seed(args.seed + rank)  # every rank drops out in its own way

    # Data: in another order in every epoch, decided by seed and epoch alone, so that a resumed run sees the
    # same.
    train_set, test_set, dataset = load_data(args)
    shuffle = DistributedSampler(train_set, seed=args.seed)  # every rank gets its own part of each epoch
    sampler = ResumableSampler(shuffle)
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
    # A forward pass needs all ranks, so all need as many batches: up to world_size - 1 samples are left out.
    test_set = Subset(test_set, range(rank, len(test_set) // world_size * world_size, world_size))
    test_loader = DataLoader(test_set, batch_size=256, generator=torch.Generator())

    # Model: all ranks start with the parameters of rank 0, and each keeps its share of them. A part of the
    # model is gathered when it computes, forward and backward, and its gradients are averaged to where their
    # shares belong.
    model = build_model(args.model, args.width).to(device)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    self_check(model, device, train_loader)
    mesh = init_device_mesh(device.type, (world_size,))
    computing = torch.bfloat16 if args.precision == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=computing, reduce_dtype=torch.float32)
    for norm in [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]:
        fully_shard(norm, mesh=mesh, mp_policy=MixedPrecisionPolicy(output_dtype=computing))  # stays in fp32
    for part in [*parts_of(model), model]:
        fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=args.reshard_after_forward)

    # Optimizer, of this rank's share.
    global_batch_size = args.batch_size * args.gradient_accumulation * world_size
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
        # Every rank reads its share of now, however many ranks wrote theirs.
        saved = load_checkpoint(resume_from, made_with, model, optimizer)
        step, epoch, position = saved["step"], saved["epoch"], saved["position"]
        if position >= len(train_set):
            epoch, position = epoch + 1, 0
        restore_rng_state(saved["rng"], device, rank)

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
        state = {"step": step, "epoch": epoch, "position": position, "rng": gather(rng_state(device))}
        path = save_checkpoint(args.run_dir, {**state, "made_with": made_with}, model, optimizer)
        seconds = time.perf_counter() - started
        metrics.event("checkpoint", step, path=str(path), seconds=seconds, reason=reason)
        print_rank0(f"checkpoint at step {step}: {path} ({reason})")

    def why_stop() -> str | None:
        # All ranks leave in the same step, or those that stay would wait forever. They agree while the next
        # step is computed.
        if any_rank_by_now(stop.is_requested):
            return stop.reason
        if args.max_steps:
            return "max_steps" if step >= args.max_steps else None
        return "epochs" if epoch >= args.epochs else None

    reason = why_stop()  # a run that had ended before it was started again has nothing left to do
    while reason is None:
        shuffle.set_epoch(epoch)  # without this, every epoch has the order of the first
        sampler.begin(epoch, position // world_size)
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
            for i, (inputs, targets) in enumerate(micro_batches, 1):
                inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
                model.set_requires_gradient_sync(i == len(micro_batches))  # gradients travel with the last
                loss = loss_of(model(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
            grad_norm = grad_norm.full_tensor()  # of all shares, not of this rank's
            optimizer.step()

            step += 1
            position += num_samples * world_size
            epoch_samples += num_samples
            epoch_loss += step_loss * num_samples
            now = time.perf_counter()
            metrics.step(
                step=step,
                epoch=epoch,
                loss=step_loss,  # still on the device: reading it here would wait for the step
                lr=lr,
                num_samples=num_samples,
                num_samples_global=num_samples * world_size,
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
                for buffer in model.buffers():
                    dist.broadcast(buffer, src=0)  # batch norm's statistics differ by rank
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
    dist.all_reduce(totals)
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
