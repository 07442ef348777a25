"""A character model on made text: each process of the job step trains on its part."""

import argparse
import logging
import os
import time

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("words")


def batches(text, length, size, copies, generator):
    while True:
        starts = torch.randint(0, len(text) - length - 1, (size,), generator=generator)
        windows = torch.stack([text[start : start + length + 1] for start in starts])
        yield windows.repeat(copies, 1)[:size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--copies", type=int, default=1)
    args = parser.parse_args()

    rank = int(os.environ.get("SLURM_PROCID", "0"))
    torch.manual_seed(rank)
    generator = torch.Generator().manual_seed(rank)
    text = torch.tensor(list(b"the quick brown fox jumps over the lazy dog. " * 200))
    model = nn.ModuleList([nn.Embedding(128, 32), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 128)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    source = batches(text, 32, args.batch_size, args.copies, generator)
    started = time.perf_counter()
    for step in range(1, args.steps + 1):
        batch = next(source)
        embed, gru, head = model
        logits = head(gru(embed(batch[:, :-1]))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            rate = 10 * args.batch_size * 32 / (time.perf_counter() - started)
            log.info("step %d/%d | loss %.4f | %.0f tokens/s", step, args.steps, loss.item(), rate)
            started = time.perf_counter()


if __name__ == "__main__":
    main()
