"""A user's own data: the accepted forms, and the refusals with their lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records

pytestmark = pytest.mark.train

HEAD = """
import argparse, json, os, sys
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from common.data import load_data
from common.distributed import TrainerError
from common.images import transforms

folder = Path(sys.argv[1])
random = np.random.default_rng(0)

def load(data, image_size=32, augment="auto", **said):
    args = argparse.Namespace(
        model="simplecnn", data=str(data), image_size=image_size, augment=augment, data_dir=None,
        cache_dir=str(folder / "cache"), num_train_samples=0, **said,
    )
    return load_data(args)

def refused(data, **said):
    try:
        load(data, **said)
    except TrainerError as error:
        return str(error)
    raise AssertionError(f"{data} was accepted")

def pictures(root, classes, number=10, size=(40, 48)):
    for tone, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for each in range(number):
            pixels = random.integers(0, 80, (*size, 3)) + 150 * tone // max(1, len(classes) - 1)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{each}.png")
    return root

def shape_of(found):
    train, test, info = found
    image, label = train[0]
    assert image.dtype == torch.float32 and isinstance(label, int)
    assert test[0][0].equal(test[0][0]), "a test image is never augmented"
    return [len(train), len(test), list(image.shape), info.num_classes, info.name]
"""

READ = (
    HEAD
    + """
said = {"digits": shape_of(load("digits"))}
said["folder"] = shape_of(load(pictures(folder / "pets", ["cat", "dog", "eel"])))
(folder / "pets" / ".ipynb_checkpoints").mkdir()
said["large"] = shape_of(load(folder / "pets", image_size=64))
pictures(folder / "split" / "train", ["a", "b"], 6)
pictures(folder / "split" / "val", ["a", "b"], 3)
said["split"] = shape_of(load(folder / "split"))

(folder / "split" / "test").mkdir()  # as one is published: images without classes
Image.new("RGB", (40, 40)).save(folder / "split" / "test" / "1.png")
said["test without classes"] = shape_of(load(folder / "split"))
said["a class called train"] = shape_of(load(pictures(folder / "vehicles", ["bus", "car", "train"])))

grey = random.integers(0, 256, (50, 28, 28), dtype=np.uint8)
labels = np.arange(50) % 5
np.savez(folder / "keras.npz", x_train=grey, y_train=labels, x_test=grey[:9], y_test=labels[:9])
said["keras"] = shape_of(load(folder / "keras.npz"))
np.savez(folder / "medical.npz", train_images=random.random((50, 3, 20, 20)), train_labels=labels[:, None])
said["first colours"] = shape_of(load(folder / "medical.npz"))
(folder / "loose").mkdir()
np.save(folder / "loose" / "images.npy", random.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8))
np.save(folder / "loose" / "labels.npy", labels.astype(np.float32))
said["loose"] = shape_of(load(folder / "loose"))
print("said", json.dumps(said))

# A part that is kept for the test is the same for every rank, shares no image, and has every class.
train, test, _ = load(folder / "loose")
again = load(folder / "loose")[1]
assert test.indices == again.indices and not set(train.indices) & set(test.indices)
assert len(set(labels[test.indices])) == 5

# Digits are shifted and never mirrored: whatever they go through, they keep their left side.
names = [type(each).__name__ for each in load("digits")[0].transform.transforms]
assert "RandomCrop" in names and "RandomHorizontalFlip" not in names, names
names = [type(each).__name__ for each in load(folder / "loose")[0].dataset.transform.transforms]
assert "RandomHorizontalFlip" in names, names
for augment in ("none", "crop", "crop_flip", "strong"):
    image, _ = load("digits", augment=augment)[0][3]
    assert image.shape == (3, 32, 32) and torch.isfinite(image).all()

# Its own mean and spread, whatever the values were.
plain = load("digits", augment="none")[0]
images = torch.stack([plain[index][0] for index in range(0, 1400, 7)])
assert abs(images.mean()) < 0.1 and abs(images.std() - 1) < 0.1, (images.mean(), images.std())
"""
)

REFUSED = (
    HEAD
    + """
said = {}
images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
def arrays(name, **of):
    np.savez(folder / "a.npz", **of)
    said[name] = refused(folder / "a.npz")

said["nothing there"] = refused(folder / "nowhere")
said["a text"] = refused(Path(sys.argv[0]).parent / "x")
(folder / "empty").mkdir()
said["no classes"] = refused(folder / "empty")
pictures(folder / "one", ["cat"])
said["one class"] = refused(folder / "one")
pictures(folder / "hollow", ["cat", "dog"])
(folder / "hollow" / "em\\x1b[31mpty").mkdir()
said["class without images"] = refused(folder / "hollow")
pictures(folder / "odd" / "train", ["cat", "dog"])
pictures(folder / "odd" / "test", ["cat", "d\\x1b]0;og"])
said["other classes"] = refused(folder / "odd")
pictures(folder / "few", ["cat", "dog"], number=3)
said["too few"] = refused(folder / "few")
pictures(folder / "torn", ["cat", "dog"])
(folder / "torn" / "cat" / "3.png").write_bytes(b"no image")
said["torn"] = refused(folder / "torn")
file = folder / "torn" / "cat" / "3.png"
file.write_bytes(b"P6 k4 40 255 ")
said["broken"] = refused(folder / "torn")
wide = random.integers(0, 60000, (40, 40)).astype(np.uint16)
Image.fromarray(wide).save(file)
said["16 bits"] = refused(folder / "torn")
(folder / "flat" / "train").mkdir(parents=True)
Image.new("RGB", (40, 40)).save(folder / "flat" / "train" / "1.png")
said["train without classes"] = refused(folder / "flat")
(folder / "torn.npz").write_bytes(b"PK no archive")
said["torn arrays"] = refused(folder / "torn.npz")
arrays("no names", a=images, b=labels)
arrays("lengths", images=images, labels=labels[:19])
arrays("flat", images=images.reshape(20, 64), labels=labels)
arrays("five colours", images=np.zeros((20, 8, 8, 5), np.uint8), labels=labels)
arrays("objects", images=np.array([{}] * 20), labels=labels)
arrays("text", images=np.full((20, 8, 8), "x"), labels=labels)
arrays("too bright", images=np.full((20, 8, 8), 300.0), labels=labels)
arrays("no number", images=np.full((20, 8, 8), np.nan), labels=labels)
arrays("negative", images=images, labels=labels - 1)
arrays("half labels", images=images, labels=labels + 0.5)
arrays("one-hot", images=images, labels=np.eye(2)[labels])
arrays("text labels", images=images, labels=np.full(20, "cat"))
arrays("sparse labels", images=images, labels=labels * 5000)
arrays("test beyond", images=images, labels=labels, test_images=images, test_labels=labels + 1)
arrays("none", images=images[:0], labels=labels[:0])
print("said", json.dumps(said))
"""
)

EXPECTED = {
    "nothing there": "file_not_found: data {folder}/nowhere, seen from",
    "a text": "expected auto, cifar10, generated, digits, an .npz file or a folder",
    "no classes": "{folder}/empty: not a folder of images by class: it has no folders, one for each class",
    "one class": "{folder}/one: all training images are of one class",
    "class without images": r"Found no valid file for the classes em\x1b[31mpty",
    "other classes": r"train and test have other classes: d\x1b]0;og, dog is in only one of them",
    "too few": "no test set, and no class has the 5 images",
    "torn": "torn/cat/3.png: cannot be read as an image",
    "broken": "torn/cat/3.png: cannot be read as an image (invalid literal for int()",
    "16 bits": "torn/cat/3.png: its numbers are wider than 8 bits (mode I;16 of PIL)",
    "train without classes": "{folder}/flat/train: not a folder of images by class",
    "torn arrays": "torn.npz: cannot be read as arrays of numbers",
    "no names": "no images and labels in it (it has a, b)",
    "lengths": "images has shape (20, 8, 8), labels (19,): one label is needed for each image",
    "flat": "images has shape (20, 64): expected (image, row, column)",
    "five colours": "images has shape (20, 8, 8, 5)",
    "objects": "cannot be read as arrays of numbers",
    "text": "images holds <U1: expected numbers",
    "too bright": "images holds values from 300 to 300: expected 0 to 255, or 0 to 1",
    "no number": "images holds values from nan to nan",
    "negative": "labels holds -1: classes are numbered from 0 on",
    "half labels": "labels holds float64 in shape (20,): expected whole numbers",
    "one-hot": "labels has shape (20, 2): expected one number for each image",
    "text labels": "labels holds <U3 in shape (20,): expected whole numbers",
    "sparse labels": "labels go up to 5000, but only 2 are used: number the classes from 0 on",
    "test beyond": "the test set has label 2, but the last label of the training set is 1",
    "none": "they hold no data",
}


HUGGING_FACE = (
    HEAD
    + """
import datasets

datasets.disable_progress_bars()

def table(number=20, label=lambda n: n % 2):
    images = [Image.fromarray(np.full((9, 9), n * 10, np.uint8)) for n in range(number)]
    return datasets.Dataset.from_dict({"image": images, "label": [label(n) for n in range(number)]})

def saved(name, what):
    what.save_to_disk(str(folder / name))
    return folder / name

said = {"one table": shape_of(load(saved("one", table())))}
# The labels of a published test split are often kept back.
splits = {"train": table(), "test": table(7, lambda n: -1), "validation": table(6)}
said["splits"] = shape_of(load(saved("splits", datasets.DatasetDict(splits))))
said["no image"] = refused(saved("no-image", table().remove_columns("image")))
said["no label"] = refused(saved("no-label", table().remove_columns("label")))
said["text"] = refused(saved("text", table(label=lambda n: "cat")))
said["no train"] = refused(saved("no-train", datasets.DatasetDict({"dev": table()})))
# Numbers from 0 to 1 are as bright as those of arrays, and as bytes.
shares = random.random((20, 9, 9))
said["numbers"] = []
for number, images in enumerate((shares, shares * 255, np.rint(shares * 255).astype(int))):
    columns = {"image": images.tolist(), "label": [n % 2 for n in range(20)]}
    rows = load(saved(f"numbers-{number}", datasets.Dataset.from_dict(columns)), augment="none")[0]
    said["numbers"].append(round(rows.dataset.pick(3).double().mean().item() / 255 - shares[3].mean(), 2))
paths = datasets.Dataset.from_dict({"image": ["a.png"] * 20, "label": [n % 2 for n in range(20)]})
said["paths"] = refused(saved("paths", paths))
flat = datasets.Dataset.from_dict({"image": [[0.5] * 784] * 20, "label": [n % 2 for n in range(20)]})
said["flat"] = refused(saved("flat", flat))
none = datasets.DatasetDict({"train": flat, "test": flat.filter(lambda row: False)})
said["no rows"] = refused(saved("none", none))
(folder / "torn").mkdir()
(folder / "torn" / "dataset_info.json").write_text("{}")
said["torn"] = refused(folder / "torn")
sys.modules["datasets"] = None  # as where it is not installed
said["not installed"] = refused(folder / "one")
print("said", json.dumps(said))
"""
)


def said_by(trainer: Trainer, code: str, folder: Path) -> dict[str, Any]:
    done = trainer.python(code, folder)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("said "))
    found: dict[str, Any] = json.loads(line.removeprefix("said "))
    return found


def test_folders_and_arrays_are_read_in_every_usual_form(trainer: Trainer, tmp_path: Path) -> None:
    assert said_by(trainer, READ, tmp_path) == {
        "digits": [1437, 360, [3, 32, 32], 10, "UCI handwritten digits"],
        "folder": [24, 6, [3, 32, 32], 3, "image folder pets"],
        "large": [24, 6, [3, 64, 64], 3, "image folder pets"],
        "split": [12, 6, [3, 32, 32], 2, "image folder split"],
        "test without classes": [12, 6, [3, 32, 32], 2, "image folder split"],
        "a class called train": [24, 6, [3, 32, 32], 3, "image folder vehicles"],
        "keras": [50, 9, [3, 32, 32], 5, "arrays keras.npz"],
        "first colours": [40, 10, [3, 32, 32], 5, "arrays medical.npz"],
        "loose": [40, 10, [3, 32, 32], 5, "arrays loose"],
    }


def test_data_that_do_not_fit_are_refused_in_one_harmless_line(trainer: Trainer, tmp_path: Path) -> None:
    said = said_by(trainer, REFUSED, tmp_path)
    assert set(said) == set(EXPECTED)
    for name, expected in EXPECTED.items():
        assert expected.format(folder=tmp_path) in said[name], (name, said[name])
        assert said[name].isprintable(), (name, said[name])


@pytest.mark.language
def test_sets_of_hugging_face_are_read_from_disk_or_refused(trainer: Trainer, tmp_path: Path) -> None:
    said = said_by(trainer, HUGGING_FACE, tmp_path)
    assert said.pop("one table") == [16, 4, [3, 32, 32], 2, "Hugging Face set one"]
    assert said.pop("splits") == [20, 6, [3, 32, 32], 2, "Hugging Face set splits"]
    assert said.pop("numbers") == [0.0, 0.0, 0.0]
    expected = {
        "paths": "column image, row 0: neither a picture nor numbers; cast_column('image', Image())",
        "flat": "column image, row 0 has shape (1, 784): expected (image, row, column)",
        "no rows": "split test: it has no rows",
        "no image": "split train: no column with images (it has label)",
        "no label": "split train: no column with labels (it has image)",
        "text": "column label: text, not numbers; class_encode_column('label') of datasets numbers it",
        "no train": "no split called train (it has dev)",
        "torn": "torn: not a data set that was saved to disk",
        "not installed": "module_not_found: import of datasets halted",
    }
    assert set(said) == set(expected)
    for name, line in expected.items():
        assert line in said[name], (name, said[name])
        assert said[name].isprintable()


def test_a_training_on_digits_names_its_data_at_every_result(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("baseline.py", tmp_path, data="digits", max_steps=2, eval_at_end="true")
    assert done.returncode == 0, done.stderr
    (result,) = (line for line in done.stdout.splitlines() if "accuracy" in line)
    assert result.endswith("(UCI handwritten digits)")
    dataset = event_in(read_records(tmp_path), "start")["dataset"]
    assert dataset["name"] == "UCI handwritten digits"
    assert (dataset["num_classes"], dataset["image_size"], dataset["is_synthetic"]) == (10, 32, False)


def test_an_image_that_a_loading_process_cannot_read_ends_the_training_with_one_line(
    trainer: Trainer, tmp_path: Path
) -> None:
    made = trainer.python(HEAD + 'pictures(folder / "pets", ["cat", "dog"])', tmp_path)
    assert made.returncode == 0, made.stderr
    for kept in ("train", "val"):
        shutil.copytree(tmp_path / "pets", tmp_path / "split" / kept)
    (tmp_path / "split" / "val" / "dog" / "3.png").write_bytes(b"no image")
    flags = {"data": tmp_path / "split", "max_steps": 1, "num_workers": 1, "eval_at_end": "true"}
    done = trainer.run("baseline.py", tmp_path / "run", **flags)
    assert done.returncode == 2
    line = f"baseline.py: error: {tmp_path}/split/val/dog/3.png: cannot be read as an image"
    assert done.stderr.strip() == line


def test_a_training_that_is_refused_ends_with_one_line(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("baseline.py", tmp_path, data=tmp_path / "a\x1b[31mb", max_steps=1)
    assert done.returncode == 78
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("coach: file_not_found: data ")
    assert line.isprintable()
    done = trainer.run("baseline.py", tmp_path, data="digits", model="gpt", max_steps=1)
    assert (
        done.stderr.strip()
        == "baseline.py: error: model=gpt reads text, and data=digits is images: leave out data"
    )
