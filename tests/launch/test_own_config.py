"""Own programs whose values stand in a configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from coach.launch.own_config import MAX_BYTES, find_config
from coach.launch.own_program import own_command, own_recipe
from coach.model.launching.launch import OwnKind, OwnProgram

YAML = """\
# The values of the paper.
model: {name: gpt, layers: 2}
optimizer:
  lr: 1.0e-3   # Adam's
  betas: [0.9, 0.95]
data:
  batch_size: 32
  shuffle: true
precision: "bf16"
"""
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 3e-3}},
}
HYDRA = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg): ...
"""


def own(folder: Path, *words: str, kind: OwnKind = OwnKind.SCRIPT, **named: str) -> OwnProgram:
    (folder / "train.py").touch()
    return OwnProgram(kind, ("train.py", *words), str(folder), (), parameters=named)


def values_of(program: OwnProgram) -> dict[str, object]:
    return {name: parameter.default for name, parameter in own_recipe(program).parameters.items()}


@pytest.mark.parametrize("words", [("--config", "my.yaml"), ("--config=my.yaml",), ("my.yaml", "--amp")])
def test_a_value_of_the_file_is_a_parameter_and_its_change_goes_into_a_copy(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "my.yaml").write_text(YAML)
    program = own(tmp_path, *words)
    assert values_of(program).items() >= {"lr": 1e-3, "batch_size": 32, "precision": "bf16"}.items()
    command, copy = own_command(program, {**values_of(program), "lr": 1e-05, "batch_size": 8}, "/runs/x")
    assert [word for word in command if "my.yaml" in word] == [
        words[-2 if "--amp" in words else -1].replace("my.yaml", "/runs/x/my.yaml")
    ]
    assert copy is not None
    assert copy.text == YAML.replace("1.0e-3 ", "1.0e-05 ").replace("size: 32", "size: 8")
    assert yaml.safe_load(copy.text)["optimizer"]["lr"] == 1e-05
    assert (tmp_path / "my.yaml").read_text() == YAML


def test_an_unchanged_file_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(YAML)
    program = own(tmp_path, "--config", "my.yaml")
    assert own_command(program, values_of(program), "/runs/x") == (program.words, None)


def test_the_json_of_deepspeed_is_changed_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED, indent=2))
    program = own(tmp_path, "--deepspeed_config", "ds.json")
    values = values_of(program)
    assert (values["batch_size"], values["gradient_accumulation"], values["lr"]) == (16, 1, 3e-3)
    _, copy = own_command(program, {**values, "batch_size": 8, "gradient_accumulation": 2}, "/runs/x")
    assert copy is not None
    changed = json.loads(copy.text)
    assert (changed["train_micro_batch_size_per_gpu"], changed["gradient_accumulation_steps"]) == (8, 2)
    assert changed["optimizer"] == DEEPSPEED["optimizer"]


def test_hydra_s_own_file_is_changed_by_words_on_the_command_line(tmp_path: Path) -> None:
    program = own(tmp_path)
    (tmp_path / "train.py").write_text(HYDRA)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(YAML)
    assert values_of(program)["lr"] == 1e-3
    command, copy = own_command(program, {**values_of(program), "lr": 1e-4}, "/runs/x")
    assert (command, copy) == (("train.py", "optimizer.lr=0.0001"), None)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(YAML)
    program = own(tmp_path, "--config", "my.yaml", "--lr", "0.5")
    assert values_of(program)["lr"] == 0.5
    command, copy = own_command(program, {**values_of(program), "lr": 0.1}, "/runs/x")
    assert (command[-1], copy) == ("0.1", None)


def test_of_two_values_with_one_usual_name_none_is_guessed_unless_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("generator: {lr: 1.0e-3}\ncritic: {lr: 2.0e-3}\n")
    assert "lr" not in values_of(own(tmp_path, "--config", "my.yaml"))
    assert values_of(own(tmp_path, "--config", "my.yaml", lr="critic.lr"))["lr"] == 2e-3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"lr: 0.1\ndata: ./images\n", "my.yaml"),
        (b"lr: 0.1\ndata: ../images\n", "my.yaml"),
        (b"lr: 0.1\nlist: lists/train.txt\n", "my.yaml"),
        (b"lr: 0.1\napi_key: abcdefgh12345678\n", "my.yaml"),
        (b"lr: [0.1\n", "my.yaml"),
        (b"\xff\xfe\x00", "my.yaml"),
        (b"lr: 0.1\x1b[2J\n", "my.yaml"),
        (b"- lr: 0.1\n", "my.yaml"),
        (b"lr: 0.1\n" + b"#" * MAX_BYTES, "my.yaml"),
        (b"a: &a [x]\nb: &b [*a, *a]\n", "my.yaml"),
        (b"{" * 5000, "my.json"),
        (b"lr: 0.1\n", "my.txt"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_copied_or_read_is_left_alone(tmp_path: Path, text: bytes, name: str) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "train.txt").touch()
    (tmp_path / name).write_bytes(text)
    assert find_config(("train.py", "--config", name), tmp_path, None, None) is None


def test_of_two_files_none_is_chosen(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("lr: 0.1\n")
    assert find_config(("train.py", "a.yaml", "b.yaml"), tmp_path, None, None) is None
