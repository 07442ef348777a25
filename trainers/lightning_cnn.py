"""Train SimpleCNN on CIFAR-10 with Lightning: its Trainer owns the loop, and hooks take the place of the
other trainers' lines.

    torchrun --standalone --nproc-per-node=2 trainers/lightning_cnn.py --epochs 1

Metrics, checkpoints and the model end up in --run_dir. Started again with the same --run_dir, it goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from pathlib import Path
from typing import Any, Iterator

import torch
from common.arguments import TrainerParser
from common.checkpoint import NUM_KEPT, newest_checkpoint, remove_unfinished, restore_rng_state, rng_state
from common.data import load_data
from common.distributed import (
    StopSignal,
    TrainerError,
    any_rank_by_now,
    describe_process,
    finish,
    pick_device,
    print_rank0,
    run,
    self_check,
    why_stopped,
    world_size_from_env,
)
from common.loading import SeededSamples, leave_signals_to_trainer
from common.metrics import MetricsLog
from common.models import build_model, count_parameters, loss_of
from common.needed import needed
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Sampler, Subset

with needed("install it, for example with `pip install pytorch-lightning`"):
    import pytorch_lightning as lightning
    from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy


def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "batch_size", "epochs", "max_steps", "max_seconds", "num_workers", "seed")
    parser.add_shared("optimizer")
    parser.add_argument(
        "--precision",
        default="32-true",
        choices=["32-true", "bf16-mixed", "16-mixed"],
        help=(
            "Lightning's words: fp32, autocast to bf16, or autocast to fp16 with a scaled loss (needs a GPU)"
        ),
    )
    parser.add_shared("checkpoint_every")
    parser.add_shared("model", "width", "num_train_samples")
    parser.add_shared("eval_every_epoch", "log_metrics")
    parser.add_shared("tensorboard")
    parser.add_places()
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    stop = StopSignal(args.max_seconds)  # before Lightning, which leaves an existing handler alone
    device = pick_device(args.gpus_per_node)
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # their greetings
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
    with MetricsLog(
        args.run_dir, device, log_steps=args.log_metrics, tensorboard=args.tensorboard
    ) as metrics:
        train(args, device, metrics, stop)


def train(args: argparse.Namespace, device: torch.device, metrics: MetricsLog, stop: StopSignal) -> None:
    rank, world_size = metrics.rank, metrics.world_size
    lightning.seed_everything(args.seed + rank, verbose=False)

    # Data: Lightning would put its own DistributedSampler here, which cannot go on in the middle of an epoch.
    train_set, test_set, dataset = load_data(args)
    shuffle = DistributedSampler(train_set, num_replicas=world_size, rank=rank, seed=args.seed)
    sampler = EpochSampler(shuffle)
    train_loader = DataLoader(
        SeededSamples(train_set, args.seed),  # the same crops in every process, also after a resume
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        persistent_workers=args.num_workers > 0,
        worker_init_fn=leave_signals_to_trainer,
        generator=torch.Generator(),  # loading takes no number from dropout's generator
        pin_memory=device.type == "cuda",
    )
    test_set = Subset(test_set, range(rank, len(test_set), world_size))
    test_loader = DataLoader(test_set, batch_size=256, generator=torch.Generator())

    made_with = {"model": args.model, "width": args.width, "optimizer": args.optimizer}
    module = Classifier(made_with, args.lr)
    records = CoachRecords(args, metrics, stop, sampler, dataset, device)
    resume_from = newest_checkpoint(args.run_dir) or args.resume_from

    # One process per device was started already, by torchrun. Both backends, so that ranks can also exchange
    # tensors of the host.
    strategy = (
        DDPStrategy(process_group_backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        if world_size > 1
        else SingleDeviceStrategy(device)
    )
    trainer = lightning.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy=strategy,
        precision=args.precision,
        max_epochs=-1 if args.max_steps else args.epochs,
        max_steps=args.max_steps or -1,
        limit_val_batches=None if args.eval_every_epoch else 0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        callbacks=[records],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, train_loader, test_loader, ckpt_path=resume_from)
    finish(metrics, trainer.global_step, "max_steps" if args.max_steps else "epochs")


class Classifier(lightning.LightningModule):
    """The model, its loss and its optimizer: a LightningModule holds these."""

    def __init__(self, made_with: dict[str, Any], lr: float) -> None:
        super().__init__()
        self.made_with = made_with
        self.lr = lr
        self.model = build_model(made_with["model"], made_with["width"])
        self.totals = torch.zeros(3)  # loss, correct answers, answers

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        inputs, targets = batch
        return loss_of(self.model(inputs), targets)

    def on_validation_epoch_start(self) -> None:
        self.totals = torch.zeros(3, device=self.device)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        inputs, targets = batch
        logits = self.model(inputs)
        self.totals[0] += loss_of(logits, targets) * targets.numel()
        self.totals[1] += (logits.argmax(-1) == targets).sum()
        self.totals[2] += targets.numel()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.made_with["optimizer"] == "sgd":
            return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class EpochSampler(Sampler):
    """Goes on in the middle of an epoch. Lightning counts the batches that an interrupted epoch has had, but
    reads its first ones again."""

    def __init__(self, sampler: DistributedSampler) -> None:
        self.sampler = sampler
        self.resumed_epoch, self.resumed_position = -1, 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls it at the start of every epoch."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.sampler.epoch
        start = self.resumed_position if epoch == self.resumed_epoch else 0
        return iter([(epoch, index) for index in self.sampler][start:])


class CoachRecords(lightning.Callback):
    """Metrics, checkpoints and the way out, at the places that Lightning's loop has for them."""

    def __init__(
        self,
        args: argparse.Namespace,
        metrics: MetricsLog,
        stop: StopSignal,
        sampler: EpochSampler,
        dataset: Any,
        device: torch.device,
    ) -> None:
        self.args, self.metrics, self.stop, self.sampler = args, metrics, stop, sampler
        self.dataset, self.device = dataset, device
        self.position = 0  # samples of the epoch that this rank has trained on
        self.saved_rng: list[dict[str, torch.Tensor]] = []
        self.step_ended = self.batch_ready = self.epoch_started = self.eval_started = 0.0
        self.grad_norm = torch.zeros(())
        self.epoch_loss, self.epoch_samples = torch.zeros(()), 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        step, metrics = trainer.global_step, self.metrics
        if world_size_from_env() > 1:
            self_check(module.model, self.device, trainer.train_dataloader)
        if self.saved_rng:
            restore_rng_state(self.saved_rng, self.device, metrics.rank)
        num_parameters = count_parameters(module.model)
        metrics.event(
            "start",
            step,
            rank=metrics.rank,
            world_size=metrics.world_size,
            dataset=vars(self.dataset),
            num_parameters=num_parameters,
            lightning=lightning.__version__,
            **describe_process(self.device),
        )
        print_rank0(
            f"model: {self.args.model}, width {self.args.width}, {num_parameters:,} parameters, on "
            f"{self.device.type}; Lightning {lightning.__version__}"
        )
        if trainer.ckpt_path:
            metrics.event("resume", step, path=str(trainer.ckpt_path))
            print_rank0(f"resumed at step {step} from {trainer.ckpt_path}")
        self.step_ended = time.perf_counter()

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        if trainer.current_epoch != self.sampler.resumed_epoch:
            self.position = 0
        self.epoch_started = self.step_ended = time.perf_counter()
        self.epoch_loss, self.epoch_samples = torch.zeros((), device=self.device), 0

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        self.batch_ready = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.grad_norm = nn.utils.get_total_norm(p.grad for p in module.parameters() if p.grad is not None)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        loss, num_samples, now = outputs["loss"].detach(), len(batch[1]), time.perf_counter()
        self.position += num_samples
        self.epoch_samples += num_samples
        self.epoch_loss += loss * num_samples
        self.metrics.step(
            step=trainer.global_step,
            epoch=trainer.current_epoch,
            loss=loss,  # still on the device: reading it here would wait for the step
            lr=self.args.lr,
            num_samples=num_samples,
            num_samples_global=num_samples * self.metrics.world_size,
            data_time_s=self.batch_ready - self.step_ended,
            step_time_s=now - self.step_ended,
            grad_norm=self.grad_norm,
        )
        self.step_ended = now
        # All ranks leave in the same step, or the others would wait forever. They agree while the next step
        # is computed.
        if any_rank_by_now(self.stop.is_requested):
            reason, why = why_stopped(self.stop)
            print_rank0(f"{why}: leaving at step {trainer.global_step}")
            self.save(trainer, reason)
            finish(self.metrics, trainer.global_step, reason)
        if trainer.global_step == self.args.max_steps:
            self.save(trainer, "end")
            finish(self.metrics, trainer.global_step, "max_steps")
        if self.args.checkpoint_every and trainer.global_step % self.args.checkpoint_every == 0:
            self.save(trainer, "interval")
            self.step_ended = time.perf_counter()
        if trainer.is_last_batch:
            self.end_epoch(trainer)

    def end_epoch(self, trainer: Any) -> None:
        mean_loss, seconds = (
            self.epoch_loss.item() / self.epoch_samples,
            time.perf_counter() - self.epoch_started,
        )
        self.metrics.event(
            "epoch_end",
            trainer.global_step,
            epoch=trainer.current_epoch,
            loss=mean_loss,
            num_samples=self.epoch_samples,
            seconds=seconds,
        )
        print_rank0(
            f"epoch {trainer.current_epoch}: loss {mean_loss:.4f}, {self.epoch_samples / seconds:.0f} "
            "samples/s on this rank"
        )

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        # Not after `fit`: there Lightning calls every epoch finished, and would go on with the one after the
        # next.
        if not self.args.max_steps and trainer.current_epoch + 1 == self.args.epochs:
            self.save(trainer, "end")

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self.eval_started = time.perf_counter()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        loss, num_correct, num_answers = trainer.strategy.reduce(module.totals, reduce_op="sum").tolist()
        accuracy, epoch = num_correct / num_answers, trainer.current_epoch
        seconds = time.perf_counter() - self.eval_started
        self.metrics.event(
            "eval",
            trainer.global_step,
            epoch=epoch,
            loss=loss / num_answers,
            accuracy=accuracy,
            seconds=seconds,
        )
        print_rank0(
            f"epoch {epoch}: test loss {loss / num_answers:.4f}, accuracy {accuracy:.2%}{self.dataset.caveat}"
        )

    def save(self, trainer: Any, reason: str) -> None:
        """Lightning writes the checkpoint; its name appears when it is whole. All ranks call it."""
        started, step = time.perf_counter(), trainer.global_step
        folder = Path(self.args.run_dir) / "checkpoints"
        path = folder / f"step-{step:08d}.pt"
        unfinished = folder / f".{path.name}.unfinished"
        if self.metrics.rank == 0:
            remove_unfinished(folder)
        trainer.save_checkpoint(unfinished)
        if self.metrics.rank != 0:
            return
        os.replace(unfinished, path)
        for old in sorted(folder.glob("step-*.pt"))[:-NUM_KEPT]:
            old.unlink()
        seconds = time.perf_counter() - started
        self.metrics.event("checkpoint", step, path=str(path), seconds=seconds, reason=reason)
        print_rank0(f"checkpoint at step {step}: {path} ({reason})")

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        rng: list[Any] = [rng_state(self.device)]
        if torch.distributed.is_initialized():
            rng = [None] * self.metrics.world_size
            torch.distributed.all_gather_object(rng, rng_state(self.device))
        checkpoint.update(
            made_with=module.made_with,
            rng=rng,
            position=self.position,
            epoch_of_position=trainer.current_epoch,
        )

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        theirs = checkpoint.get("made_with")
        if theirs != module.made_with:
            raise TrainerError(
                f"{trainer.ckpt_path}: was made with {theirs}, but this run has {module.made_with}"
            )
        self.saved_rng = checkpoint["rng"]
        self.position = self.sampler.resumed_position = checkpoint["position"]
        self.sampler.resumed_epoch = checkpoint["epoch_of_position"]


if __name__ == "__main__":
    run(main)
