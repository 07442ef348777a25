"""A classifier as a LightningModule, with a data module that prepares each image when it is asked for."""

import argparse
import time

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spots(Dataset):
    def __init__(self, size, decode_ms):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, 4, (size,), generator=generator)
        self.noise = torch.randn(size, 1, 16, 16, generator=generator)
        self.decode_s = decode_ms / 1000

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        time.sleep(self.decode_s)  # stands for decoding a file
        label = self.labels[index]
        image = self.noise[index].clone()
        image[0, 8 * (label // 2) : 8 * (label // 2) + 8, 8 * (label % 2) : 8 * (label % 2) + 8] += 1.0
        return image, label


class SpotData(pl.LightningDataModule):
    def __init__(self, batch_size, num_workers, decode_ms):
        super().__init__()
        self.options = {"batch_size": batch_size, "num_workers": num_workers}
        self.train_set, self.val_set = Spots(512, decode_ms), Spots(64, 0)

    def train_dataloader(self):
        return DataLoader(self.train_set, shuffle=True, **self.options)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=64)


class Classifier(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 64, 4)),
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(images), labels), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--decode_ms", type=float, default=0.0)
    args = parser.parse_args()
    pl.seed_everything(0)
    trainer = pl.Trainer(
        max_epochs=args.max_epochs,
        accelerator="cpu",
        log_every_n_steps=2,
        logger=pl.loggers.CSVLogger("logs"),
    )
    trainer.fit(Classifier(args.lr), SpotData(args.batch_size, args.num_workers, args.decode_ms))


if __name__ == "__main__":
    main()
