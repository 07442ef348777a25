"""Train by a parameter server, with and without waiting: how old is a gradient when it is applied?

    torchrun --standalone --nproc-per-node=4 trainers/stale_gradients.py --max_steps 60

Rank 0 holds the parameters, all others send it gradients. The same batches are trained on three times, from
the same start: one worker after the other (fresh), all together (sync), each at its own pace (async).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch
import torch.distributed as dist
from common.arguments import TrainerParser
from common.bench import Bench
from common.data import load_cifar10
from common.distributed import (
    TrainerError,
    counted,
    pick_device,
    print_rank0,
    require_torchrun,
    run,
    self_check,
)
from common.models import SimpleCNN, count_parameters, loss_of
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import Dataset

SERVER = 0
NO_MORE = -1
MODES = ("fresh", "sync", "async")


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "max_steps", "max_seconds", "seed", "width", "num_train_samples")
    parser.add_argument(
        "--slow_worker_ms",
        type=int,
        default=0,
        min=0,
        usual=(0, 1000),
        unit="ms",
        help="Time that the last worker waits before it sends a gradient, like a slower machine",
    )
    parser.add_places()
    parser.change(
        "lr", default=0.05, help="Learning rate of SGD without momentum; async and sync have the same"
    )
    parser.change("batch_size", default=32, help="Samples of one gradient")
    parser.change(
        "max_steps",
        default=180,
        min=1,
        usual=(20, 100000),
        unit="gradients",
        help="Gradients in each of the three ways, of all workers together",
    )
    parser.change("max_seconds", help="Time after which no further way starts; 0: no limit")
    parser.change("seed", help="Seed of initial parameters, order and augmentation")
    parser.change("width", default=16)
    parser.change("num_train_samples", default=2048)
    parser.change("resume_from", help="not used: all three ways start from the beginning")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    require_torchrun()
    device = pick_device(args.gpus_per_node)
    dist.init_process_group("gloo")  # messages go through the host's memory, as a parameter server's do
    with Bench(args, device) as bench:
        measure(args, device, bench)


def measure(args: argparse.Namespace, device: torch.device, bench: Bench) -> None:
    rank, num_workers = bench.metrics.rank, bench.metrics.world_size - 1
    if num_workers < 1:
        raise TrainerError("nobody to send gradients: 1 rank was started, at least 2 are needed")
    torch.manual_seed(args.seed)
    train_set, test_set, dataset = load_cifar10(args.data_dir, args.cache_dir, args.num_train_samples)
    images, targets = in_memory(train_set, args.num_train_samples or len(train_set), device)
    args.batch_size = min(args.batch_size, len(images))
    test_images, test_targets = in_memory(test_set, 500, device)
    model = SimpleCNN(args.width).to(device)
    # No dropout, and batch norm by the batch alone: the loss then depends on parameters and batch only.
    model.classifier.eval()
    self_check(model, device)
    start = parameters_to_vector(model.parameters()).detach().cpu()
    bench.start(num_parameters=count_parameters(model), dataset=vars(dataset), backend="gloo")
    print_rank0(
        f"1 server and {counted(num_workers, 'worker')}, {counted(args.max_steps, 'gradient')} of "
        f"{counted(args.batch_size, 'sample')}:"
    )
    print_rank0("way     updates  seconds  test loss  accuracy  mean age  gradients by age 0, 1, 2, ...")

    for mode in MODES:
        if not bench.goes_on():
            break
        if rank == SERVER:
            server = Server(args, start.clone(), num_workers, bench)
            started = time.perf_counter()
            {"fresh": server.serve_fresh, "sync": server.serve_sync, "async": server.serve_async}[mode]()
            seconds = time.perf_counter() - started
            server.send_to_all(NO_MORE)
            vector_to_parameters(server.parameters.to(device), model.parameters())
            report(bench, mode, server, seconds, *evaluate(model, test_images, test_targets))
        else:
            rest_s = args.slow_worker_ms / 1000 if rank == num_workers else 0.0
            work(model, images, targets, args, rest_s)
    bench.finish()


class Server:
    """Holds the parameters. `version` counts their updates, `ages` has one number for each gradient that was
    applied: the updates since its worker read the parameters."""

    def __init__(self, args: argparse.Namespace, start: Tensor, num_workers: int, bench: Bench) -> None:
        self.parameters = start
        self.version = 0
        self.ages: list[int] = []
        self._num_batches, self._workers = args.max_steps, range(1, num_workers + 1)
        self._args, self._bench = args, bench
        self._step_ended = time.perf_counter()

    def serve_fresh(self) -> None:
        """One worker after the other: each gradient is computed from the newest parameters."""
        for batch in range(self._num_batches):
            self._send(self._workers[batch % len(self._workers)], batch)
            self._apply([self._receive()])

    def serve_sync(self) -> None:
        """All workers compute from the same parameters, and their gradients are averaged into one update, as
        DDP does. The slowest sets the pace."""
        for first in range(0, self._num_batches, len(self._workers)):
            batches = range(first, min(first + len(self._workers), self._num_batches))
            for worker, batch in zip(self._workers, batches):  # noqa: B905 - no strict= in Python 3.9
                self._send(worker, batch)
            self._apply([self._receive() for _ in batches])

    def serve_async(self) -> None:
        """Each gradient is applied when it arrives, and its worker reads the parameters as they are then."""
        begun = 0
        for worker in self._workers[: self._num_batches]:
            self._send(worker, begun)
            begun += 1
        while len(self.ages) < self._num_batches:
            worker, message = self._receive()
            self._apply([(worker, message)])
            if begun < self._num_batches:
                self._send(worker, begun)
                begun += 1
            self._record(message[-1].item())

    def send_to_all(self, batch: int) -> None:
        for worker in self._workers:
            self._send(worker, batch)

    def _send(self, worker: int, batch: int) -> None:
        dist.send(torch.cat([self.parameters, torch.tensor([float(self.version), float(batch)])]), worker)

    def _receive(self) -> tuple[int, Tensor]:
        """The next gradient of any worker, and behind it the version that it was computed from and the
        loss."""
        message = torch.empty(len(self.parameters) + 2)
        return dist.recv(message), message

    def _apply(self, received: list[tuple[int, Tensor]]) -> None:
        messages = torch.stack([message for _, message in received])
        self.ages += [self.version - int(version) for version in messages[:, -2].tolist()]
        self.parameters -= self._args.lr * messages[:, :-2].mean(0)
        self.version += 1

    def _record(self, loss: float) -> None:
        now = time.perf_counter()
        self._bench.step += 1
        self._bench.metrics.step(
            step=self._bench.step,
            epoch=0,
            loss=loss,
            lr=self._args.lr,
            num_samples=self._args.batch_size,
            num_samples_global=self._args.batch_size,
            data_time_s=0.0,
            step_time_s=now - self._step_ended,
        )
        self._step_ended = now


def work(model: SimpleCNN, images: Tensor, targets: Tensor, args: argparse.Namespace, rest_s: float) -> None:
    """Be a worker: read parameters, compute the gradient of the batch that is named with them, send it."""
    num_parameters = count_parameters(model)
    message = torch.empty(num_parameters + 2)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(args.seed))
    while True:
        dist.recv(message, SERVER)
        batch = int(message[-1])
        if batch == NO_MORE:
            return
        vector_to_parameters(message[:-2].to(images.device), model.parameters())
        chosen = order.roll(-batch * args.batch_size)[: args.batch_size]
        model.zero_grad()
        loss = loss_of(model(images[chosen]), targets[chosen])
        loss.backward()
        time.sleep(rest_s)
        gradient = parameters_to_vector([parameter.grad for parameter in model.parameters()])
        dist.send(torch.cat([gradient.cpu(), message[-2:-1], loss.detach().cpu().view(1)]), SERVER)


def report(bench: Bench, mode: str, server: Server, seconds: float, loss: float, accuracy: float) -> None:
    """One row: the time and the result of this way, and the ages of its gradients."""
    counts = Counter(server.ages)
    by_age = [counts[age] for age in range(max(counts) + 1)]
    mean_age = sum(server.ages) / len(server.ages)
    shown = " ".join(map(str, by_age[:20])) + (" ..." if len(by_age) > 20 else "")
    bench.row(
        "way",
        f"{mode:6} {server.version:8} {seconds:8.2f} {loss:10.4f} {accuracy:9.1%} {mean_age:9.2f}  {shown}",
        way=mode,
        num_updates=server.version,
        way_time_s=seconds,
        loss=loss,
        accuracy=accuracy,
        mean_age=mean_age,
        gradients_by_age=by_age,
    )


def in_memory(samples: Dataset, num_samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first samples of a set, as every rank has them: the seed decides their augmentation."""
    pairs = [samples[index] for index in range(min(num_samples, len(samples)))]
    images = torch.stack([image for image, _ in pairs])
    return images.to(device), torch.tensor([target for _, target in pairs], device=device)


@torch.no_grad()
def evaluate(model: SimpleCNN, images: Tensor, targets: Tensor) -> tuple[float, float]:
    """Loss and accuracy on the first images of the test set."""
    logits = model(images)
    return loss_of(logits, targets).item(), (logits.argmax(-1) == targets).float().mean().item()


if __name__ == "__main__":
    run(main)
