"""The options that trainers share, each said once: type, default, limits, usual range, unit and help.

A trainer takes the usual ones, changes some of them, and adds its own:

    parser = TrainerParser(__doc__)
    parser.add_usual(without=["num_workers"])
    parser.change("epochs", default=15)
    parser.add_argument("--bucket_cap_mb", type=int, default=25, min=1, usual=(1, 200), unit="MB", help="...")

Or it names each one by `add_shared`, and ends with `add_places`.

coach reads the same lines as the parameters of the recipe: as text, without running them. So every value is
written out, and this module needs nothing but Python.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Dict, Sequence, Tuple


def boolean(text: str) -> bool:
    """The value of a flag that is true or false."""
    if text.lower() in ("true", "1", "yes", "on"):
        return True
    if text.lower() in ("false", "0", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, not {text!r}")


SHARED: Dict[str, Dict[str, Any]] = {
    "lr": {
        "type": float,
        "default": 0.01,
        "above": 0,
        "usual": (1e-4, 0.5),
        "help": "Learning rate of SGD with momentum 0.9, or of AdamW",
    },
    "batch_size": {
        "type": int,
        "default": 64,
        "min": 1,
        "usual": (8, 4096),
        "unit": "samples",
        "help": "Samples of one micro-batch",
    },
    "epochs": {
        "type": int,
        "default": 3,
        "min": 1,
        "usual": (1, 300),
        "unit": "epochs",
        "help": "Passes over the training data; ignored if max_steps is set",
    },
    "max_steps": {
        "type": int,
        "default": 0,
        "min": 0,
        "unit": "steps",
        "help": "Optimizer steps to train for, in as many epochs as they take; 0: train for `epochs`",
    },
    "max_seconds": {
        "type": int,
        "default": 0,
        "min": 0,
        "unit": "s",
        "help": "Time after which the run saves and ends, start-up of the process included; 0: no limit",
    },
    "num_workers": {
        "type": int,
        "default": 2,
        "min": 0,
        "usual": (0, 32),
        "unit": "processes",
        "help": "Processes that load data; 0: the trainer loads its data itself",
    },
    "seed": {
        "type": int,
        "default": 0,
        "min": 0,
        "max": 2147483647,
        "help": "Seed of initial parameters, order, augmentation and dropout",
    },
    "gradient_accumulation": {
        "type": int,
        "default": 1,
        "min": 1,
        "usual": (1, 64),
        "unit": "micro-batches",
        "help": "Micro-batches of one optimizer step",
    },
    "optimizer": {
        "default": "sgd",
        "choices": ("sgd", "adam", "adamw"),
        "help": "SGD with momentum 0.9, Adam, or AdamW",
    },
    "weight_decay": {
        "type": float,
        "default": 0.0,
        "min": 0,
        "usual": (0, 0.3),
        "help": "Share of each weight that the optimizer subtracts in each step, times lr",
    },
    "lr_schedule": {
        "default": "constant",
        "choices": ("constant", "linear", "cosine"),
        "help": "The learning rate after warm-up: constant, or falling to 0 linearly or along a cosine",
    },
    "max_grad_norm": {
        "type": float,
        "default": 0.0,
        "min": 0,
        "usual": (0, 100),
        "help": "Clip the gradients to this total norm; 0: never",
    },
    "warmup_steps": {
        "type": int,
        "default": 0,
        "min": 0,
        "unit": "steps",
        "help": "Steps in which the learning rate rises to lr",
    },
    "lr_scaling": {
        "default": "none",
        "choices": ("none", "linear", "sqrt"),
        "help": (
            "How lr grows with the samples of one update, from 64 on: not at all, in proportion, or by the "
            "square root"
        ),
    },
    "checkpoint_every": {
        "type": int,
        "default": 0,
        "min": 0,
        "unit": "steps",
        "help": "Steps between two checkpoints; 0: only at the end, and when a signal announces the end",
    },
    "model": {
        "default": "simplecnn",
        "choices": ("simplecnn", "resnet18", "resnet50", "vgg11", "vit_tiny", "vit_b_16", "gpt"),
        "help": "SimpleCNN, a model of torchvision made for small images, or a GPT on bytes of text",
    },
    "width": {
        "type": int,
        "default": 64,
        "min": 1,
        "usual": (8, 512),
        "unit": "channels",
        "help": "Channels of the first convolution; 64 is the workshop's model of 2,474,506 parameters",
    },
    "data": {
        "default": "auto",
        "help": "auto: CIFAR-10 if it is on disk, else generated images; cifar10, generated, digits; or "
        "the full path of a folder of images by class, of arrays (.npz), or of a Hugging Face set on disk",
    },
    "image_size": {
        "type": int,
        "default": 32,
        "min": 32,
        "max": 1024,
        "usual": (32, 224),
        "unit": "pixels",
        "help": "Side to which images are resized; above 64 the models of torchvision keep their own first "
        "layer",
    },
    "augment": {
        "default": "auto",
        "choices": ("auto", "none", "crop", "crop_flip", "strong"),
        "help": "Augmentation of training images: shifts (crop), mirrors too (crop_flip), one more random "
        "change (strong). auto: fits the data, no mirror for digits",
    },
    "num_train_samples": {
        "type": int,
        "default": 0,
        "min": 0,
        "unit": "samples",
        "help": "Train on the first samples only; 0: all",
    },
    "eval_every_epoch": {
        "type": bool,
        "default": True,
        "help": "Measure loss and accuracy on the test set after every epoch",
    },
    "eval_at_end": {
        "type": bool,
        "default": False,
        "help": "Measure loss and accuracy also where max_steps ends the run within an epoch",
    },
    "target_accuracy": {
        "type": float,
        "default": 0.0,
        "min": 0,
        "max": 1,
        "unit": "share of answers",
        "help": "Accuracy on the test set whose time the run records; 0: no target",
    },
    "cudnn_benchmark": {
        "type": bool,
        "default": False,
        "help": "Let cuDNN try its kernels for each new shape and keep the fastest; of no "
        "effect without a GPU",
    },
    "log_metrics": {
        "type": bool,
        "default": True,
        "help": "Write a record of every step; false only to measure what that costs",
    },
    "tensorboard": {
        "type": bool,
        "default": False,
        "help": "Write the records of steps and evaluations for TensorBoard as well, to tensorboard/ in "
        "the run; needs the package tensorboard",
    },
    "offload": {
        "default": "none",
        "choices": ("none", "cpu"),
        "help": (
            "Where the optimizer's state is kept and updated: on the device, or in the node's memory (of "
            "ZeRO: stages 1 to 3; FSDP keeps its shares of parameters and gradients there too)"
        ),
    },
    "async_checkpoint": {
        "type": bool,
        "default": False,
        "help": (
            "Write checkpoints while training continues: it waits until they are copied to the node's "
            "memory, not until they are on the disk"
        ),
    },
    "microbatches": {
        "type": int,
        "default": 4,
        "min": 1,
        "usual": (2, 256),
        "unit": "micro-batches",
        "help": (
            "Micro-batches of one optimizer step, in the pipeline at the same time; more of them leave the "
            "stages less idle"
        ),
    },
    "ranks": {
        "type": int,
        "default": 0,
        "min": 0,
        "usual": (0, 64),
        "unit": "ranks",
        "help": (
            "Ranks that the framework starts on this node; 0: one for each GPU, or 2 where the launch uses "
            "no GPU"
        ),
    },
    "layers": {
        "type": int,
        "default": 4,
        "min": 1,
        "usual": (1, 96),
        "unit": "blocks",
        "help": "Blocks of attention and MLP",
    },
    "heads": {
        "type": int,
        "default": 4,
        "min": 1,
        "usual": (1, 128),
        "unit": "heads",
        "help": "Heads of each attention; the embedding must be a multiple of them",
    },
    "embedding": {
        "type": int,
        "default": 128,
        "min": 1,
        "usual": (16, 16384),
        "unit": "numbers",
        "help": "Length of the vector of one position",
    },
    "sequence_length": {
        "type": int,
        "default": 256,
        "min": 1,
        "usual": (16, 131072),
        "unit": "tokens",
        "help": "Length of one sample, in tokens",
    },
    "text": {
        "default": "",
        "help": (
            "File or folder to learn from: plain text (.txt .md .rst .py, .jsonl with a field text), or "
            "tokens (.bin of uint16 as nanoGPT writes, of uint32 for a tokenizer of more than 65,536 tokens; "
            ".npy); empty: the sources of Python's standard library"
        ),
    },
    "tokenizer": {
        "default": "",
        "help": (
            "A tokenizer.json, or the folder with it or with GPT-2's vocab.json and merges.txt; empty: byte "
            "pairs are learned from the text"
        ),
    },
    "vocabulary": {
        "type": int,
        "default": 1024,
        "min": 257,
        "max": 65536,
        "usual": (512, 65536),
        "unit": "tokens",
        "help": (
            "Number of different tokens: learned from the text as byte pairs, or that of the tokens that "
            "you bring; a named tokenizer has its own"
        ),
    },
    "dropout": {
        "type": float,
        "default": 0.0,
        "min": 0,
        "max": 0.9,
        "usual": (0, 0.5),
        "unit": "share",
        "help": "Share of activations that are set to 0 at random; useful where the text is seen many times",
    },
    "precision": {
        "default": "auto",
        "choices": ("auto", "fp32", "bf16"),
        "help": "Number format of the products; auto: bf16 on a GPU that computes in it, else fp32",
    },
    "compile": {
        "type": bool,
        "default": False,
        "help": "Compile the model, which takes about a minute; false starts at once",
    },
    "recompute": {
        "type": bool,
        "default": False,
        "help": "Keep only the inputs of each block and compute the rest again in the backward pass: less "
        "memory",
    },
    "sample_tokens": {
        "type": int,
        "default": 48,
        "min": 0,
        "usual": (0, 1000),
        "unit": "tokens",
        "help": "Tokens that the model writes at the end, the same ones for the same seed; 0: none",
    },
}
"""Name → its keywords: those of argparse, and those for a launch alone (`FOR_A_LAUNCH`)."""

USUAL: Tuple[str, ...] = (
    "lr",
    "batch_size",
    "epochs",
    "max_steps",
    "max_seconds",
    "num_workers",
    "seed",
    "gradient_accumulation",
    "optimizer",
    "weight_decay",
    "warmup_steps",
    "lr_schedule",
    "lr_scaling",
    "max_grad_norm",
    "checkpoint_every",
    "model",
    "width",
    "data",
    "image_size",
    "augment",
    "num_train_samples",
    "eval_every_epoch",
    "eval_at_end",
    "target_accuracy",
    "cudnn_benchmark",
    "log_metrics",
    "tensorboard",
)
"""The options of the baseline, and of every trainer that names no others."""

CHANGES: Dict[str, Dict[str, Dict[str, Any]]] = {
    "cifar10_alone": {
        "model": {
            "choices": ("simplecnn", "resnet18"),
            "help": "SimpleCNN, or ResNet-18 with width 64, both on images",
        },
        "data": {"choices": ("auto",), "help": "CIFAR-10 if it is on disk, else generated images"},
        "image_size": {"choices": (32,), "help": "That of CIFAR-10"},
        "augment": {"choices": ("auto",), "help": "The shifts and mirrors that this recipe makes"},
    },
    "gpt_in_parts": {
        "batch_size": {"usual": (1, 512), "help": "Sequences of one micro-batch"},
        "epochs": {"default": 1},
        "num_workers": {
            "default": 0,
            "help": "Processes that load data for each rank; 0: the rank does it itself, which for text in "
            "memory is"
            " the fastest",
        },
        "seed": {
            "help": "Seed of initial parameters and order; the same on every rank, as they share one model",
        },
        "model": {
            "default": "gpt",
            "choices": ("gpt",),
            "help": "A GPT of 4 blocks with 4 heads each, on bytes of text; the split is made for its layers",
        },
        "data": {"choices": ("auto",), "help": "The text that is on every machine"},
        "width": {
            "min": 2,
            "usual": (8, 1024),
            "unit": "half the embedding",
            "help": (
                "Half of the embedding, which 4 heads share; 64 is the workshop's model of 875,264 parameters"
            ),
        },
        "num_train_samples": {
            "default": 2560,
            "help": "Train on the first sequences only, of 128 bytes each; 0: all 28,124",
        },
    },
    "language": {
        "lr": {"default": 0.003, "usual": (1e-5, 0.01), "help": "Learning rate of AdamW, after warm-up"},
        "batch_size": {
            "default": 8,
            "usual": (1, 512),
            "unit": "sequences",
            "help": "Sequences of one micro-batch",
        },
        "epochs": {"default": 1},
        "max_steps": {"default": 600},
        "num_workers": {
            "default": 0,
            "help": "Processes that load data for each rank; 0: the rank itself, which is fast",
        },
        "seed": {"help": "Seed of initial parameters, order, dropout and the sample"},
        "optimizer": {"default": "adamw", "choices": ("adamw", "adam"), "help": "AdamW or Adam"},
        "weight_decay": {
            "default": 0.1,
            "help": "Share of each weight that a step subtracts, times lr; matrices only",
        },
        "sequence_length": {"default": 128},
        "warmup_steps": {"default": 50},
        "lr_schedule": {"default": "cosine"},
        "max_grad_norm": {"default": 1.0},
        "num_train_samples": {"unit": "sequences"},
        "eval_every_epoch": {"help": "Measure the loss on the held-out text after every epoch"},
        "eval_at_end": {"default": True},
        "target_accuracy": {"unit": "share of tokens"},
        "data_dir": {"help": "not used: --text names the text"},
        "cache_dir": {"help": "the directory of tokenized texts"},
    },
    "bench": {
        "max_steps": {
            "default": 20,
            "min": 1,
            "usual": (5, 1000),
            "unit": "rounds",
            "help": "Timed rounds of every row, after two that are not timed",
        },
        "max_seconds": {"help": "Time after which no further row starts; 0: no limit"},
        "seed": {"help": "Seed of the random numbers that are computed with"},
        "run_dir": {"help": "the directory of the results"},
        "data_dir": {"help": "not used: random numbers do"},
        "cache_dir": {"help": "not used"},
        "resume_from": {"help": "not used: a measurement always starts from the beginning"},
    },
}
"""Changes that several trainers make alike: name → shared option → its changed keywords. `cifar10_alone`:
they read the files of CIFAR-10 in a way of their own. `gpt_in_parts`: ranks share one GPT. `language`: tokens
of text. `bench`: rows of a table are measured, and nothing is trained."""

FOR_A_LAUNCH = ("above", "min", "max", "usual", "unit")
"""`above`, `min` and `max` are limits that coach refuses to leave; outside of the `usual` range it warns."""


class TrainerParser(argparse.ArgumentParser):
    """An argument parser whose options also say their limits, their usual range and their unit."""

    def __init__(self, documentation: str) -> None:
        super().__init__(description=documentation.splitlines()[0], allow_abbrev=False)

    def add_argument(self, *names: str, **keywords: Any) -> argparse.Action:
        return super().add_argument(*names, **_for_argparse(keywords))

    def add_shared(self, *names: str) -> None:
        """Take these of the shared options."""
        for name in names:
            self.add_argument(f"--{name}", **SHARED[name])

    def add_usual(self, without: Sequence[str] = ()) -> None:
        """Take the usual options but these, and those of `add_places`."""
        self.add_shared(*(name for name in USUAL if name not in without))
        self.add_places()

    def change(self, name: str, **keywords: Any) -> None:
        """Change an option that this trainer has."""
        option = self._option_string_actions[f"--{name}"]
        for keyword, value in _for_argparse(keywords).items():
            setattr(option, keyword, value)

    def change_shared(self, name: str) -> None:
        """Make the changes of this name."""
        for option, keywords in CHANGES[name].items():
            self.change(option, **keywords)

    def add_places(self) -> None:
        """Take the options that every launch passes on, whatever the recipe: the places to read and write,
        and the device."""
        self.add_argument(
            "--run_dir", default=run_dir_by_hand(), help="the directory of metrics and checkpoints"
        )
        self.add_argument("--data_dir", help="folder with cifar-10-batches-py")
        self.add_argument("--cache_dir", help="the directory of generated data")
        self.add_argument(
            "--gpus_per_node", type=int, help="GPUs allotted; 0: train on the CPU; unset: see environment"
        )
        self.add_argument("--resume_from", help="checkpoint of another run to start from")


def _for_argparse(keywords: Dict[str, Any]) -> Dict[str, Any]:
    known = {keyword: value for keyword, value in keywords.items() if keyword not in FOR_A_LAUNCH}
    if known.get("type") is bool:
        known["type"] = boolean  # bool("false") is True
    return known


def run_dir_by_hand() -> str:
    """Where a trainer that was started without --run_dir writes: a new folder, the same one for all ranks of
    one torchrun."""
    started = os.environ.get("TORCHELASTIC_RUN_ID", "")[:8]
    if started == "none":  # torchrun without an id of its own, which is the parent of its ranks
        started = _identity_of(os.getppid())
    label = started or time.strftime("%Y%m%d-%H%M%S")
    return os.path.join("runs", f"{os.path.basename(sys.argv[0]).partition('.')[0]}-{label}")


def _identity_of(pid: int) -> str:
    """A process by its number and the time of its start in clock ticks; empty where the system does not
    tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return f"{pid}-{file.read().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""
