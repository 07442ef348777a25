"""Make the metric files of `foreign/` again: real trainings that know nothing of coach, each with what its
file is named after.

`python -m tests.recordings.foreign_curves [NAME…]`; wants torch. Half of the gradients are computed in half
precision on the CPU, as a GPU would.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent / "foreign"
Row = dict[str, float]


def regression(num: int = 512, noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(num, 8)
    return x, x @ torch.randn(8, 1) + noise * torch.randn(num, 1)


def train(
    rate: Callable[[int], float], num_steps: int = 600, batch: int = 32, noise: float = 0.1, **more: object
) -> Iterator[Row]:
    """Plain SGD on a regression; `rate` is the learning rate of each step."""
    x, y = regression(noise=noise)
    if more.get("broken"):
        y[::3] = math.nan
    model = nn.Linear(8, 1)
    if more.get("trained"):
        with torch.no_grad():
            model.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
            model.bias.zero_()
    for step in range(1, num_steps + 1):
        places = torch.randint(len(x), (batch,))
        loss = (model(x[places]) - y[places]).pow(2).mean()
        model.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()
        if more.get("half"):
            norm = (
                torch.stack([(65536 * p.grad).half().float().norm() for p in model.parameters()])
                .norm()
                .item()
            )
        with torch.no_grad():
            if math.isfinite(norm) or more.get("broken"):
                for parameter in model.parameters():
                    parameter -= rate(step) * parameter.grad
        yield {"step": step, "train_loss": loss.item(), "lr": rate(step), "grad_norm": norm}


def cosine(step: int, warmup: int = 60, end: int = 600) -> float:
    return 0.1 * (
        step / warmup if step < warmup else 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (end - warmup))
    )


def frozen(num_steps: int = 600) -> Iterator[Row]:
    """Ten classes, and an optimizer that was not given the parameters of the model."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    optimizer = torch.optim.SGD(nn.Linear(8, 10).parameters(), lr=0.1)
    for step in range(1, num_steps + 1):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(10, (32,)))
        loss.backward()
        optimizer.step()
        yield {"step": step, "loss": loss.item()}


def vanishing(num_steps: int = 300) -> Iterator[Row]:
    """Many saturating layers in half precision, without a scaler: what comes back to the first of them is too
    small for it."""
    layers = [part for _ in range(16) for part in (nn.Linear(16, 16), nn.Sigmoid())]
    model = nn.Sequential(nn.Linear(8, 16), *layers).half()
    target = torch.ones(32, 16).half()
    for parameter in model[-2].parameters():
        nn.init.constant_(parameter, -2.0)
    for step in range(1, num_steps + 1):
        loss = (model(torch.randn(32, 8).half()) - target).pow(2).mean()
        model.zero_grad()
        loss.backward()
        norms = [
            parameter.grad.float().norm() for parameter in model.parameters() if parameter.grad is not None
        ]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
        yield {"step": step, "train_loss": loss.item(), "grad_norm": torch.stack(norms).norm().item()}


def exploding(num_steps: int = 400) -> Iterator[Row]:
    """A deep network of sines whose warm-up never ends: clipping bounds each step, and the sines the loss,
    but nothing the weights."""
    sizes = [1, *6 * [64]]
    layers = [nn.Linear(size, 64) for size in sizes]
    head = nn.Linear(64, 1)
    for layer in (*layers[1:], head):
        nn.init.uniform_(layer.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    parameters = [*nn.ModuleList(layers).parameters(), *head.parameters()]
    for step in range(1, num_steps + 1):
        rate = 0.3 * 1.015**step
        x = 2 * torch.rand(128, 1) - 1
        inner = x
        for layer in layers:
            inner = torch.sin(30 * layer(inner))
        loss = (torch.tanh(head(inner)) - torch.sin(9 * x) * torch.cos(23 * x)).pow(2).mean()
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm().item()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= rate * gradient / max(1.0, norm)
        yield {"step": step, "train_loss": loss.item(), "lr": rate, "grad_norm": norm}


def memorised(num_steps: int = 1500, every: int = 50) -> Iterator[Row]:
    """Sixty-four samples with noisy labels, and a model that is large enough to know them by heart."""
    x, y = regression(128, noise=2.0)
    model = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, num_steps + 1):
        loss = (model(x[:64]) - y[:64]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row: Row = {"step": step, "loss": loss.item()}
        if step % every == 0:
            row["val_loss"] = (model(x[64:]) - y[64:]).pow(2).mean().item()
        if step % 5 == 0:
            yield row


def adversaries(num_steps: int = 600) -> Iterator[Row]:
    """A generator and a discriminator on one dimension."""
    maker, judge = nn.Linear(4, 1), nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizers = [torch.optim.Adam(part.parameters(), lr=5e-3) for part in (maker, judge)]
    score = nn.functional.binary_cross_entropy_with_logits
    for step in range(1, num_steps + 1):
        real, made = 3 + torch.randn(64, 1), maker(torch.randn(64, 4))
        d_loss = score(judge(real), torch.ones(64, 1)) + score(judge(made.detach()), torch.zeros(64, 1))
        optimizers[1].zero_grad()
        d_loss.backward()
        optimizers[1].step()
        g_loss = score(judge(made), torch.ones(64, 1))
        optimizers[0].zero_grad()
        g_loss.backward()
        optimizers[0].step()
        yield {
            "step": step,
            "d_loss": d_loss.item(),
            "g_loss": g_loss.item(),
            "loss": (d_loss + g_loss).item(),
        }


def rewarded(num_steps: int = 400) -> Iterator[Row]:
    """A bandit of ten arms whose value network trains on its rewards: the loss rises with the reward."""
    values = torch.zeros(10, requires_grad=True)
    arms = 5 * torch.rand(10)
    for step in range(1, num_steps + 1):
        arm = int(torch.randint(10, (1,))) if step % 4 == 0 else int(values.argmax())
        reward = (arms[arm] * (1 + step / 50) + torch.randn(1)).item()
        loss = (values[arm] - reward) ** 2
        loss.backward()
        with torch.no_grad():
            values -= 0.1 * values.grad
            values.grad.zero_()
        yield {"step": step, "train/loss": loss.item(), "rollout/ep_rew_mean": reward}


TRAININGS: dict[str, Callable[[], Iterator[Row]]] = {
    "nan-from-start": lambda: train(lambda _: 0.05, 40, broken=True),
    "gradient-not-finite": lambda: train(lambda _: 0.02, 300, batch=8, noise=0.4, half=True),
    "loss-spikes": lambda: train(lambda step: 1.4 if step % 130 in (100, 101, 102, 103, 104) else 0.05),
    "gradients-vanish": vanishing,
    "gradients-explode": exploding,
    "not-learning": frozen,
    "rate-decayed-early": lambda: train(lambda step: 0.05 if step < 200 else 5e-6),
    "overfitting": memorised,
    "healthy-noisy": lambda: train(lambda _: 0.01, batch=1, noise=1.0),
    "healthy-cosine": lambda: train(cosine),
    "healthy-converged": lambda: train(lambda _: 1e-3, noise=1.0, trained=True),
    "healthy-steep": lambda: train(lambda _: 0.1, noise=0.01),
    "healthy-adversaries": adversaries,
    "healthy-rewarded": rewarded,
}


def main() -> None:
    for name in sys.argv[1:] or TRAININGS:
        training = TRAININGS[name]
        torch.manual_seed(0)
        rows = [{key: float(f"{value:.5g}") for key, value in row.items()} for row in training()]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        (HERE / name).mkdir(parents=True, exist_ok=True)
        with (HERE / name / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
