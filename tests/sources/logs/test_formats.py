"""Logs of well-known training programs: the losses, steps and evaluations that are read, and a NaN in the
middle.

The templates follow lines that public repositories quote; the numbers are made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from coach.model.training.metrics import Counter, MetricEvent, Step
from coach.sources.logs.printed_metrics import PrintedMetrics
from tests.rules.examples import diagnose_whole
from tests.sources.fake_io import FakeIo

NUM_LOSSES = 12
_LOG = Path("/srv/train.log")


@dataclass(frozen=True)
class Format:
    """A program's log: lines before, one template per loss, lines in the middle and behind; then what is read
    of it."""

    line: str
    before: str = ""
    middle: str = ""
    after: str = ""
    by: int = 1
    counter: Counter = Counter.STEP
    num_evaluations: int = 0
    parts: float = 0.0
    """The other parts of the loss."""
    nan_line: int | None = None
    """The first line with a NaN, if it is not the seventh loss's."""


FORMATS = {
    "nanoGPT": Format(
        "iter {tens}: loss {loss:.4f}, time 512.30ms, mfu 3.11%\n",
        before="step 0: train loss 4.2874, val loss 4.2823\n",
        by=10,
        num_evaluations=0,
    ),
    "timm": Format(
        "Train: 0 [{tens:>4d}/600 ({n:>3d}%)]  Loss: {loss:>6.3f} ({loss:.2f})  Time: 0.320s,  400.32/s  "
        "(0.470s,  272.39/s)  LR: 1.000e-05  Data: 0.017 (0.047)\n",
        middle="Test: [   0/48]  Time: 1.001 (1.001)  Loss:   3.103 (3.103)  Acc@1:  12.500 ( 12.500)\n",
        by=10,
    ),
    "torch's imagenet example": Format(
        "Epoch: [0][{tens:>4d}/ 120]\tTime  0.310 ( 0.412)\tData  0.001 ( 0.102)\tLoss {loss:.4e} "
        "({loss:.4e})\tAcc@1   0.39 (  0.31)\tAcc@5   1.56 (  1.21)\n",
        after="Test: [ 0/20]\tTime  2.031 ( 2.031)\tLoss 7.0000e+00 (7.0000e+00)\tAcc@1   0.78 (  0.78)\n",
        by=10,
    ),
    "torch's MNIST example": Format(
        "Train Epoch: 1 [{tens}/60000 ({n}%)]\tLoss: {loss:.6f}\n",
        after="\nTest set: Average loss: 0.0512, Accuracy: 9800/10000 (98%)\n\n",
        counter=Counter.EPOCH,
        num_evaluations=1,
    ),
    "fairseq": Format(
        "2025-10-15 11:33:32 | INFO | train_inner | epoch 001:    {tens:>3d} / 1200 loss={loss:.3f}, "
        "ppl=200.1, wps=25123, num_updates={tens}, lr=1.25e-05, gnorm=4.1, wall=21\n",
        after="2025-10-15 11:40:59 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 2.001 "
        "| ppl 320.1 | num_updates 120 | best_loss 9.1\n",
        by=10,
        num_evaluations=1,
    ),
    "DeepSpeed": Format(
        "steps: {tens} loss: {loss:.4f} iter time (s): 1.321 samples/sec: 12.112\n",
        by=10,
    ),
    "Keras 3": Format(
        "\r\x1b[1m{n}/118\x1b[0m \x1b[32m━━━━━━\x1b[0m\x1b[37m━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 15ms/step - "
        "accuracy: 0.3000 - loss: {loss:.4f}",
        before="Epoch 1/2\n",
        after="\n",
        nan_line=2,
    ),
    "kohya": Format(
        "\rsteps:   0%|          | {tens}/1200 [00:04<1:21:54,  4.10s/it, avr_loss={loss:.3f}]",
        after="\n",
        by=10,
        nan_line=1,
    ),
    "NeMo": Format(
        "Training epoch 0, iteration {n}/23 | lr: 1.499e-07 | global_step: {n} | reduced_train_loss: "
        "{loss:.3f} | train_step_timing in s: 1.2\n",
    ),
    "Ultralytics": Format(
        "{n:>9}/12      2.32G {loss:>10.4g}      2.918      1.171         36        640: 100%|██████████| "
        "9/9 [00:03<00:00,  3.00it/s]\n",
        before="      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n",
        middle="                   all        128        929      0.641      0.537      0.605      0.446\n"
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n",
        by=9,
        parts=2.918 + 1.171,
        nan_line=10,
    ),
    # https://github.com/MIC-DKFZ/nnUNet/blob/master/nnunetv2/training/nnUNetTrainer/nnUNetTrainer.py
    "nnU-Net": Format(
        "2025-11-19 00:{n:02d}:35.259727: Epoch {n} \n"
        "2025-11-19 00:{n:02d}:35.269744: Current learning rate: 0.00935 \n"
        "2025-11-19 00:{n:02d}:51.854378: train_loss {loss:.4f} \n"
        "2025-11-19 00:{n:02d}:51.864611: val_loss -0.5249 \n"
        "2025-11-19 00:{n:02d}:51.870212: Pseudo dice [np.float32(0.8963), np.float32(0.6723)] \n"
        "2025-11-19 00:{n:02d}:51.881562: Epoch time: 16.61 s \n",
        counter=Counter.EPOCH,
        num_evaluations=12,
    ),
    # https://github.com/mosaicml/composer/blob/main/composer/loggers/console_logger.py
    "Composer": Format(
        "[batch={tens}/500]:\n\t Train time/batch: {n}\n\t Train loss/train/total: {loss:.4f}\n"
        "\t Train metrics/train/LanguageCrossEntropy: {loss:.4f}\n"
        "\t Train throughput/samples_per_sec: 2.7330\n",
        by=10,
    ),
    "fastai": Format(
        "{n:<10d}{loss:.6f}    0.753060    0.830000  00:12     \n",
        before="epoch     train_loss  valid_loss  accuracy  time    \n",
        counter=Counter.EPOCH,
        num_evaluations=12,
    ),
    "skorch": Format(
        "{n:>7}        \x1b[36m{loss:.4f}\x1b[0m       \x1b[32m0.4419\x1b[0m        0.7018  0.2719\n",
        before="  epoch    train_loss    valid_acc    valid_loss     dur\n"
        "-------  ------------  -----------  ------------  ------\n",
        counter=Counter.EPOCH,
        num_evaluations=12,
    ),
    "the Trainer in a notebook": Format(
        "{tens}\t{loss:.6f}\t1.701620\t71.009628\n",
        before=" [120/120 11:52, Epoch 3/3]\nStep\tTraining Loss\tValidation Loss\tWer\n",
        by=10,
        num_evaluations=12,
    ),
    "a frame of bars": Format(
        "| {n:>5d} | {loss:.4f} | 0.3 |\n",
        before="+-------+--------+-----+\n| Epoch | Loss   | Acc |\n+-------+--------+-----+\n",
        counter=Counter.EPOCH,
    ),
    "commas": Format(
        "{n},{tens},{loss:.5f},0.001\n",
        before="starting\nepoch,step,train_loss,lr\n",
        middle="saved a checkpoint\n",
        by=10,
    ),
    "spaces": Format("{tens} {loss:.4f} 0.31\n", before="step loss acc\n", by=10),
}


def _log_of(name: str, losses: Sequence[float]) -> str:
    form = FORMATS[name]
    lines = [form.line.format(n=n, tens=10 * n, loss=loss) for n, loss in enumerate(losses)]
    half = len(lines) // 2
    return form.before + "".join(lines[:half]) + form.middle + "".join(lines[half:]) + form.after


def _read(text: str) -> tuple[list[Step], list[MetricEvent]]:
    io = FakeIo(0.0)
    io.write(str(_LOG), text.encode())
    return PrintedMetrics(io, lambda: [_LOG], lambda path: 0).read()


HEALTHY = [3.0 - place / 8 for place in range(NUM_LOSSES)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_losses_and_steps_of_a_well_known_program_are_read(name: str) -> None:
    form = FORMATS[name]
    steps, events = _read(_log_of(name, HEALTHY))
    shown = [step for step in steps if step.loss is not None]
    wanted = [loss + form.parts for loss in HEALTHY]
    assert [step.loss for step in shown][-10:] == pytest.approx(wanted[-10:], abs=0.01)
    assert {step.step - before.step for before, step in itertools.pairwise(shown)} == {form.by}
    assert (shown[-1].counter is Counter.LINE) or shown[-1].counter is form.counter
    assert sum(event.event == "eval" for event in events) == form.num_evaluations
    assert not diagnose_whole(_log_of(name, HEALTHY)).findings


@pytest.mark.parametrize("name", FORMATS)
def test_a_nan_in_the_middle_of_a_well_known_program_s_log_is_found(name: str) -> None:
    half = NUM_LOSSES // 2
    text = _log_of(name, [*HEALTHY[:half], *[math.nan] * half])
    (finding,) = diagnose_whole(text).findings
    assert (finding.rule, finding.severity.word) == ("NUM001", "critical")
    lines = text.split("\n")
    wanted = FORMATS[name].nan_line or next(number for number, line in enumerate(lines, 1) if "nan" in line)
    assert finding.evidence[0].line == wanted


BARE = "".join(f"{10 * n} {loss:.4f} 0.{n}\n" for n, loss in enumerate(HEALTHY))


@pytest.mark.parametrize(
    "text",
    [
        BARE,  # no header
        "The loss is small\n" + BARE,
        "step loss\n" + BARE,  # a header of another width
        "loss acc time\n" + BARE,  # words, and none of them counts
        "step 5 loss of packets\n" + BARE,
        "epoch,loss\n" + "1.5.2, see the notes\n" * 4,
        "| loss | meaning |\n| CE | cross entropy |\n| MSE | 2 |\n",
        "step loss acc\n" + "nothing of a table\n" * 300 + BARE,  # its header is too far away
    ],
)
def test_numbers_without_names_are_never_guessed(text: str) -> None:
    steps, _ = _read(text)
    assert not [step for step in steps if step.loss is not None]
    assert not diagnose_whole(text.replace("0.4", "nan")).findings


def test_a_loss_of_each_epoch_does_not_give_way_to_those_of_several_data_sets() -> None:
    epochs = "".join(
        f"train_loss {loss}\n"
        + "".join(f"cifar{n} train : [loss = 0.{n}, top1 = 69.74%]\n" for n in (10, 11, 12))
        for loss in HEALTHY
    )
    steps, _ = _read(epochs)
    assert [step.loss for step in steps if step.loss is not None] == HEALTHY
