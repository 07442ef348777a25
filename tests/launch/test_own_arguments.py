"""A person's own command line: which parameters it has, and how another value gets into it."""

from __future__ import annotations

import pytest

from coach.launch.own_arguments import read_options, with_values
from coach.model.launching.launch import Scalar

SOURCE = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", "-l", type=float, default=1, help="Step size,\\n of Adam.")
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--arch", default="resnet18", choices=["resnet18", "vit"])
parser.add_argument("--amp", action="store_true")
parser.add_argument("--layers", nargs="+", type=int, default=[1, 2])
parser.add_argument("--data", type=open, default="x")
parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
parser.add_argument("config")
"""


def names(words: str, source: str | None = None) -> dict[str, Scalar]:
    return {each.parameter.name: each.parameter.default for each in read_options(words.split(), source)}


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("train.py --lr 1e-4 --batch-size=32", {"lr": 1e-4, "batch_size": 32}),
        ("train.py --learning_rate 1", {"lr": 1.0}),
        ("train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2",
         {"batch_size": 4, "gradient_accumulation": 2}),
        ("train.py trainer.max_epochs=3 data.num_workers=2", {"trainer_max_epochs": 3, "num_workers": 2}),
        ("train.py --amp --name run-1", {"amp": True, "name": "run-1"}),
        ("train.py --sizes 1 2 3 --lr -0.5", {"lr": -0.5}),
        ("train.py --precision 16-mixed", {"precision": "fp16"}),
        ("train.py --api-key sk-123456 --lr 1.0", {"lr": 1.0}),
        ("torchrun --nproc_per_node 4 train.py --lr 0.1", {"lr": 0.1}),
        ("python -m pkg.train --lr 0.1", {"lr": 0.1}),
        ("python -m torch.distributed.run --nnodes 2 train.py --lr 0.1", {"lr": 0.1}),
        ("./train --verbose true", {"verbose": True}),
        ("train.py --lr 0.1 --epochs 3 --lr 0.2", {"lr": 0.2, "epochs": 3}),
        ("train.py", {}),
    ],
)  # fmt: skip
def test_options_of_a_command_line_get_the_names_that_the_rules_use(
    words: str, known: dict[str, Scalar]
) -> None:
    found = names(words)
    assert {_plain(name): value for name, value in found.items()} == known


def _plain(name: str) -> str:
    return name.replace(".", "_")


def test_argparse_defaults_are_known_too_and_the_command_line_wins() -> None:
    assert names("train.py --arch vit", SOURCE) == {
        "arch": "vit",
        "lr": 1.0,
        "batch_size": 8,
        "amp": False,
    }
    by_name = {each.parameter.name: each for each in read_options(["train.py"], SOURCE)}
    assert by_name["lr"].parameter.help == "Step size, of Adam. (--learning-rate)"
    assert by_name["arch"].parameter.choices == ("resnet18", "vit")


def test_options_of_click_are_known_too() -> None:
    source = """
@click.command()
@click.option("--learning-rate", "-l", type=float, default=0.1, help="Step size.")
@click.option("--amp", is_flag=True)
@click.option("--cache/--no-cache", default=True)
@click.option("--layers", multiple=True, type=int, default=1)
def main(learning_rate, amp, cache, layers): ...
"""
    assert names("train.py", source) == {"lr": 0.1, "amp": False}
    options = read_options(["train.py"], source)
    changed = with_values(["train.py"], options, {"lr": 0.5, "amp": True})
    assert changed == ("train.py", "--learning-rate", "0.5", "--amp")


def test_a_text_that_is_no_python_declares_nothing() -> None:
    assert names("train.py --lr 1.0", "def (:") == {"lr": 1.0}


@pytest.mark.parametrize(
    ("words", "values", "expected"),
    [
        ("train.py --lr 1e-4", {}, "train.py --lr 1e-4"),
        ("train.py --lr 1e-4", {"lr": 0.0001}, "train.py --lr 1e-4"),
        ("train.py --lr 1e-4 -v", {"lr": 0.5}, "train.py --lr 0.5 -v"),
        ("train.py --batch-size=32", {"batch_size": 16}, "train.py --batch-size=16"),
        ("train.py ++data.batch_size=32", {"batch_size": 16}, "train.py ++data.batch_size=16"),
        ("train.py --precision bf16-mixed", {"precision": "fp16"}, "train.py --precision 16-mixed"),
        ("train.py --precision 16-mixed", {"precision": "fp32"}, "train.py --precision 32-true"),
        ("train.py --precision 32-true", {"precision": "bf16"}, "train.py --precision bf16-mixed"),
        ("train.py --precision 32", {"precision": "fp16"}, "train.py --precision 16"),
        ("train.py --mixed_precision no", {"precision": "bf16"}, "train.py --mixed_precision bf16"),
        ("train.py --lr 0.1 --lr 0.2", {"lr": 0.5}, "train.py --lr 0.1 --lr 0.5"),
        ("train.py --pin True", {"pin": False}, "train.py --pin False"),
        ("train.py --amp --lr 1.0", {"amp": False}, "train.py --lr 1.0"),
    ],
)
def test_only_a_changed_value_is_written_again(words: str, values: dict[str, Scalar], expected: str) -> None:
    assert with_values(words.split(), read_options(words.split(), None), values) == tuple(expected.split())


def test_a_declared_option_takes_one_value_and_not_the_word_after_it() -> None:
    words = ["train.py", "--amp", "a.toml", "--learning-rate", "0.1", "b.toml"]
    changed = with_values(words, read_options(words, SOURCE), {"lr": 0.5})
    assert changed == ("train.py", "--amp", "a.toml", "--learning-rate", "0.5", "b.toml")
    assert "lr" not in names("train.py --lr 0.1 b.toml")


def test_an_option_that_only_the_program_declares_is_added_behind() -> None:
    options = read_options(["train.py", "vit.toml"], SOURCE)
    values: dict[str, Scalar] = {"lr": 0.5, "amp": True, "batch_size": 8}
    expected = ("train.py", "vit.toml", "--learning-rate", "0.5", "--amp")
    assert with_values(["train.py", "vit.toml"], options, values) == expected
