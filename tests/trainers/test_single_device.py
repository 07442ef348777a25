"""The ladder on one device: a change of speed must not change the training's result, and each trainer reports
its effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records, steps_in

pytestmark = pytest.mark.train

NUM_STEPS = 4


@pytest.fixture(scope="module")
def baseline(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses_of(trainer, "baseline.py", tmp_path_factory.mktemp("baseline"))


def records_of(trainer: Trainer, name: str, run_dir: Path, **flags: object) -> list[dict[str, Any]]:
    done = trainer.run(name, run_dir, **{"max_steps": NUM_STEPS, **flags})
    assert done.returncode == 0, done.stderr
    return read_records(run_dir)


def losses_of(trainer: Trainer, name: str, run_dir: Path, **flags: object) -> list[float]:
    return [step["loss"] for step in steps_in(records_of(trainer, name, run_dir, **flags))]


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("activation_checkpointing.py", 1e-6),  # the same operations, some of them twice
        ("channels_last.py", 1e-3),  # the same sums in another order
        ("tf32.py", 1e-6),  # a CPU has no TF32: nothing must change there
    ],
)
def test_another_precision_layout_or_memory_gives_the_same_losses(
    trainer: Trainer, tmp_path: Path, baseline: list[float], name: str, tolerance: float
) -> None:
    assert losses_of(trainer, name, tmp_path) == pytest.approx(baseline, rel=tolerance)


def test_without_smoothing_the_labels_are_the_baseline_s_and_with_it_the_loss_has_a_floor(
    trainer: Trainer, tmp_path: Path, baseline: list[float]
) -> None:
    hard, smooth = (
        losses_of(trainer, "label_smoothing.py", tmp_path / str(share), smoothing=share) for share in (0, 0.1)
    )
    assert hard == baseline
    assert smooth != baseline
    code = """
import torch
from label_smoothing import smoothed_loss

targets = torch.arange(10)
for gap in (4.5109, 4.4, 4.6, 50.0):  # of the right logit: ln(0.91 / 0.01) is the best
    print(smoothed_loss(torch.eye(10) * gap, targets, 0.1).item())
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr
    best, *others = map(float, done.stdout.split())
    assert best == pytest.approx(0.5003, abs=1e-4)  # as its lesson says
    assert min(others) > best


def test_products_in_16_bits_follow_the_baseline_and_every_step_tells_its_loss_scale(
    trainer: Trainer, tmp_path: Path, baseline: list[float]
) -> None:
    steps = steps_in(records_of(trainer, "amp.py", tmp_path, precision="fp16"))
    assert [step["loss"] for step in steps] == pytest.approx(baseline, rel=0.05)
    # A scaler begins with 65536 and halves it in every step whose gradients overflow.
    scale = 65536.0
    for step in steps:
        assert step["loss_scale"] == scale
        assert step["is_skipped"] is (step["grad_norm"] in ("Infinity", "NaN"))
        scale /= 2 if step["is_skipped"] else 1


@pytest.mark.parametrize("name", ["gpu_data.py", "fast.py"])
def test_a_run_with_its_data_on_the_device_learns_and_goes_on_from_a_checkpoint_exactly(
    trainer: Trainer, tmp_path: Path, name: str
) -> None:
    flags: dict[str, Any] = {"width": 16, "batch_size": 32, "lr": 0.02, "num_workers": None}
    flags |= {"warmup_steps": 0, "compile": "false"} if name == "fast.py" else {}
    straight = records_of(trainer, name, tmp_path / "straight", max_steps=16, checkpoint_every=13, **flags)
    losses = [step["loss"] for step in steps_in(straight)]
    assert len(losses) == 16
    assert sum(losses[-4:]) < sum(losses[:4])
    assert {step["num_samples"] for step in steps_in(straight)} == {32}
    assert event_in(straight, "start")["dataset"]["is_synthetic"] is True

    # An epoch has 10 steps: it goes on within the second one, with the same order and the same crops.
    checkpoint = tmp_path / "straight" / "checkpoints" / "step-00000013.pt"
    resumed = records_of(trainer, name, tmp_path / "resumed", max_steps=16, resume_from=checkpoint, **flags)
    assert [step["step"] for step in steps_in(resumed)] == [14, 15, 16]
    assert [step["loss"] for step in steps_in(resumed)] == losses[13:]


@pytest.mark.long
def test_a_checkpoint_of_another_batch_size_is_gone_on_from_in_whole_batches(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags: dict[str, Any] = {"num_workers": None, "compile": "false"}
    records_of(trainer, "fast.py", tmp_path / "first", max_steps=3, batch_size=16, **flags)
    flags |= {"batch_size": 64, "checkpoint_every": 8, "max_steps": 9}
    checkpoint = tmp_path / "first" / "checkpoints" / "step-00000003.pt"
    records_of(trainer, "fast.py", tmp_path / "second", resume_from=checkpoint, **flags)
    code = "import sys, torch; print(torch.load(sys.argv[1])['position'])"
    done = trainer.python(code, tmp_path / "second" / "checkpoints" / "step-00000008.pt")
    assert done.stdout == "320\n"  # the whole epoch, of which the first 48 samples had been seen


def test_images_on_the_device_are_those_of_the_loader_cropped_and_mirrored(trainer: Trainer) -> None:
    code = """
import sys
from importlib import import_module

import torch
from common.data import MEAN, STD, load_cifar10

train_set, test_set, _ = load_cifar10(None, sys.argv[1], 100)
statistics = torch.tensor([MEAN, STD]) * 255
for trainer in map(import_module, ("gpu_data", "fast")):
    images, targets = trainer.put_on(torch.device("cpu"), test_set)
    expected = torch.stack([test_set[number][0] for number in range(50)])
    assert torch.allclose(trainer.normalized(images[:50], statistics), expected, atol=1e-5)
    assert targets[:50].tolist() == [test_set[number][1] for number in range(50)]

    images, targets = trainer.put_on(torch.device("cpu"), train_set, padding=4)
    assert images.shape == (100, 40, 40, 3) and len(targets) == 100
    places = set()
    for picked in torch.arange(100).split(20):
        for number, image in zip(picked.tolist(), trainer.cropped_and_mirrored(images, picked)):
            windows = {
                (y, x, flip): images[number, y : y + 32, x : x + 32].flip(1 if flip else ())
                for y in range(9) for x in range(9) for flip in (False, True)
            }
            found = [place for place, window in windows.items() if torch.equal(window, image)]
            assert found, f"image {number} is no window of its own"
            places.add(found[0])
    assert len(places) > 50, "the same window for many images"
    assert {flip for _, _, flip in places} == {False, True}
"""
    done = trainer.python(code, trainer.cache_dir)
    assert done.returncode == 0, done.stderr


def test_the_kernels_of_attention_compute_the_same_and_the_one_that_ran_is_named(
    trainer: Trainer, tmp_path: Path
) -> None:
    sizes = {"layers": 2, "heads": 2, "embedding": 16, "sequence_length": 32, "batch_size": 4, "width": None}
    flags = {**sizes, "precision": "fp32", "num_train_samples": 64}
    flash = records_of(trainer, "attention.py", tmp_path / "flash", kernel="flash", **flags)
    # Memory-efficient attention exists on GPUs only: the formula as it is written takes its place, and that
    # is said.
    other = records_of(trainer, "attention.py", tmp_path / "efficient", kernel="efficient", **flags)
    losses, other_losses = ([step["loss"] for step in steps_in(records)] for records in (flash, other))
    assert losses == pytest.approx(other_losses, rel=1e-5)
    assert event_in(flash, "mfu")["kernel"] == "flash"
    assert event_in(other, "mfu")["kernel"] == "math (there is no efficient here)"

    # Of each of 2 blocks: four projections of 16 x 16 and an MLP of 2 x 16 x 64, with biases, and 2 norms;
    # then a norm and the output.
    num_weights = 2 * (4 * (256 + 16) + (1024 + 64) + (1024 + 16) + 4 * 16) + 2 * 16 + 16 * 256
    speed = event_in(flash, "mfu")
    assert speed["flops_per_token"] == 6 * num_weights + 12 * 2 * 16 * 32
    assert speed["tokens_per_s"] == pytest.approx(32 * event_in(flash, "summary")["samples_per_s"])
    assert speed["mfu"] is None  # the peak of this CPU is not known


def test_heads_that_do_not_share_the_embedding_are_refused(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.run("attention.py", tmp_path, heads=3, embedding=16, width=None)
    assert done.returncode == 2
    assert done.stderr.strip() == "attention.py: error: embedding=16 must be a multiple of heads=3"


TRACED = """
import runpy, sys
from pathlib import Path
import torch
whole = torch.compile
torch.compile = lambda model, mode: whole(model, backend="eager")  # traced, and no kernel is generated
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_model_that_is_only_traced_is_reported_and_learns_as_a_compiled_one(
    trainer: Trainer, tmp_path: Path, baseline: list[float]
) -> None:
    python, *words = trainer.command("compile.py", tmp_path, max_steps=NUM_STEPS)
    done = trainer.call([python, "-c", TRACED, *words], trainer.env)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path)
    assert event_in(records, "compile")["seconds"] > 0
    assert event_in(records, "summary")["compile_s"] == event_in(records, "compile")["seconds"]
    assert [step["loss"] for step in steps_in(records)] == pytest.approx(baseline, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["compile.py", "fast.py"])
def test_compiling_is_reported_apart_and_gives_the_same_losses(
    trainer: Trainer, tmp_path: Path, name: str
) -> None:
    flags: dict[str, Any] = {"num_workers": None} if name == "fast.py" else {}
    reference = ("baseline.py", {}) if name == "compile.py" else ("fast.py", {"compile": "false"})
    expected = losses_of(trainer, reference[0], tmp_path / "eager", **flags, **reference[1])
    compiled = records_of(trainer, name, tmp_path / "compiled", **flags)
    assert event_in(compiled, "compile")["seconds"] > 1
    assert event_in(compiled, "summary")["compile_s"] == event_in(compiled, "compile")["seconds"]
    # Other random numbers for dropout and crops: the same to begin with, not to the digit.
    assert steps_in(compiled)[0]["loss"] == pytest.approx(expected[0], rel=0.1)


GPU: dict[str, Any] = {"gpus_per_node": 1, "width": None, "num_train_samples": 0, "max_steps": 20}
LARGE_GPT = {"layers": 4, "heads": 8, "embedding": 512, "sequence_length": 1024, "batch_size": 8}
SMALL_GPT = {"layers": 1, "heads": 2, "embedding": 16, "sequence_length": 32, "batch_size": 2}


@pytest.mark.parametrize(
    ("on_device", "sizes"),
    [
        pytest.param(GPU, LARGE_GPT, marks=pytest.mark.gpu, id="gpu"),
        pytest.param({"max_steps": 11, "width": None}, SMALL_GPT, marks=pytest.mark.long, id="as-on-a-gpu"),
    ],
)
def test_a_gpu_names_the_kernel_that_ran_its_share_of_the_peak_and_its_idle_time(
    trainer: Trainer, tmp_path: Path, on_device: dict[str, Any], sizes: dict[str, int]
) -> None:
    is_gpu = on_device is GPU
    for kernel in ("math", "flash", "efficient") if is_gpu else ("math", "flash"):  # a CPU has the two
        run_dir = tmp_path / kernel
        speed = event_in(
            records_of(trainer, "attention.py", run_dir, kernel=kernel, **on_device, **sizes), "mfu"
        )
        assert speed["kernel"] == kernel
        assert speed["mfu"] is None or 0 < speed["mfu"] < 1
    profile = event_in(records_of(trainer, "profiled.py", tmp_path / "profile", **on_device), "profile")
    assert not is_gpu or 0 < profile["idle_share"] < 1
    assert profile["operators"]


@pytest.mark.parametrize(
    ("on_device", "falls_to"),
    [
        pytest.param(
            {"gpus_per_node": 1, "width": 64, "num_train_samples": 0, "batch_size": 2000, "epochs": 60},
            0.5,
            marks=pytest.mark.gpu,
            id="gpu",
        ),
        pytest.param(
            {"batch_size": 16, "epochs": 6, "compile": "false"},
            0.98,
            marks=pytest.mark.long,
            id="as-on-a-gpu",
        ),
    ],
)
def test_the_top_of_the_ladder_is_fast_and_its_step_times_add_up_to_its_epochs(
    trainer: Trainer, tmp_path: Path, on_device: dict[str, Any], falls_to: float
) -> None:
    records = records_of(trainer, "fast.py", tmp_path, max_steps=0, num_workers=None, **on_device)
    epochs = [record for record in records if record.get("event") == "epoch_end"][1:]
    steps = [step for step in steps_in(records) if step["epoch"] > 0]
    assert sum(step["step_time_s"] for step in steps) == pytest.approx(
        sum(epoch["seconds"] for epoch in epochs), rel=0.05
    )
    assert epochs[-1]["loss"] < falls_to * epochs[0]["loss"]
    if "H200" in event_in(records, "start")["device_name"]:
        assert event_in(records, "summary")["samples_per_s"] >= 600_000
