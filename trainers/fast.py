"""Train SimpleCNN on CIFAR-10 as fast as one device can: all that pays, together, and the model unchanged.

    python trainers/fast.py --compile false

Data on the device (gpu_data.py), 16-bit products (amp.py), channels last (channels_last.py), one compiled
kernel where there were many (compile.py), a fused optimizer, and large batches with the learning rate that
they need. The host never waits for the step that it has just asked for.

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.checkpoint import (
    load_checkpoint,
    newest_checkpoint,
    restore_rng_state,
    rng_state,
    save_checkpoint,
)
from common.data import MEAN, STD, load_cifar10
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
from common.models import SimpleCNN, count_parameters, loss_of
from common.schedule import scaled_lr, warmed_up
from torch import nn
from torch.utils.data import Dataset, Subset

PADDING = 4


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "seed")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_shared("width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
    parser.change(
        "batch_size",
        default=2000,
        usual=(8, 16384),
        help="Samples of one step. The rest of an epoch that fills no batch is left out",
    )
    parser.change(
        "epochs", default=15, help="Passes over the training data, in which the learning rate falls to 0"
    )
    parser.change(
        "warmup_steps",
        default=20,
        help="Steps in which the learning rate rises to lr; from there it falls to 0 at the end",
    )
    parser.change("lr_scaling", default="linear")
    parser.add_argument(
        "--compile",
        type=bool,
        default=True,
        help="Compile the model, which takes about a minute; false starts at once",
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

    # All batches have one shape: try the kernels once, keep the fastest.
    torch.backends.cudnn.benchmark = True

    # Data: in another order in every epoch, decided by seed and epoch alone, so that a resumed run sees the
    # same.
    train_set, test_set, dataset = load_cifar10(args.data_dir, args.cache_dir, args.num_train_samples)
    shuffle = torch.Generator()
    train_images, train_targets = put_on(device, train_set, padding=PADDING)
    test_images, test_targets = put_on(device, test_set)
    statistics = torch.tensor([MEAN, STD], device=device) * 255
    test_inputs = normalized(test_images, statistics)

    # The rest of an epoch, less than a batch, is left out: another shape would be compiled anew. In every
    # epoch it is another rest.
    num_samples = min(args.batch_size, len(train_targets))
    steps_per_epoch = len(train_targets) // num_samples
    num_steps = max(args.max_steps, args.epochs * steps_per_epoch)

    # Model and optimizer.
    model = SimpleCNN(args.width).to(device, memory_format=torch.channels_last)
    base_lr = scaled_lr(args.lr, args.lr_scaling, num_samples)
    if args.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=base_lr, momentum=0.9, fused=True
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=base_lr, fused=True)

    def loss_on(picked: torch.Tensor) -> torch.Tensor:
        """From bytes to the loss in one function, so that the compiler can make one kernel of what follows
        each other."""
        inputs = normalized(cropped_and_mirrored(train_images, picked), statistics)
        with torch.autocast(device.type, torch.bfloat16):
            return loss_of(model(inputs), train_targets[picked])

    compiled_loss_on = torch.compile(loss_on) if args.compile else loss_on

    # Resume: from this run's own newest checkpoint, else from the one that was named.
    step, epoch, position = 0, 0, 0  # position: samples of the epoch that have been trained on
    made_with = {"model": "simplecnn", "width": args.width, "optimizer": args.optimizer}
    resume_from = newest_checkpoint(args.run_dir) or args.resume_from
    if resume_from:
        saved = load_checkpoint(resume_from, made_with)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, epoch, position = saved["step"], saved["epoch"], saved["position"]
        if position >= steps_per_epoch * num_samples:
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
        f"model: simplecnn, width {args.width}, {count_parameters(model):,} parameters, on {device.type}"
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

    is_compiled = not args.compile
    reason = why_stop()  # a run that had ended before it was started again has nothing left to do
    while reason is None:
        shuffle.manual_seed(args.seed + epoch)
        order = torch.randperm(len(train_set), generator=shuffle).to(device)
        batches = order[position : steps_per_epoch * num_samples].split(num_samples)
        epoch_started = step_ended = time.perf_counter()
        epoch_loss, epoch_samples = torch.zeros((), device=device), 0

        for number, picked in enumerate(batches, start=1):
            # Up to what a large batch can take, then in a straight line down to nothing: the last steps
            # average the noise out.
            lr = warmed_up(base_lr, step, args.warmup_steps) * (1 - step / num_steps)
            for group in optimizer.param_groups:
                group["lr"] = lr

            optimizer.zero_grad()
            loss = compiled_loss_on(picked)
            loss.backward()
            grad_norm = nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
            optimizer.step()

            if not is_compiled:
                is_compiled, seconds = True, time.perf_counter() - step_ended
                metrics.event("compile", step, seconds=seconds)
                print_rank0(f"compiled with the first step in {seconds:.1f} s")

            if number == len(batches):
                metrics.wait_for_device()  # an epoch has few steps: the time of its last one counts

            step += 1
            position += num_samples
            epoch_samples += num_samples
            epoch_loss += loss.detach() * num_samples
            now = time.perf_counter()
            metrics.step(
                step=step,
                epoch=epoch,
                loss=loss.detach(),  # still on the device: reading it here would wait for the step
                lr=lr,
                num_samples=num_samples,
                num_samples_global=num_samples,
                # there is nothing to wait for: cutting out and mirroring are the device's work
                data_time_s=0.0,
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
                loss_on_test, accuracy = evaluate(model, test_inputs, test_targets, num_samples)
                seconds = time.perf_counter() - started
                metrics.event(
                    "eval", step, epoch=epoch, loss=loss_on_test, accuracy=accuracy, seconds=seconds
                )
                print_rank0(
                    f"epoch {epoch}: test loss {loss_on_test:.4f}, accuracy {accuracy:.2%}{dataset.caveat}"
                )
                metrics.reached(args.target_accuracy, accuracy, step)
        if position >= steps_per_epoch * num_samples:
            epoch, position = epoch + 1, 0
        reason = reason or why_stop()

    if reason in STOPPED_EARLY:
        print_rank0(f"{stop.name or 'stop signal'} received: leaving at step {step}")
    save("signal" if reason in STOPPED_EARLY else "end")
    finish(metrics, step, reason)


def put_on(
    device: torch.device, dataset: Dataset[Any], padding: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """All images as bytes (image, row, column, colour), with a black margin, and their classes: CIFAR-10 is
    154 MB so."""
    images, num_images = dataset, len(dataset)  # type: ignore[arg-type] # it has a length
    if isinstance(dataset, Subset):  # the first ones
        images = dataset.dataset
    pixels = torch.from_numpy(images.data[:num_images]).to(device)
    targets = torch.tensor(images.targets[:num_images], device=device)
    return F.pad(pixels, (0, 0, padding, padding, padding, padding)), targets


def cropped_and_mirrored(images: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
    """Of each picked image a window of 32x32 somewhere in its margin, half of them mirrored: one read for
    all."""
    along = torch.arange(32, device=images.device)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, len(picked), 1), device=images.device)
    is_mirrored = torch.rand(len(picked), 1, device=images.device) < 0.5
    rows, columns = top + along, left + torch.where(is_mirrored, along.flip(0), along)
    return images[picked[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalized(images: torch.Tensor, statistics: torch.Tensor) -> torch.Tensor:
    """What the model reads, every colour with mean 0 and deviation 1 over the data set. The colours of a
    pixel already lie side by side."""
    mean, deviation = statistics
    return ((images - mean) / deviation).permute(0, 3, 1, 2)


@torch.no_grad()
def evaluate(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, batch_size: int
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set. Not compiled: for the little that it is, compiling would take
    longer."""
    model.eval()
    with torch.autocast(inputs.device.type, torch.bfloat16):
        logits = torch.cat([model(part) for part in inputs.split(batch_size)]).float()
    model.train()
    return loss_of(logits, targets).item(), (logits.argmax(-1) == targets).float().mean().item()


if __name__ == "__main__":
    run(main)
