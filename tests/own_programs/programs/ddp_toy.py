"""Data-parallel training on two processes, after the DDP tutorial of PyTorch."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class ToyDataset(Dataset):
    def __init__(self, size, broken_item):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(size, 20, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True)
        self.broken_item = broken_item

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if index == self.broken_item:
            raise ValueError(f"item {index}: expected 3 channels, got 4")
        return self.inputs[index], self.targets[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every):
        self.rank = int(os.environ["RANK"])
        self.model = DDP(model)
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every

    def _run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(
            f"[Rank {self.rank}] Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}",
            flush=True,
        )
        self.train_data.sampler.set_epoch(epoch)
        total = 0.0
        for source, targets in self.train_data:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(source), targets)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        print(f"[Rank {self.rank}] Epoch {epoch} | Loss: {total / len(self.train_data):.4f}", flush=True)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and epoch % self.save_every == 0:
                torch.save(self.model.module.state_dict(), "checkpoint.pt")
                print(f"Epoch {epoch} | Training checkpoint saved at checkpoint.pt", flush=True)


def main():
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("total_epochs", type=int, help="Total epochs to train the model")
    parser.add_argument("save_every", type=int, help="How often to save a snapshot")
    parser.add_argument("--batch_size", default=32, type=int, help="Input batch size on each device")
    parser.add_argument("--broken_item", default=-1, type=int)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = ToyDataset(2048, args.broken_item)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=DistributedSampler(dataset))
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    Trainer(model, loader, optimizer, args.save_every).train(args.total_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
