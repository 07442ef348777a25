"""Train a GPT with one of the kernels of scaled_dot_product_attention: the same formula, with and without its
matrix in memory.

    python trainers/attention.py --kernel math --max_steps 20

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import re

import torch
import torch.nn.functional as F
from common.arguments import TrainerParser
from common.checkpoint import Checkpoints
from common.data import DatasetInfo
from common.distributed import TrainerError, pick_device, print_rank0, require_single_process, run
from common.loading import evaluation_loader, training_loader
from common.models import GPT, loss_of, weights_of_gpt
from common.optimization import build_optimizer, build_schedule, clip_gradients, scaled_lr, set_lr, steps_in
from common.speed import flops_per_token, report_speed
from common.text import load_text
from common.training import Training
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


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_usual(without=["model", "width", "data", "image_size", "augment", "cudnn_benchmark"])
    parser.add_shared("layers", "heads", "embedding", "sequence_length", "compile")
    parser.add_argument(
        "--kernel",
        default="default",
        choices=["math", "flash", "efficient", "default"],
        help=(
            "Implementation of attention: math keeps the whole matrix in memory, flash and efficient never "
            "do; default: torch chooses"
        ),
    )
    parser.add_argument(
        "--precision",
        default="bf16",
        choices=["bf16", "fp32"],
        help="Number format of the products; flash attention on a GPU needs bf16",
    )
    parser.change("sequence_length", unit="bytes", help="Length of one sequence, in bytes")
    parser.change("lr", default=0.0003, usual=(1e-05, 0.1))
    parser.change(
        "batch_size", default=8, usual=(1, 512), unit="sequences", help="Sequences of one micro-batch"
    )
    parser.change("max_steps", default=40)
    parser.change("optimizer", default="adamw")
    parser.change("num_train_samples", unit="sequences")
    parser.change("eval_every_epoch", default=False)
    parser.change("data_dir", help="not used: the text is Python's own library")
    parser.change("cache_dir", help="not used")
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
    train_set, test_set, name, path = load_text(args.num_train_samples, args.sequence_length)
    dataset = DatasetInfo(name, path, is_synthetic=False)
    print_rank0(f"data: {name} in {path}")
    shuffle = torch.Generator()
    sampler = RandomSampler(train_set, generator=shuffle)
    train_loader = training_loader(train_set, sampler, args, device)
    test_loader = evaluation_loader(test_set, args, device, args.batch_size)

    # Model and optimizer.
    if args.embedding % args.heads:
        raise TrainerError(f"embedding={args.embedding} must be a multiple of heads={args.heads}")
    model = GPT(args.embedding, args.layers, args.heads, args.sequence_length).to(device)
    lr = scaled_lr(args.lr, args.lr_scaling, args.batch_size * args.gradient_accumulation)
    optimizer = build_optimizer(args, model.parameters(), lr)
    schedule = build_schedule(args, lr, steps_in(train_loader, args.gradient_accumulation))

    # Products in 16 bits, which flash needs on a GPU.
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16")
    kernel = kernel_that_runs(args, device)
    forward = torch.compile(model) if args.compile else model

    if args.compile:
        training.watch_compilation()
    print_rank0(f"attention by {kernel}")

    # Resume from the newest checkpoint. End after --epochs or --max_steps, or at a signal.
    training.start(dataset, Checkpoints(args, model, optimizer))
    for epoch in training.epochs(len(train_set)):
        shuffle.manual_seed(args.seed + epoch)
        for micro_batches in training.steps(train_loader, args.gradient_accumulation):
            lr = set_lr(optimizer, schedule(training.step))

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
            grad_norm = clip_gradients(model, args.max_grad_norm)
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()  # kernels are compared here: the time of a step must be its own
            training.end_step(num_samples, loss=step_loss, lr=lr, grad_norm=grad_norm)
        training.evaluate_if_due(lambda: evaluate(model, test_loader, device, mixed))
    of_token = flops_per_token(weights_of_gpt(model), args.layers, args.embedding, args.sequence_length)
    report_speed(training, device, of_token, args.sequence_length, args.precision == "bf16", kernel=kernel)
    training.finish()


def kernel_that_runs(args: argparse.Namespace, device: torch.device) -> str:
    """The kernel that this device takes for these sizes, as the profiler sees it: it may lack the one asked
    for."""
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
