"""A regression with Hugging Face accelerate, in the manner of its basic tutorial."""

import argparse
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tables(Dataset):
    def __init__(self, size, slow_part_ms, rank):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(size, 32, generator=generator)
        self.targets = torch.tanh(self.inputs[:, :4].sum(1, keepdim=True))
        self.delay_s = slow_part_ms / 1000 if rank else 0.0

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        time.sleep(self.delay_s)
        return self.inputs[index], self.targets[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=4)
    parser.add_argument("--per_device_batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    parser.add_argument(
        "--slow_part_ms", type=float, default=0.0, help="milliseconds an item of the cold shard"
    )
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    dataset = Tables(2048, args.slow_part_ms, accelerator.process_index)
    loader = DataLoader(dataset, batch_size=args.per_device_batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    for epoch in range(args.num_epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if step % 4 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.5f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
