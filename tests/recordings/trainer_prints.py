"""Make the logs of `trainer/` again: the real output of transformers' Trainer for trainings that fail, each
as its file is named, and for some healthy ones.

`python -m tests.recordings.trainer_prints [NAME…]`; wants torch, transformers 4.57 and accelerate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "trainer"
PROGRAM = """
import sys

sys.modules["torchvision"] = None  # not needed, and seldom of the version that torch wants

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Classifier(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
        self.num_calls = 0

    def forward(self, x=None, labels=None):
        self.num_calls += 1
        logits = self.layers(x)
        loss = LOSS(logits, labels)
        if self.num_calls > BREAKS_AT:
            loss = (loss - loss.detach() - 1).sqrt()
        return {"loss": loss, "logits": logits}


torch.manual_seed(0)
x = torch.randn(512, 16)
samples = [{"x": row, "labels": row[:10].argmax()} for row in x]
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=16,
    logging_steps=8,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    **GIVEN,
)
Trainer(model=Classifier(PretrainedConfig()), args=arguments, train_dataset=samples).train()
"""

CROSS_ENTROPY, MARGIN = "nn.functional.cross_entropy", "nn.functional.multi_margin_loss"
NEVER = 10**9

TRAININGS: dict[str, tuple[str, int, dict[str, object]]] = {
    "nan-shown-as-zero": (CROSS_ENTROPY, 60, {"learning_rate": 5e-3}),
    "nan-shown-as-zero-without-norms": (CROSS_ENTROPY, 60, {"learning_rate": 5e-3, "max_grad_norm": 0}),
    "nan-in-the-summary": (
        CROSS_ENTROPY,
        60,
        {"learning_rate": 5e-3, "logging_steps": 1000, "logging_nan_inf_filter": False},
    ),
    "rate-far-too-high": (CROSS_ENTROPY, NEVER, {"learning_rate": 3.0}),
    "rate-of-zero": (CROSS_ENTROPY, NEVER, {"learning_rate": 0.0}),
    "healthy-learned": (CROSS_ENTROPY, NEVER, {"learning_rate": 5e-3}),
    "healthy-loss-of-zero": (
        MARGIN,
        NEVER,
        {"learning_rate": 1e-2, "max_grad_norm": 0, "num_train_epochs": 20},
    ),
}
"""Name → the loss, the call from which on it is broken, arguments of the Trainer."""


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TRAININGS:
        loss, breaks_at, more = TRAININGS[name]
        arguments = {"num_train_epochs": 6, **more}
        program = PROGRAM.replace("LOSS", loss, 1).replace("BREAKS_AT", str(breaks_at), 1)
        if "logging_steps" in more:
            program = program.replace("    logging_steps=8,\n", "")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", program.replace("GIVEN", repr(arguments), 1), folder],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        lines = [line for line in done.stdout.splitlines(True) if line.startswith("{")]
        (HERE / f"{name}.log").write_text("".join(lines))


if __name__ == "__main__":
    main()
