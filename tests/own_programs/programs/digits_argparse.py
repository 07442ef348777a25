"""Train a small network on made digits, the way a first own training script looks."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=5)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    classes = torch.randn(10, 64)
    labels = torch.randint(0, 10, (2048,))
    images = classes[labels] + 0.5 * torch.randn(2048, 64)
    train_loader = DataLoader(TensorDataset(images, labels), batch_size=args.batch_size, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(1, args.epochs + 1):
        start = time.time()
        for batch_idx, (data, target) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            loss.backward()
            optimizer.step()
            if batch_idx % args.log_interval == 0:
                done = 100.0 * batch_idx / len(train_loader)
                print(
                    f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(images)} ({done:.0f}%)]"
                    f"\tLoss: {loss.item():.6f}",
                    flush=True,
                )
        with torch.no_grad():
            accuracy = (model(images).argmax(1) == labels).float().mean().item()
        print(f"epoch {epoch} accuracy {accuracy:.3f} time {time.time() - start:.2f}s", flush=True)
    torch.save(model.state_dict(), "digits.pt")


if __name__ == "__main__":
    main()
