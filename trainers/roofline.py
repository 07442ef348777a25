"""Train SimpleCNN for some steps and put it under the roof of this machine: the operations of a step, the
bytes that it moves, and which of the two it waits for.

    python trainers/roofline.py --batch_size 64

Counts the operations and the bytes of one step, measures the peak (a matrix product) and the bandwidth (a
copy) of the device, times the steps, and draws the dot. The data are random numbers that lie on the device.
"""

from __future__ import annotations

import argparse
import math
import time
from statistics import median
from typing import Any, Callable

import torch
from common.arguments import TrainerParser
from common.data import DatasetInfo
from common.distributed import finish, pick_device, print_rank0, require_single_process, run
from common.metrics import MetricsLog
from common.models import build_model, loss_of
from common.short import Steps
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

COPY_MIB = 256
ROUNDS = 7
WIDTH, HEIGHT, POWERS = 60, 13, 3  # of the drawing: characters, lines, powers of ten from bottom to top
LEAST, MOST = -1.0, 3.0  # its intensities: 0.1 to 1000 FLOP a byte


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "max_steps", "seed", "model", "width")
    parser.change("max_steps", default=20, min=1, usual=(5, 1000), help="Steps that are timed")
    parser.change("model", choices=("simplecnn", "resnet18"), help="SimpleCNN or ResNet-18 on images")
    parser.add_argument(
        "--matrix",
        type=int,
        default=2048,
        min=64,
        usual=(512, 16384),
        unit="rows",
        help="Size of the square matrices whose product measures the peak; a GPU needs 8192 to be busy",
    )
    parser.add_places()
    parser.change("data_dir", help="not used: the data are random")
    parser.change("cache_dir", help="not used")
    parser.change("resume_from", help="not used: a measurement always starts from the beginning")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_single_process()
    device = pick_device(args.gpus_per_node)
    torch.set_float32_matmul_precision("highest")  # all in float32: the peak and the model by the same rule
    torch.backends.cudnn.allow_tf32 = False
    with MetricsLog(args.run_dir, device) as metrics:
        measure(args, device, metrics)


class Traffic(TorchDispatchMode):
    """Adds up the bytes of the tensors that operators read and write, each once: the least traffic.

    A view moves nothing. Bytes that stay in a cache count all the same; a second reading by the same operator
    does not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        is_view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        if not is_view and not func._schema.name.startswith("aten::empty"):
            for value in tree_leaves((args, kwargs, made)):
                if isinstance(value, torch.Tensor):
                    self.num_bytes += value.numel() * value.element_size()
        return made


def measure(args: argparse.Namespace, device: torch.device, metrics: MetricsLog) -> None:
    torch.manual_seed(args.seed)
    images = torch.randn(args.batch_size, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (args.batch_size,), device=device)
    model = build_model(args.model, args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    steps = Steps(metrics, args.lr)
    steps.begin(model, DatasetInfo("random numbers", "", True), device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()  # makes gradients and momentum, which later steps have
    with FlopCounterMode(display=False) as counter, Traffic() as traffic:
        step()
    num_flop, num_bytes = counter.get_total_flops(), traffic.num_bytes

    times = []
    for _ in range(args.max_steps):
        started = time.perf_counter()
        loss = step()
        wait_for(device)
        times.append(time.perf_counter() - started)
        steps.end(0, loss, args.batch_size, 0.0)

    # The roof, by the best of several rounds: a disturbance can only make one longer.
    matrix = torch.randn(args.matrix, args.matrix, device=device)
    peak = 2 * args.matrix**3 / best_time(lambda: matrix @ matrix, device)
    numbers = torch.ones(COPY_MIB * 2**20 // 4, device=device)
    place = torch.empty_like(numbers)
    bandwidth = 2 * COPY_MIB * 2**20 / best_time(lambda: place.copy_(numbers), device)  # read and written

    intensity, achieved = num_flop / num_bytes, num_flop / median(times)
    roof = min(peak, intensity * bandwidth)
    bound = "memory" if intensity * bandwidth < peak else "compute"
    metrics.event(
        "roofline",
        steps.done,
        flop=num_flop,
        bytes=num_bytes,
        step_time_s=median(times),
        peak_flop_per_s=peak,
        bandwidth_bytes_per_s=bandwidth,
        intensity=intensity,
        achieved_flop_per_s=achieved,
        roof_flop_per_s=roof,
        bound=bound,
    )
    print_rank0(f"one step of {args.batch_size}: {num_flop / 1e9:.4g} GFLOP, {num_bytes / 1e9:.4g} GB moved")
    print_rank0(
        f"this {device.type}: {peak / 1e9:.4g} GFLOP/s, {bandwidth / 1e9:.4g} GB/s; "
        f"from {peak / bandwidth:.3g} FLOP a byte on it is bound by compute"
    )
    print_rank0(f"intensity {intensity:.3g} FLOP a byte: bound by {bound}, at most {roof / 1e9:.4g} GFLOP/s")
    print_rank0(f"measured {achieved / 1e9:.4g} GFLOP/s: {achieved / roof:.0%} of the roof above it")
    for line in drawing(peak, bandwidth, intensity, achieved):
        print_rank0(line)
    finish(metrics, steps.done, "max_steps")


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def best_time(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the quickest round, after one that is not counted."""
    rounds = []
    for _ in range(1 + ROUNDS):
        wait_for(device)
        started = time.perf_counter()
        work()
        wait_for(device)
        rounds.append(time.perf_counter() - started)
    return min(rounds[1:])


def drawing(peak: float, bandwidth: float, intensity: float, achieved: float) -> list[str]:
    """The roof (/ where memory is the limit, - where compute is) and the run (o), by powers of ten."""
    top = math.log10(peak) + 0.2
    rows_per_power = (HEIGHT - 1) / POWERS

    def row_of(rate: float) -> int:
        return min(HEIGHT - 1, max(0, round((top - math.log10(rate)) * rows_per_power)))

    def column_of(at: float) -> int:
        return min(WIDTH - 1, max(0, round((math.log10(at) - LEAST) / (MOST - LEAST) * (WIDTH - 1))))

    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for column in range(WIDTH):
        at = 10 ** (LEAST + (MOST - LEAST) * column / (WIDTH - 1))
        rate = min(peak, at * bandwidth)
        if top - math.log10(rate) <= POWERS:
            canvas[row_of(rate)][column] = "-" if rate == peak else "/"
    canvas[row_of(achieved)][column_of(intensity)] = "o"
    rows = []
    for number, row in enumerate(canvas):
        rate = 10 ** (top - number / rows_per_power) / 1e9
        rows.append(
            f"{rate:9.3g} |{''.join(row).rstrip()}" if number % 4 == 0 else f"{'':9} |{''.join(row).rstrip()}"
        )
    marks = "".join(f"{10.0**power:<{round((WIDTH - 1) / (MOST - LEAST))}g}" for power in range(-1, 4))
    return ["  GFLOP/s", *rows, f"{'':9} +{'-' * WIDTH}", f"{'':11}{marks}", f"{'':11}FLOP a byte"]


if __name__ == "__main__":
    run(main)
