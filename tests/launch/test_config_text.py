"""The values of config files: read with their places, and changed without touching anything else."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml

from coach.launch.config_text import Path, read_values, with_changes
from coach.model.launching.launch import Scalar

YAML = """# tuned by hand
optim: {name: adamw, lr: 1e-4}   # do not raise
train:
  batch_size: 32 # per GPU
  precision: '16-mixed'
  resume: ~
  amp: yes
shared: &base
  width: 64
model:
  <<: *base
  layers: [1, 2]
"""
JSON = '{\n\t"optim": {"lr": 0.1, "betas": [0.9, 0.95]},\n\t"batch_size" : 32,\n\t"amp": true\n}\n'
TOML = """title = "a # b"  # kept
[optim]
lr = 1e-3 # kept
betas = [0.9, 0.95]
[[data]]
batch_size = 8
[training]
batch_size = 32
steps.max = 10
"""


def values(text: str, suffix: str) -> dict[str, Scalar]:
    return {each.name: each.value for each in read_values(text, suffix)}


def test_values_are_read_from_yaml_except_those_of_an_anchor() -> None:
    assert values(YAML, ".yaml") == {
        "optim.name": "adamw",
        "optim.lr": 0.0001,
        "train.batch_size": 32,
        "train.precision": "16-mixed",
        "train.amp": True,
        "model.layers.0": 1,
        "model.layers.1": 2,
    }


def test_values_are_read_from_json_with_tabs() -> None:
    assert values(JSON, ".json") == {
        "optim.lr": 0.1,
        "optim.betas.0": 0.9,
        "optim.betas.1": 0.95,
        "batch_size": 32,
        "amp": True,
    }


def test_values_are_read_from_toml_tables() -> None:
    assert values(TOML, ".toml") == {
        "title": "a # b",
        "optim.lr": 0.001,
        "training.batch_size": 32,
        "training.steps.max": 10,
    }


@pytest.mark.parametrize(
    ("text", "suffix", "changes", "lines"),
    [
        (
            YAML,
            ".yaml",
            {("optim", "lr"): 5e-05, ("train", "precision"): "bf16", ("train", "amp"): False},
            [
                "optim: {name: adamw, lr: 5.0e-05}   # do not raise",
                "  precision: 'bf16-mixed'",
                "  amp: false",
            ],
        ),
        (JSON, ".json", {("batch_size",): 16}, ['\t"batch_size" : 16,']),
        (
            TOML,
            ".toml",
            {("optim", "lr"): 5e-05, ("title",): 'x"'},
            ['title = "x\\""  # kept', "lr = 5.0e-05 # kept"],
        ),
    ],
)
def test_a_change_leaves_every_other_character(
    text: str, suffix: str, changes: dict[Path, Scalar], lines: list[str]
) -> None:
    after = with_changes(text, suffix, changes)
    differing = [new for old, new in zip(text.split("\n"), after.split("\n"), strict=True) if old != new]
    assert differing == lines


def test_a_small_rate_is_a_number_to_every_reader() -> None:
    assert yaml.safe_load(with_changes("lr: 0.1\n", ".yml", {("lr",): 5e-05})) == {"lr": 5e-05}
    assert json.loads(with_changes('{"lr": 0.1}', ".json", {("lr",): 5e-05})) == {"lr": 5e-05}
    assert tomllib.loads(with_changes("lr = 0.1", ".toml", {("lr",): 5e-05})) == {"lr": 5e-05}


def test_a_word_that_yaml_reads_otherwise_gets_quotes() -> None:
    after = with_changes("mode: fast\nother: fast\n", ".yaml", {("mode",): "no", ("other",): "slow"})
    assert yaml.safe_load(after) == {"mode": "no", "other": "slow"}


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".toml"])
@pytest.mark.parametrize("text", ["[1, 2]", "{", "a: 1\n---\nb: 2\n", "&a [*a]", "[" * 5000])
def test_text_that_is_no_config_is_refused(text: str, suffix: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of three parsers
        read_values(text, suffix)


def test_a_missing_value_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match=r"optim\.rate cannot be changed"):
        with_changes("optim: {lr: 0.1}", ".yaml", {("optim", "rate"): 1.0})


def test_brackets_that_never_close_are_no_config_file() -> None:
    with pytest.raises(ValueError, match="more than 100 brackets within each other"):
        read_values("a: " + "[" * 3000, ".yaml")
    assert [each.value for each in read_values("a: " + "[" * 90 + "1" + "]" * 90, ".yaml")] == [1]
