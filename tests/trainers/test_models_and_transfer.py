"""Models by their names, for other classes and sizes than those of CIFAR-10; and weights of an earlier
training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records

pytestmark = pytest.mark.train

BUILT = """
import json, sys
import torch
from common.images import ImagesInfo
from common.models import build_model, count_parameters, parts_of
from common.distributed import TrainerError

data = ImagesInfo("x", "y", False, num_classes=7, image_size=32)
said = {}
for name in ("simplecnn", "resnet18", "resnet50", "vgg11", "vit_tiny", "vit_b_16"):
    with torch.device("meta"):
        model = build_model(name, 64, data)
        logits = model(torch.empty(2, 3, 32, 32))
    assert logits.shape == (2, 7), name
    in_parts = sum(count_parameters(part) for part in parts_of(model))
    assert in_parts > 0.9 * count_parameters(model), (name, in_parts)
    said[name] = [count_parameters(model), getattr(model, "said", "").split(";")[0]]
with torch.device("meta"):
    large = build_model("resnet18", 64, ImagesInfo("x", "y", False, 1000, 224))
said["224"] = [count_parameters(large), large.said.split(";")[0]]
for name, width, size in (("resnet50", 16, 32), ("vit_tiny", 64, 100), ("gpt", 65, 32)):
    try:
        build_model(name, width, ImagesInfo("x", "y", False, 7, size))
    except TrainerError as error:
        said[f"{name} {width} {size}"] = str(error)

# One step of the smallest of them changes what it answers.
torch.manual_seed(0)
model = build_model("vit_tiny", 64, data)
images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 7
optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())
assert losses[0] > losses[1] > losses[2], losses
print("said", json.dumps(said))
"""

TRANSFER = """
import json, sys
from pathlib import Path
import torch
from common.distributed import TrainerError
from common.images import ImagesInfo
from common.models import SimpleCNN, build_model
from common.pretrained import begin_from, freeze_body, prepare, trained

folder, said = Path(sys.argv[1]), {}

def saved(name, table):
    torch.save(table, folder / name)
    return str(folder / name)

def refused(model, path):
    try:
        begin_from(model, path)
    except TrainerError as error:
        return str(error)
    raise AssertionError(f"{path} was accepted")

old = SimpleCNN(8, 10)
state = old.state_dict()
plain = saved("plain.pt", state)
new = SimpleCNN(8, 3)
said["other classes"] = begin_from(new, plain)
assert new.features[0][0].weight.equal(old.features[0][0].weight)
assert new.classifier[1].weight.equal(old.classifier[1].weight) and new.classifier[4].out_features == 3
same = SimpleCNN(8, 10)
wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
said["same classes"] = begin_from(same, saved("wrapped.pt", {"model": wrapped}))
assert same.classifier[4].weight.equal(old.classifier[4].weight)
said["from scratch"] = begin_from(new, "")

said["frozen"] = freeze_body(new)
body, count = new.features[0][1].running_mean.clone(), len(trained(new))
new.train()
loss = new(torch.randn(8, 3, 32, 32)).sum()
loss.backward()
assert new.features[0][1].running_mean.equal(body) and not new.features[0][1].training and count == 2
assert new.features[0][0].weight.grad is None and new.classifier[4].weight.grad is not None

said["width"] = refused(SimpleCNN(16), plain)
said["size"] = refused(SimpleCNN(8, image_size=64), plain)
said["model"] = refused(build_model("resnet18", 64), plain)
said["a key more"] = refused(SimpleCNN(8), saved("more.pt", {**state, "bo\\x1b[31mdy": torch.zeros(1)}))
fewer = {name: tensor for name, tensor in state.items() if name != "features.1.0.weight"}
said["a key less"] = refused(SimpleCNN(8), saved("less.pt", fewer))
said["no table"] = refused(SimpleCNN(8), saved("list.pt", [1, 2]))
(folder / "torn.pt").write_bytes(b"torn")
said["torn"] = refused(SimpleCNN(8), str(folder / "torn.pt"))
said["no file"] = refused(SimpleCNN(8), str(folder / "nothing.pt"))
said["no checkpoint"] = refused(SimpleCNN(8), str(folder))
try:
    prepare(SimpleCNN(8), "", True)
except TrainerError as error:
    said["frozen from scratch"] = str(error)
print("said", json.dumps(said))
"""

EXPECTED = {
    "other classes": "the last layer classifier.4 starts from random values, because the number of classes "
    "differs",
    "same classes": "25 tensors of {folder}/wrapped.pt, the last layer too",
    "from scratch": "nothing: the model begins from scratch",
    "frozen": "the last layer classifier.4 alone is trained, 195 parameters",
    "width": "features.0.0.weight has shape (8, 3, 3, 3), this model needs (16, 3, 3, 3): another width",
    "size": "classifier.1.weight has shape (64, 512), this model needs (64, 2048)",
    "model": "no conv1.weight in it: it is of another model",
    "a key more": r"bo\x1b[31mdy is of another model (1 names do not fit)",
    "a key less": "no features.1.0.weight in it: it is of another model",
    "no table": "no state_dict: expected a table of names and tensors",
    "torn": "torn.pt: not a file of weights",
    "no file": "file_not_found: pretrained {folder}/nothing.pt: no such file",
    "no checkpoint": "file_not_found: pretrained {folder}: a folder without checkpoints",
    "frozen from scratch": "freeze=true trains only the last layer: pretrained must name",
}


def said_by(trainer: Trainer, code: str, *arguments: object) -> dict[str, Any]:
    done = trainer.python(code, *arguments)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("said "))
    found: dict[str, Any] = json.loads(line.removeprefix("said "))
    return found


def test_every_model_follows_the_classes_and_says_how_it_differs(trainer: Trainer) -> None:
    said = said_by(trainer, BUILT)
    assert said.pop("resnet50 16 32").endswith("leave width at 64, not 16")
    assert said.pop("gpt 65 32").endswith("2 x width, so width must be even, not 65")
    assert said.pop("vit_tiny 64 100").endswith("image_size 100 is not a multiple of 16")
    assert {name: number for name, (number, _) in said.items()} == {
        "simplecnn": 2_472_967,
        "resnet18": 11_172_423,
        "resnet50": 23_514_695,
        "vgg11": 9_749_383,
        "vit_tiny": 2_692_999,
        "vit_b_16": 85_149_703,
        "224": 11_689_512,
    }
    assert said["simplecnn"][1] == ""
    assert said["224"][1] == "as torchvision has it"
    assert said["resnet50"][1].startswith("torchvision's, but a 3x3 convolution first instead of 7x7")
    assert said["vit_b_16"][1] == "torchvision's, but patches of 4x4 instead of 16x16"


def test_weights_of_an_earlier_training_begin_another_or_are_refused(
    trainer: Trainer, tmp_path: Path
) -> None:
    said = said_by(trainer, TRANSFER, tmp_path)
    assert set(said) == set(EXPECTED)
    for name, expected in EXPECTED.items():
        assert expected.format(folder=tmp_path) in said[name], (name, said[name])
        assert said[name].isprintable(), (name, said[name])


def test_a_run_begins_from_another_run_and_trains_its_last_layer(trainer: Trainer, tmp_path: Path) -> None:
    first = trainer.run("baseline.py", tmp_path / "first", max_steps=2)
    assert first.returncode == 0, first.stderr
    flags = {"data": "digits", "pretrained": tmp_path / "first", "freeze": "true", "max_steps": 2}
    done = trainer.run("transfer.py", tmp_path / "second", **flags)
    assert done.returncode == 0, done.stderr
    assert "pretrained: 25 tensors of " in done.stdout
    assert "frozen: the last layer classifier.4 alone is trained, 650 parameters" in done.stdout
    again = trainer.run("transfer.py", tmp_path / "second", **{**flags, "max_steps": 4})
    assert "resumed at step 2" in again.stdout, again.stderr


def test_the_start_event_says_how_a_model_differs(trainer: Trainer, tmp_path: Path) -> None:
    flags = {"model": "vit_tiny", "width": 64, "max_steps": 1, "batch_size": 2, "num_train_samples": 8}
    done = trainer.run("baseline.py", tmp_path, **flags)
    assert done.returncode == 0, done.stderr
    said = event_in(read_records(tmp_path), "start")["model_differs"]
    assert said.startswith("torchvision's VisionTransformer with patches of 4x4, 6 layers, 3 heads")
    assert f"model: {said}" in done.stdout
