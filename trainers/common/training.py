"""Everything around the loop of a training that is the same for every trainer.

A trainer's file shows its data, its model and its loop. A `Training` does the rest: it resumes from a
checkpoint, notices signals, lets all ranks end in the same step, and writes records, events and checkpoints.
"""

from __future__ import annotations

import argparse
import time
from types import TracebackType
from typing import Any, Callable, Iterator, NoReturn

import torch

from common.checkpoint import Checkpoints, restore_rng_state, rng_state
from common.data import DatasetInfo
from common.distributed import (
    STOPPED_EARLY,
    StopSignal,
    any_rank_by_now,
    describe_process,
    finish,
    gather,
    print_rank0,
    why_stopped,
)
from common.loading import Batch, steps_of
from common.metrics import MetricsLog
from common.timing import CompileTime


class Training:
    """One rank's part of a training: its progress, and its records.

    `num_replicas` is the number of ranks that train on samples of their own; None: all of them. `gather` and
    `any_rank` ask all ranks where torch.distributed does not: for the values of all by rank, and for True if
    a value is true on any.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        device: torch.device,
        num_replicas: int | None = None,
        gather: Callable[[Any], list[Any]] = gather,
        any_rank: Callable[[bool], bool] = any_rank_by_now,
    ) -> None:
        # A trainer without this option has no convolutions, or decides by itself.
        torch.backends.cudnn.benchmark = getattr(args, "cudnn_benchmark", False)
        self.stop = StopSignal(args.max_seconds)
        self.metrics = MetricsLog(
            args.run_dir, device, log_steps=args.log_metrics, tensorboard=args.tensorboard
        )
        self.rank, self.world_size = self.metrics.rank, self.metrics.world_size
        self.num_replicas = self.world_size if num_replicas is None else num_replicas
        self.step = self.epoch = 0
        self.position = 0  # samples of the epoch that all ranks together have trained on
        self._args, self._device = args, device
        self._gather, self._any_rank = gather, any_rank
        self._reason: str | None = None
        self._samples_of_epoch = 0
        self._data_time_s = 0.0
        self._compile_time: CompileTime | None = None

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.metrics.__exit__(kind, error, trace)

    def start(self, dataset: DatasetInfo, checkpoints: Checkpoints, samples_of_step: int = 1) -> None:
        """Go on from the newest checkpoint of this run, else from the one that --resume_from names. Say where
        and with which data this rank trains.

        `samples_of_step`: where a step must be whole, a checkpoint within one goes back to its begin.
        """
        self._dataset, self._checkpoints = dataset, checkpoints
        resume_from = checkpoints.newest(self._args.run_dir) or self._args.resume_from
        if resume_from:
            saved = checkpoints.load(resume_from)
            self.step, self.epoch = saved["step"], saved["epoch"]
            self.position = saved["position"] // samples_of_step * samples_of_step
            restore_rng_state(saved["rng"], self._device, self.rank)
        self.metrics.event(
            "start",
            self.step,
            rank=self.rank,
            world_size=self.world_size,
            dataset=vars(dataset),
            num_parameters=checkpoints.num_parameters,
            **checkpoints.differs,
            **describe_process(self._device),
        )
        size = f"{checkpoints.num_parameters:,} parameters"
        print_rank0(f"model: {checkpoints.description}, {size}, on {self._device.type}")
        for said in checkpoints.differs.values():
            print_rank0(f"model: {said}")
        if resume_from:
            self.metrics.event("resume", self.step, path=str(resume_from))
            print_rank0(f"resumed at step {self.step} from {resume_from}")

    def epochs(self, num_samples: int) -> Iterator[int]:
        """The number of each epoch that is left, until the training ends. An epoch has `num_samples`, of all
        ranks together."""
        self._samples_of_epoch = num_samples
        self._end_epoch()  # a checkpoint may lie at the end of one
        while self._reason is None:
            yield self.epoch
            self._end_epoch()

    def _end_epoch(self) -> None:
        if self.position >= self._samples_of_epoch:
            self.epoch, self.position = self.epoch + 1, 0
        self._reason = self._reason or self._why_stop()

    def steps(self, loader: Any, num_micro_batches: int = 1) -> Iterator[list[Batch]]:
        """The micro-batches of each optimizer step that is left of this epoch."""
        loader.sampler.begin(self.epoch, self.position // self.num_replicas)
        return self.timed(steps_of(loader, num_micro_batches))

    def timed(self, steps: Iterator[tuple[Any, float]]) -> Iterator[Any]:
        """The batches of each step of this epoch, from pairs with the seconds that training waited for them.

        The caller ends each step by `end_step`. Checkpoints that are due are written between two steps.
        """
        self._loss, self._num_samples = torch.zeros((), device=self._device), 0
        started = self._step_started = time.perf_counter()
        for data, self._data_time_s in steps:
            yield data
            self._reason = self._why_stop()
            if self._reason:
                break
            if self._args.checkpoint_every and self.step % self._args.checkpoint_every == 0:
                self.save("interval")
                self.begin_step()
        if self._reason not in STOPPED_EARLY:
            self._report_epoch(time.perf_counter() - started)

    def watch_compilation(self) -> None:
        """From now on the time of torch.compile counts apart, not as a step's."""
        self._compile_time = CompileTime()

    def begin_step(self) -> None:
        """The time until now is no step's."""
        self._step_started = time.perf_counter()

    def end_step(self, num_samples: int, loss: torch.Tensor, lr: float, **fields: Any) -> None:
        """Record an optimizer step. `num_samples` are this rank's.

        Tensors may lie on the device: to read them here would be to wait for the step.
        """
        self.step += 1
        self.position += num_samples * self.num_replicas
        self._num_samples += num_samples
        self._loss += loss * num_samples
        now = time.perf_counter()
        compile_time_s = self._compile_time.take() if self._compile_time else 0.0
        if compile_time_s:
            fields["compile_time_s"] = compile_time_s
        self.metrics.step(
            step=self.step,
            epoch=self.epoch,
            loss=loss,
            lr=lr,
            num_samples=num_samples,
            num_samples_global=num_samples * self.num_replicas,
            data_time_s=self._data_time_s,
            step_time_s=now - self._step_started,
            **fields,
        )
        self._step_started = now
        if compile_time_s:
            self.metrics.event("compile", self.step, seconds=compile_time_s)
            print_rank0(f"compiled in step {self.step} for {compile_time_s:.1f} s")
            self.begin_step()

    @property
    def _is_end_of_epoch(self) -> bool:
        return self.position >= self._samples_of_epoch

    def _report_epoch(self, seconds: float) -> None:
        loss = self._loss.item() / self._num_samples
        speed = f"loss {loss:.4f}, {self._num_samples / seconds:.0f} samples/s on this rank"
        if self._is_end_of_epoch:
            fields = {"epoch": self.epoch, "loss": loss, "num_samples": self._num_samples, "seconds": seconds}
            self.metrics.event("epoch_end", self.step, **fields)
            print_rank0(f"epoch {self.epoch}: {speed}")
        else:
            print_rank0(f"epoch {self.epoch}, its first {self.position:,} samples: {speed}")

    def evaluate_if_due(
        self,
        evaluate: Callable[[], tuple[float, float]],
        measures_of: Callable[[float], dict[str, float]] = lambda loss: {},
    ) -> None:
        """Record loss and accuracy on the test set after a whole epoch, and at the end where that is asked
        for. `measures_of` says the loss in other words."""
        is_asked_for = self._args.eval_every_epoch if self._is_end_of_epoch else self._args.eval_at_end
        if self._reason in STOPPED_EARLY or not is_asked_for:
            return
        started = time.perf_counter()
        loss, accuracy = evaluate()
        seconds = time.perf_counter() - started
        found = {"loss": loss, "accuracy": accuracy, **measures_of(loss)}
        self.metrics.event("eval", self.step, epoch=self.epoch, seconds=seconds, **found)
        also = "".join(f", {name.replace('_', ' ')} {value:.4g}" for name, value in [*found.items()][2:])
        caveat = self._dataset.caveat
        print_rank0(f"epoch {self.epoch}: test loss {loss:.4f}, accuracy {accuracy:.2%}{also}{caveat}")
        self.metrics.reached(self._args.target_accuracy, accuracy, self.step)

    def save(self, reason: str) -> None:
        """Write a checkpoint, or begin to where it is written while training goes on. All ranks call it."""
        started = time.perf_counter()
        self._wait_for_checkpoint()
        state = {"step": self.step, "epoch": self.epoch, "position": self.position}
        path = self._checkpoints.save(
            self._args.run_dir, {**state, "rng": self._gather(rng_state(self._device))}
        )
        if path is not None:
            seconds = time.perf_counter() - started
            self.metrics.event("checkpoint", self.step, path=str(path), seconds=seconds, reason=reason)
            how = ", written while training continues" if self._checkpoints.is_async else ""
            print_rank0(f"checkpoint at step {self.step}: {path} ({reason}{how})")

    def _wait_for_checkpoint(self) -> None:
        written = self._checkpoints.wait()
        if written is not None:
            path, seconds = str(written.path), written.seconds
            self.metrics.event(
                "checkpoint_written", self.step, checkpoint_step=written.step, path=path, write_time_s=seconds
            )
            print_rank0(f"checkpoint of step {written.step} was complete after {seconds:.1f} s")

    def finish(self, before_leaving: Callable[[], object] = lambda: None) -> NoReturn:
        """Save, and end this process when all ranks have come so far."""
        assert self._reason is not None
        is_early = self._reason in STOPPED_EARLY
        if is_early:
            self._reason, why = why_stopped(self.stop, self._gather)
            print_rank0(f"{why}: leaving at step {self.step}")
        self.save(self._reason if is_early else "end")
        self._wait_for_checkpoint()
        before_leaving()
        finish(self.metrics, self.step, self._reason)

    def _why_stop(self) -> str | None:
        # All ranks leave in the same step, or the others would wait for ever.
        if self._any_rank(self.stop.is_requested):
            return "signal"  # or max_seconds: `finish` asks all ranks
        if self._args.max_steps:
            return "max_steps" if self.step >= self._args.max_steps else None
        return "epochs" if self.epoch >= self._args.epochs else None
