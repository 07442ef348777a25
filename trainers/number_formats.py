"""Put numbers of a training into six formats, and see the losses of each: range, small terms of a sum, small
gradients.

    python trainers/number_formats.py --max_steps 10

SimpleCNN is trained for a few steps in fp32. The gradients of its last step are then rounded to each format,
as they are and with loss scaling.
"""

from __future__ import annotations

import argparse

import torch
from common.arguments import TrainerParser
from common.bench import Bench
from common.data import load_cifar10
from common.distributed import counted, pick_device, print_rank0, require_single_process, run
from common.models import SimpleCNN, count_parameters, loss_of
from torch import Tensor

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,  # its exponents are those of fp32; the rest is done by hand below
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
EXPONENT_BITS = {"fp32": 8, "tf32": 8, "fp16": 5, "bf16": 8, "e4m3": 4, "e5m2": 5}
FRACTION_BITS = {"fp32": 23, "tf32": 10, "fp16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2}
SCALES = [1, 2**8, 2**16, 2**24]  # torch's GradScaler begins with 2**16


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("batch_size", "max_steps", "max_seconds", "seed", "lr", "width", "num_train_samples")
    parser.add_argument(
        "--num_terms",
        type=int,
        default=4096,
        min=1,
        usual=(256, 100000),
        unit="terms",
        help="Number of ones to add up, one after the other",
    )
    parser.add_places()
    parser.change_shared("bench")
    parser.change("max_steps", usual=(1, 1000), unit="steps", help="Steps before the gradients are looked at")
    parser.change("max_seconds", help="Time after which no further table starts; 0: no limit")
    parser.change("seed", help="Seed of initial parameters, order and augmentation")
    parser.change("lr", help="Learning rate of SGD")
    parser.change("width", default=32)
    parser.change("num_train_samples", default=2048)
    parser.change("data_dir", help="folder with cifar-10-batches-py")
    parser.change("cache_dir", help="the directory of generated data")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    with Bench(args, device) as bench:
        torch.manual_seed(args.seed)
        model = SimpleCNN(args.width).to(device)
        bench.start(num_parameters=count_parameters(model))
        for show in (show_formats, show_sums):
            if bench.goes_on():
                show(args, device, bench)
        if bench.goes_on():
            show_gradients(args, model, device, bench)
        bench.finish()


def rounded(numbers: Tensor, name: str) -> Tensor:
    """Numbers in fp32 after a format has held them."""
    if name == "tf32":
        # fp32 without the last 13 bits of its fraction, which tensor cores do not read.
        return (numbers.float().view(torch.int32) & ~0x1FFF).view(torch.float32)
    held = numbers.to(DTYPES[name]).float()
    if name == "e4m3":
        # It has no infinity: a cast makes NaN or 448 of a number that is too large, by torch's version. Here
        # a number counts as infinite above 464, where rounding goes up.
        held = torch.where(numbers.abs() > 464, numbers.sign() * torch.inf, held)
    return held


def show_formats(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    """Range and step of each format, as torch.finfo has them, and four numbers rounded to it."""
    samples = torch.tensor([1e-8, 0.1, 4097.0, 70000.0], device=device)
    print_rank0(
        "format  exponent  fraction    largest  smallest  step at 1 |  1e-08      0.1     4097    70000"
    )
    for name, dtype in DTYPES.items():
        info = torch.finfo(dtype)
        fraction = FRACTION_BITS[name]
        smallest = info.smallest_normal * 2.0**-fraction  # subnormal: with fewer bits, down to one
        largest = rounded(torch.tensor(info.max), name).item()  # of TF32, less than that of fp32
        became = rounded(samples, name).tolist()
        bench.row(
            "format",
            f"{name:6} {EXPONENT_BITS[name]:9} {fraction:9} {largest:10.4g} {smallest:9.2g}"
            f" {2.0**-fraction:10.2g} | " + " ".join(f"{number:8.5g}" for number in became),
            format=name,
            exponent_bits=EXPONENT_BITS[name],
            fraction_bits=fraction,
            largest=largest,
            smallest=smallest,
            step_at_one=2.0**-fraction,
            became=[f"{number:.5g}" for number in became],
        )


def show_sums(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    """A sum that is kept in a format swallows terms below half the distance of its neighbours."""
    print_rank0(f"\n{args.num_terms} ones, added one after the other; the sum is kept in")
    print_rank0("format  the format  with Kahan's correction        fp32")
    for name in DTYPES:
        # On the host: thousands of additions, one after the other, are no work for a GPU.
        plain, corrected, wide = torch.zeros((3, 1))
        one, lost = rounded(torch.ones(1), name), torch.zeros(1)
        for _ in range(args.num_terms):
            plain = rounded(plain + one, name)
            # Kahan: the next term takes the loss of the last addition along.
            term = rounded(one - lost, name)
            total = rounded(corrected + term, name)
            lost = rounded(rounded(total - corrected, name) - term, name)
            corrected = total
            wide = wide + one
        sums = [plain.item(), corrected.item(), wide.item()]
        bench.row(
            "sum",
            f"{name:6} {sums[0]:11.6g} {sums[1]:24.6g} {sums[2]:11.6g}",
            format=name,
            num_terms=args.num_terms,
            plain=sums[0],
            kahan=sums[1],
            in_fp32=sums[2],
        )


def show_gradients(args: argparse.Namespace, model: SimpleCNN, device: torch.device, bench: Bench) -> None:
    """The gradients of a real step: their exponents, and the share that each format loses."""
    kinds = gradients_of_last_step(args, model, device, bench)
    bench.step += args.max_steps
    for kind, gradients in kinds.items():
        num_zero, num_infinite = int((gradients == 0).sum()), int((~gradients.isfinite()).sum())
        if num_infinite or num_zero == len(gradients):
            why = f"{num_infinite:,} of them are not finite" if num_infinite else "all of them are zero"
            print_rank0(f"\ngradients of the {kind}: not measured: {why}; try a lower lr or fewer steps")
            continue
        gradients = gradients[gradients != 0]
        exponents = torch.frexp(gradients.float()).exponent - 1  # 2**exponent <= |gradient|
        lowest, highest = int(exponents.min()), int(exponents.max())
        counts = torch.bincount((exponents - lowest).flatten(), minlength=1).tolist()
        print_rank0(
            f"\ngradients of the {kind}: {len(gradients):,}, and {num_zero:,} that are zero; by size:"
        )
        for first in range(lowest // 4 * 4, highest + 1, 4):
            share = sum(counts[max(0, first - lowest) : max(0, first + 4 - lowest)]) / len(gradients)
            print_rank0(f"  2^{first:<4} to 2^{first + 4:<4} {share:7.2%} {'#' * round(60 * share)}")
        bench.metrics.event(
            "gradients", bench.step, kind=kind, num_zero=num_zero, lowest_exponent=lowest, counts=counts
        )
        print_rank0("  lost: zero or infinite in the format, of gradients that are neither; by loss scale")
        print_rank0("  format" + "".join(f"{f'2^{scale.bit_length() - 1}':>18}" for scale in SCALES))
        for name in DTYPES:
            losses = [lost_shares(gradients * scale, name) for scale in SCALES]
            bench.row(
                "lost",
                f"  {name:6}" + "".join(f"  {to_zero:7.2%} {to_inf:7.2%}" for to_zero, to_inf in losses),
                kind=kind,
                format=name,
                scales=SCALES,
                to_zero=[to_zero for to_zero, _ in losses],
                to_infinity=[to_inf for _, to_inf in losses],
            )


def lost_shares(numbers: Tensor, name: str) -> tuple[float, float]:
    """The share of numbers that become zero in a format, and of those that become infinite."""
    held = rounded(numbers, name)
    return (held == 0).float().mean().item(), held.isinf().float().mean().item()


def gradients_of_last_step(
    args: argparse.Namespace, model: SimpleCNN, device: torch.device, bench: Bench
) -> dict[str, Tensor]:
    """Train for `max_steps`. Returns the results of the last backward pass, in one row: the gradients of the
    weights, and those of the activations, which it passes from layer to layer."""
    train_set, _, _ = load_cifar10(args.data_dir, args.cache_dir, args.num_train_samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    of_activations: list[Tensor] = []
    for layer in model.modules():
        if not list(layer.children()):
            layer.register_full_backward_hook(
                lambda _, __, outward: of_activations.append(outward[0].detach())
            )
    order = torch.randperm(len(train_set))  # type: ignore[arg-type] # it has a length
    for step in range(args.max_steps):
        chosen = order.roll(-step * args.batch_size)[: args.batch_size].tolist()
        samples = [train_set[index] for index in chosen]
        images = torch.stack([image for image, _ in samples]).to(device)
        targets = torch.tensor([target for _, target in samples], device=device)
        of_activations.clear()
        optimizer.zero_grad()
        loss = loss_of(model(images.requires_grad_()), targets)  # torch warns of a hook before no gradient
        loss.backward()
        optimizer.step()
    print_rank0(f"\nSimpleCNN after {counted(args.max_steps, 'step')}, loss {loss.item():.3f}")
    of_weights = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return {
        "weights": torch.cat([gradient.flatten() for gradient in of_weights]),
        "activations": torch.cat([gradient.flatten() for gradient in of_activations]),
    }


if __name__ == "__main__":
    run(main)
