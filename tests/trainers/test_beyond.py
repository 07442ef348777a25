"""Features beyond one training loop: a killed rank, other frameworks, data on the node's own disk,
TensorBoard.

Trainers for other frameworks run if the framework is installed. The one-line error without it is tested
everywhere.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import TRAINERS, Trainer, event_in, read_records, steps_in
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.train

HOROVOD = '''
"""Horovod's interface on one rank."""
import contextlib
Sum = "sum"
def init(): pass
def shutdown(): pass
def rank(): return 0
def local_rank(): return 0
def size(): return 1
def allgather_object(value): return [value]
def allreduce(tensor, op): return tensor
def broadcast_parameters(state, root_rank): pass
def DistributedOptimizer(optimizer, named_parameters):
    optimizer.synchronize = lambda: None
    optimizer.skip_synchronize = contextlib.nullcontext
    return optimizer
'''

STAGING = """
import os, shutil, sys
from pathlib import Path
import common.staging as staging
from common.distributed import TrainerError
source, target = Path(sys.argv[1]), Path(sys.argv[2])

first = staging.stage(source, str(target))
assert first.is_copied and first.num_files == 2 and first.num_bytes == 11, first
assert Path(first.path).name == source.name and (Path(first.path) / "deep" / "b").read_text() == "world"
assert min(first.seconds, first.read_source_s, first.read_staged_s) > 0
again = staging.stage(source, str(target))
assert not again.is_copied and again.path == first.path

(source / "deep" / "b").write_text("world!")
changed = staging.stage(source, str(target))
assert changed.is_copied and changed.path != first.path
assert (Path(changed.path) / "deep" / "b").read_text() == "world!"
assert not [path for path in Path(changed.path).parents[1].iterdir() if path.name.startswith(".")]

# A process that was suspended for longer than a lock lives finds the copy of another one.
(source / "deep" / "b").write_text("world?")
copy = staging._copy
def late_copy(source, files, to, show_alive):
    copy(source, files, to, show_alive)
    shutil.copytree(to.parent, to.parents[1] / to.parent.name.split(".")[1])
staging._copy = late_copy
late = staging.stage(source, str(target))
assert (Path(late.path) / "deep" / "b").read_text() == "world?"
assert not [path for path in Path(late.path).parents[1].iterdir() if path.name.startswith(".")]
staging._copy = copy

def refused(expected, stage_to):
    try:
        staging.stage(source, stage_to)
    except TrainerError as error:
        assert expected in str(error), error
    else:
        raise AssertionError(f"not refused: {expected}")

refused("no folder for staged data", str(source / "deep" / "b"))
theirs = target / "theirs"
theirs.mkdir()
(theirs / f"coach-staged-{os.getuid()}").symlink_to(target)
refused("belongs to somebody else", str(theirs))
shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10, 10, 0)
(target / "full").mkdir()
refused("has 0.00 GB free", str(target / "full"))
"""

DALI = """
import torch

class Ready:
    def __init__(self, values):
        self.values = values
    def as_tensor(self):
        return self.values

class Pipeline:
    def __init__(self, source):
        self.source = source
    def reset(self):
        self.batches = iter(self.source)
    build = reset
    def run(self):
        images, targets = map(torch.from_numpy, next(self.batches))
        return Ready(images.permute(0, 3, 1, 2) / 255), Ready(targets)

def pipeline_def(graph):
    return lambda source, **options: Pipeline(source)

fn = types = None
"""

TENSORBOARD = """
import sys
import torch
from common.metrics import MetricsLog
with MetricsLog(sys.argv[1], torch.device("cpu"), tensorboard=True) as metrics:
    for step in (1, 2):
        metrics.step(step=step, epoch=0, loss=torch.tensor(2.0 / step), lr=0.1, num_samples=8, num_samples_global=16,
                     data_time_s=0.0, step_time_s=0.5, grad_norm=float("nan"))
    metrics.event("eval", 2, epoch=0, loss=1.5, accuracy=0.25, seconds=0.1)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
written = EventAccumulator(sys.argv[1] + "/tensorboard")
written.Reload()
assert [(event.step, event.value) for event in written.Scalars("train/loss")] == [(1, 2.0), (2, 1.0)]
assert [event.value for event in written.Scalars("time/samples_per_s")] == [32.0, 32.0]
assert [(event.step, event.value) for event in written.Scalars("eval/accuracy")] == [(2, 0.25)]
"""


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that would hold it
        return False


def losses_of(run_dir: Path, rank: int = 0) -> dict[int, Any]:
    return {step["step"]: (step["loss"], step["grad_norm"]) for step in steps_in(read_records(run_dir, rank))}


def with_package(trainer: Trainer, folder: Path, name: str, files: dict[str, str], **env: str) -> Trainer:
    """The trainer with a package that is found before any other of its name."""
    for file, text in files.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return dataclasses.replace(trainer, env={**trainer.env, "PYTHONPATH": str(folder), **env})


def test_a_killed_rank_is_started_again_and_all_go_on_from_the_newest_checkpoint(
    trainer: Trainer, tmp_path: Path
) -> None:
    command = trainer.command("ddp.py", tmp_path, ranks=2, max_steps=150, checkpoint_every=25)
    command.insert(command.index("--standalone"), "--max-restarts=1")
    metrics = tmp_path / "metrics" / "rank-1.jsonl"
    first_attempt: list[dict[str, Any]] = []

    def has_gone_on_behind_a_checkpoint() -> bool:
        text = metrics.read_text() if metrics.exists() else ""
        first_attempt[:] = [
            json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
        ]
        steps = steps_in(first_attempt)
        return bool(steps) and steps[-1]["step"] > 25 and steps[-1]["step"] % 25 != 0

    env = {**trainer.env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # as the script of a launch says
    process = trainer.begin(command, env)
    try:
        wait_until(has_gone_on_behind_a_checkpoint, what="steps behind the first checkpoint")
        os.kill(event_in(first_attempt, "start")["pid"], signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=240)
    finally:
        process.terminate()
    assert process.returncode == 0, stderr
    assert "finished at step 150 (max_steps)" in stdout

    records = read_records(tmp_path, rank=1)
    starts = [number for number, record in enumerate(records) if record.get("event") == "start"]
    resumed_at = event_in(records, "resume")["step"]
    assert len(starts) == 2
    assert resumed_at >= 25
    assert resumed_at % 25 == 0
    before, after = (
        {step["step"]: step["loss"] for step in steps_in(part)}
        for part in (records[: starts[1]], records[starts[1] :])
    )
    assert list(after) == list(range(resumed_at + 1, 151))
    done_twice = before.keys() & after.keys()
    assert done_twice, "the rank was killed before it had gone on behind its checkpoint"
    assert {step: after[step] for step in done_twice} == {step: before[step] for step in done_twice}


def test_a_folder_is_staged_whole_once_and_again_after_a_change(trainer: Trainer, tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "node"
    (source / "deep").mkdir(parents=True)
    target.mkdir()
    (source / "a").write_text("hello ")
    (source / "deep" / "b").write_text("world")
    done = trainer.python(STAGING, source, target)
    assert done.returncode == 0, done.stderr
    assert "copied in" in done.stdout
    assert "there already" in done.stdout


def test_a_training_reads_the_copy_on_its_node_and_the_next_one_uses_it_again(
    trainer: Trainer, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    node.mkdir()
    for name in ("first", "second"):
        done = trainer.run("staged.py", tmp_path / name, max_steps=2, stage_to=node)
        assert done.returncode == 0, done.stderr
    first, second = (event_in(read_records(tmp_path / name), "staging") for name in ("first", "second"))
    assert (first["is_copied"], second["is_copied"]) == (True, False)
    assert first["num_bytes"] > 10_000_000
    start = event_in(read_records(tmp_path / "second"), "start")
    assert start["dataset"]["path"] == second["path"]
    assert Path(second["path"]).is_relative_to(node)
    assert start["dataset"]["is_synthetic"] is True


def test_ranks_of_one_node_that_stage_at_once_make_one_copy(trainer: Trainer, tmp_path: Path) -> None:
    source, node = tmp_path / "data", tmp_path / "node"
    for folder in (source, node):
        folder.mkdir()
    for number in range(20):
        (source / f"{number}").write_bytes(bytes(200_000))
    code = "import sys; from pathlib import Path; from common.staging import stage\n"
    code += "print('copied', stage(Path(sys.argv[1]), sys.argv[2]).is_copied)"
    done: list[subprocess.CompletedProcess[str]] = []
    ranks = [
        threading.Thread(target=lambda: done.append(trainer.python(code, source, node))) for _ in range(2)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [one.returncode for one in done] == [0, 0], done
    assert sum("copied True" in one.stdout for one in done) == 1
    (folder,) = node.iterdir()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "package", "said"),
    [
        ("mpi_allreduce.py", "mpi4py", "`pip install mpi4py mpich`"),
        ("horovod_cnn.py", "horovod", "ddp.py does the same"),
    ],
)
def test_a_framework_that_is_missing_ends_the_training_with_one_line(
    trainer: Trainer, tmp_path: Path, name: str, package: str, said: str
) -> None:
    text = f"raise ModuleNotFoundError(\"No module named '{package}'\")\n"
    without = with_package(trainer, tmp_path / "packages", package, {"__init__.py": text})
    done = without.run(name, tmp_path / "run", max_steps=1)
    assert done.returncode == 78
    assert done.stderr.startswith(f"coach: module_not_found: No module named '{package}'; ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_framework_s_error_names_the_remedy() -> None:
    imports = {
        "lightning_cnn.py": "import pytorch_lightning",
        "dali.py": "from nvidia.dali import",
        "horovod_cnn.py": "import horovod.torch",
        "common/mpi_start.py": "from mpi4py import",
        "common/tensorboard.py": "from torch.utils.tensorboard import",
    }
    for name, line in imports.items():
        lines = [text.strip() for text in (TRAINERS / name).read_text().splitlines()]
        (at,) = [number for number, text in enumerate(lines) if text.startswith(line)]
        opened = max(number for number, text in enumerate(lines[:at]) if text.startswith("with needed("))
        assert at - opened <= 3, name


@pytest.mark.long
def test_horovod_s_trainer_on_one_rank_has_the_losses_of_ddp(trainer: Trainer, tmp_path: Path) -> None:
    files = {"__init__.py": "", "torch.py": HOROVOD}
    stand_in = with_package(trainer, tmp_path / "packages", "horovod", files, HOROVOD_RANK="0")
    for max_steps in (3, 6):  # a resumed run among them: its momentum has to come along
        done = stand_in.run("horovod_cnn.py", tmp_path / "horovod", max_steps=max_steps)
        assert done.returncode == 0, done.stderr
    one = dataclasses.replace(trainer, env={**trainer.env, **_one_rank()})
    done = one.run("ddp.py", tmp_path / "ddp", max_steps=6)
    assert done.returncode == 0, done.stderr
    assert losses_of(tmp_path / "horovod") == losses_of(tmp_path / "ddp")


def _one_rank() -> dict[str, str]:
    return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "legs",
    [pytest.param((12,), id="at-once"), pytest.param((7, 12), id="resumed", marks=pytest.mark.long)],
)
def test_gradients_averaged_by_mpi_give_the_losses_of_ddp_bit_for_bit(
    trainer: Trainer, tmp_path: Path, legs: tuple[int, ...]
) -> None:
    for max_steps in legs:  # an epoch of a rank has 10 steps
        done = trainer.run("mpi_allreduce.py", tmp_path / "mpi", max_steps=max_steps)
        assert done.returncode == 0, done.stderr
    assert "self-check: 2 ranks on 1 node(s)" in done.stdout
    done = trainer.run("ddp.py", tmp_path / "ddp", ranks=2, max_steps=12)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert losses_of(tmp_path / "mpi", rank) == losses_of(tmp_path / "ddp", rank)


@pytest.mark.frameworks
def test_lightning_goes_on_in_the_middle_of_an_epoch_as_if_it_had_never_stopped(
    trainer: Trainer, tmp_path: Path
) -> None:
    straight, halved = tmp_path / "straight", tmp_path / "halved"
    for run_dir, max_steps in ((straight, 25), (halved, 12), (halved, 25)):
        done = trainer.run("lightning_cnn.py", run_dir, max_steps=max_steps)
        assert done.returncode == 0, done.stderr
    assert losses_of(halved) == losses_of(straight)
    assert event_in(read_records(halved), "resume")["step"] == 12
    assert [step["epoch"] for step in steps_in(read_records(halved))] == [0] * 20 + [1] * 5


@pytest.mark.frameworks
@pytest.mark.long
def test_lightning_on_two_ranks_shares_the_work_and_leaves_at_a_signal(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("lightning_cnn.py", tmp_path / "epochs", ranks=2, epochs=2, eval_every_epoch="true")
    assert done.returncode == 0, done.stderr
    first, second = (steps_in(read_records(tmp_path / "epochs", rank)) for rank in range(2))
    assert len(first) == len(second) == 20
    assert [step["grad_norm"] for step in first] == pytest.approx(
        [step["grad_norm"] for step in second], rel=1e-5
    )
    assert 0 < event_in(read_records(tmp_path / "epochs"), "eval")["accuracy"] <= 1

    stopped = tmp_path / "stopped"
    metrics = stopped / "metrics" / "rank-1.jsonl"
    process = trainer.start("lightning_cnn.py", stopped, ranks=2, max_steps=100_000)
    try:
        wait_until(lambda: metrics.exists() and b'"loss"' in metrics.read_bytes(), what="the first steps")
        process.send_signal(signal.SIGUSR1)
        _, stderr = process.communicate(timeout=60 * PATIENCE)
    finally:
        process.terminate()
    last = [read_records(stopped, rank)[-1] for rank in range(2)]
    assert [end["reason"] for end in last] == ["signal", "signal"], stderr
    assert last[0]["step"] == last[1]["step"]
    assert (stopped / "checkpoints" / f"step-{last[0]['step']:08d}.pt").is_file()


def test_dali_s_trainer_knows_the_steps_of_its_epochs(trainer: Trainer, tmp_path: Path) -> None:
    """Beside a stand-in for DALI, which hands the images on as they are."""
    files = {"__init__.py": "", "dali.py": DALI}
    stand_in = with_package(trainer, tmp_path / "packages", "nvidia", files)
    done = stand_in.run("dali.py", tmp_path / "run", epochs=2, batch_size=150, lr_schedule="linear", lr=0.01)
    assert done.returncode == 0, done.stderr
    steps = steps_in(read_records(tmp_path / "run"))
    assert [step["num_samples"] for step in steps] == [150, 150, 20] * 2
    assert [step["lr"] for step in steps] == pytest.approx([0.01 * (6 - number) / 6 for number in range(6)])


@pytest.mark.skipif(not is_installed("nvidia.dali"), reason="nvidia.dali is not installed")
def test_dali_s_batches_are_the_sampler_s_and_the_model_learns_from_them(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("dali.py", tmp_path, epochs=3, batch_size=48, num_workers=1)
    assert done.returncode == 0, done.stderr
    steps = steps_in(read_records(tmp_path))
    assert [step["num_samples"] for step in steps] == [48, 48, 48, 48, 48, 48, 32] * 3
    assert sum(step["loss"] for step in steps[-7:]) < 0.97 * sum(step["loss"] for step in steps[:7])


@pytest.mark.frameworks
def test_tensorboard_shows_the_values_of_the_records(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.python(TENSORBOARD, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(read_records(tmp_path)) == 3
