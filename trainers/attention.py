"""Train a GPT with one of the kernels of scaled_dot_product_attention: the same formula, with and without its
matrix in memory.

    python trainers/attention.py --kernel math --max_steps 20

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import re
import time

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
from common.data import DatasetInfo, ResumableSampler, SeededSamples, leave_signals_to_trainer, steps_of
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    TrainerError,
    describe_process,
    finish,
    pick_device,
    print_rank0,
    require_single_process,
    run,
)
from common.metrics import MetricsLog
from common.models import GPT, count_parameters, loss_of
from common.schedule import scaled_lr, warmed_up
from common.text import load_text
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile
from torch.utils.data import DataLoader, RandomSampler

KERNELS = {
    "math": [SDPBackend.MATH],
    "flash": [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH],  # math: where the device has no such kernel
    "efficient": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
    "default": [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.MATH,
    ],
}
# Products a second without sparsity, by the first words that fit, as NVIDIA's data sheets have them (16 bits,
# and 32 bits without TF32).
PEAKS = {
    "NVIDIA H200": (989e12, 67e12),
    "NVIDIA GH200": (989e12, 67e12),
    "NVIDIA H100 PCIe": (756e12, 51e12),
    "NVIDIA H100 NVL": (835e12, 60e12),
    "NVIDIA H100": (989e12, 67e12),
    "NVIDIA A100": (312e12, 19.5e12),
    "NVIDIA A30": (165e12, 10.3e12),
    "NVIDIA L40S": (362e12, 91.6e12),
}


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("gradient_accumulation")
    parser.add_shared("optimizer", "warmup_steps", "lr_scaling", "checkpoint_every")
    parser.add_argument(
        "--layers",
        type=int,
        default=4,
        min=1,
        usual=(1, 96),
        unit="blocks",
        help="Blocks of attention and MLP",
    )
    parser.add_argument(
        "--heads",
        type=int,
        default=4,
        min=1,
        usual=(1, 128),
        unit="heads",
        help="Heads of each attention; they share the embedding, which has to be a multiple",
    )
    parser.add_argument(
        "--embedding",
        type=int,
        default=128,
        min=1,
        usual=(16, 16384),
        unit="numbers",
        help="Numbers that stand for one position",
    )
    parser.add_argument(
        "--sequence_length",
        type=int,
        default=256,
        min=1,
        usual=(16, 131072),
        unit="bytes",
        help="Bytes that see each other",
    )
    parser.add_argument(
        "--kernel",
        default="default",
        choices=["math", "flash", "efficient", "default"],
        help=(
            "Implementation of attention: the matrix in memory (math), or never whole (flash, efficient); "
            "default: torch chooses"
        ),
    )
    parser.add_argument(
        "--precision",
        default="bf16",
        choices=["bf16", "fp32"],
        help="Of the products; flash attention on a GPU needs bf16",
    )
    parser.add_argument(
        "--compile",
        type=bool,
        default=False,
        help="Compile the model, which takes about a minute; false starts at once",
    )
    parser.add_shared("num_train_samples")
    parser.add_shared("eval_every_epoch", "target_accuracy", "log_metrics")
    parser.change("lr", default=0.0003, usual=(1e-05, 0.1))
    parser.change(
        "batch_size", default=8, usual=(1, 512), unit="sequences", help="Sequences of one micro-batch"
    )
    parser.change("max_steps", default=40)
    parser.change("optimizer", default="adamw")
    parser.change("num_train_samples", unit="sequences")
    parser.change("eval_every_epoch", default=False)
    parser.add_shared("tensorboard")
    parser.add_places()
    parser.change("data_dir", help="not used: the text is Python's own library")
    parser.change("cache_dir", help="not used")
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
    train_set, test_set, name, path = load_text(args.num_train_samples, args.sequence_length)
    dataset = DatasetInfo(name, path, is_synthetic=False)
    print_rank0(f"data: {name} in {path}")
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
    test_loader = DataLoader(test_set, batch_size=args.batch_size, generator=torch.Generator())

    # Model and optimizer.
    if args.embedding % args.heads:
        raise TrainerError(f"heads={args.heads} do not share an embedding of {args.embedding} without a rest")
    model = GPT(args.embedding, args.layers, args.heads, args.sequence_length).to(device)
    global_batch_size = args.batch_size * args.gradient_accumulation
    base_lr = scaled_lr(args.lr, args.lr_scaling, global_batch_size)
    if args.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=base_lr, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=base_lr)

    # Products in 16 bits, which flash needs on a GPU.
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16")
    kernel = kernel_that_runs(args, device)
    forward = torch.compile(model) if args.compile else model

    # Resume: from this run's own newest checkpoint, else from the one that was named.
    step, epoch, position = 0, 0, 0  # position: samples of the epoch that have been trained on
    sizes = {"layers": args.layers, "heads": args.heads, "embedding": args.embedding}
    made_with = {**sizes, "sequence_length": args.sequence_length, "optimizer": args.optimizer}
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
        f"model: gpt, {args.layers} layers, {args.heads} heads, embedding {args.embedding}, "
        f"{count_parameters(model):,} parameters,"
        f" on {device.type}, attention by {kernel}"
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
                with sdpa_kernel(KERNELS[args.kernel]), mixed:  # a choice of the context, not of the model
                    loss = loss_of(forward(inputs), targets) * (len(targets) / num_samples)
                loss.backward()
                step_loss += loss.detach()
            grad_norm = nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
            optimizer.step()

            if not is_compiled:
                is_compiled, seconds = True, time.perf_counter() - step_ended - data_time_s
                metrics.event("compile", step, seconds=seconds)
                print_rank0(f"compiled with the first step in {seconds:.1f} s")

            step += 1
            position += num_samples
            epoch_samples += num_samples
            epoch_loss += step_loss * num_samples
            if device.type == "cuda":
                torch.cuda.synchronize()  # kernels are compared here: the time of a step must be its own
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
                loss_on_test, accuracy = evaluate(model, test_loader, device, mixed)
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

    report_speed(args, model, device, kernel, metrics, step)
    if reason in STOPPED_EARLY:
        print_rank0(f"{stop.name or 'stop signal'} received: leaving at step {step}")
    save("signal" if reason in STOPPED_EARLY else "end")
    finish(metrics, step, reason)


def kernel_that_runs(args: argparse.Namespace, device: torch.device) -> str:
    """Which kernel this device takes for these sizes, as the profiler sees it: what was asked for may not
    exist here."""
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    shape = (1, args.heads, args.sequence_length, args.embedding // args.heads)
    query = torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
    with sdpa_kernel(KERNELS[args.kernel]), profile() as profiler:
        F.scaled_dot_product_attention(query, query, query, is_causal=True)
    operators = " ".join(row.key for row in profiler.key_averages())
    for name in ("flash", "efficient", "cudnn", "math"):
        if re.search(rf"_scaled_dot_product_({name}_attention|attention_{name})", operators):
            return name if args.kernel in (name, "default") else f"{name} (there is no {args.kernel} here)"
    return "unknown"


def report_speed(
    args: argparse.Namespace, model: GPT, device: torch.device, kernel: str, metrics: MetricsLog, step: int
) -> None:
    """Tokens per second, and their share of what the device could do at most (MFU).

    A token costs 6N + 12 L H Q T operations (PaLM, arXiv 2204.02311, appendix B): each of N weights is
    multiplied and added once forward and twice backward, and each of L layers compares H heads of size Q with
    T positions. Embeddings are looked up, so they are not in N; the half of the comparisons that the mask
    hides is.
    """
    samples_per_s = metrics.timing.summary()["samples_per_s"]
    tokens_per_s = samples_per_s * args.sequence_length if samples_per_s else None
    num_weights = count_parameters(model) - count_parameters(model.tokens) - count_parameters(model.positions)
    flops_per_token = 6 * num_weights + 12 * args.layers * args.embedding * args.sequence_length
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peaks = next((PEAKS[start] for start in PEAKS if name.startswith(start)), (None, None))
    peak = peaks[0] if args.precision == "bf16" else peaks[1]
    mfu = tokens_per_s * flops_per_token / peak if tokens_per_s and peak else None
    metrics.event(
        "mfu",
        step,
        kernel=kernel,
        tokens_per_s=tokens_per_s,
        flops_per_token=flops_per_token,
        peak_flops_per_s=peak,
        mfu=mfu,
    )
    if tokens_per_s:
        share = "of a peak that is not known" if mfu is None else f"{mfu:.1%} of {peak / 1e12:g}"
        tflops = tokens_per_s * flops_per_token / 1e12
        print_rank0(f"{tokens_per_s:,.0f} tokens/s by {kernel}: {tflops:.4g} TFLOP/s, {share}")


@torch.no_grad()
def evaluate(
    model: nn.Module, test_loader: DataLoader, device: torch.device, mixed: torch.autocast
) -> tuple[float, float]:
    """Mean loss and accuracy on the test set."""
    model.eval()
    totals = torch.zeros(3, device=device)  # loss, correct answers, answers
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with mixed:
            logits = model(inputs)
        totals[0] += loss_of(logits, targets) * targets.numel()
        totals[1] += (logits.argmax(-1) == targets).sum()
        totals[2] += targets.numel()
    model.train()
    loss, num_correct, num_answers = totals.tolist()
    return loss / num_answers, num_correct / num_answers


if __name__ == "__main__":
    run(main)
