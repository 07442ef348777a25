"""The shared modules, each used as a trainer uses it, in a process of its own: pytest itself loads no
torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainers.conftest import TRAINERS, Trainer
from tests.waiting import PATIENCE

FIND_SHADOWED = """
import importlib.util, sys
sys.path = [entry for entry in sys.path if entry]
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
"""

MODEL = """
import sys, threading
from common.models import SimpleCNN, count_parameters
assert count_parameters(SimpleCNN()) == 2_474_506, count_parameters(SimpleCNN())
assert "torchvision" not in sys.modules and threading.active_count() == 1
"""

GENERATE = """
import sys
from pathlib import Path
from common.data import generate_cifar10
print(generate_cifar10(Path(sys.argv[1]), num_train=500, num_test=100))
"""

LEARN = """
import sys
import torch
from torch import nn
from common.data import generate_images, load_cifar10
from common.models import SimpleCNN

train_set, test_set, info = load_cifar10(None, sys.argv[1])
assert info.is_synthetic and len(train_set) == 10_000 and len(test_set) == 2_000
image, label = train_set[0]
assert image.shape == (3, 32, 32) and image.dtype == torch.float32 and 0 <= label < 10

torch.manual_seed(0)
sets = {}
for name, size, seed in (("train", 2000, 11), ("test", 500, 12)):
    images, labels = generate_images(size, seed)
    sets[name] = torch.from_numpy(images).view(-1, 3, 32, 32).float() / 127.5 - 1, torch.from_numpy(labels)
images, labels = sets["train"]
mirrored = torch.rand(len(images)) < 0.5  # augmentation mirrors images: that must not change what they show
images[mirrored] = images[mirrored].flip(3)

def accuracy(model, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (model.eval()(sets["test"][0]).argmax(1) == sets["test"][1]).float().mean().item()

print(accuracy(nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), 3), accuracy(SimpleCNN(8), 3))
"""

NEVER_WAITING = """
import sys
import torch
from common.metrics import MetricsLog

class Copy:
    is_done = False
    def query(self):
        return self.is_done
    def synchronize(self):
        self.is_done = True

metrics = MetricsLog(sys.argv[1], torch.device("cpu"))
written = open(sys.argv[1] + "/metrics/rank-0.jsonl", "rb")
times = {"step_time_s": 0.1, "data_time_s": 0.0, "num_samples_global": 8}
for step in range(1, 10):
    metrics.step(step=step, loss=torch.tensor(float(step)), **times)
assert not written.read(), "written before the interval was over"
assert not metrics._in_flight, "copied before the interval was over"
import common.metrics
make = common.metrics._Interval.__init__
def on_a_slow_device(self, records):
    make(self, records)
    self._copied = Copy()
common.metrics._Interval.__init__ = on_a_slow_device
metrics.step(step=10, loss=torch.tensor(10.0), **times)
metrics.step(step=11, loss=torch.tensor(11.0), **times)
copy = metrics._in_flight[0]._copied
assert not written.read() and not copy.is_done, "a step waited for the copy"
copy.is_done = True
metrics.step(step=12, loss=torch.tensor(12.0), **times)
assert written.read().count(b"\\n") == 10
metrics.close()
assert written.read().count(b"\\n") == 2
"""

FOREIGN_FILES = """
import argparse, sys
from pathlib import Path
import torch
from common.checkpoint import Checkpoints
from common.data import GENERATED, generate_cifar10, load_cifar10
from common.distributed import TrainerError

def refused(call):
    try:
        call()
    except TrainerError as error:
        print(error)

folder = Path(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
args = argparse.Namespace(model="x")
whole = Checkpoints(args, model, torch.optim.SGD(model.parameters(), momentum=0.9))
path = whole.save(str(folder), {"step": 1})
last = Checkpoints(args, model, torch.optim.SGD(model[1].parameters(), momentum=0.9))
refused(lambda: last.load(path))

root = generate_cifar10(folder, num_train=50, num_test=10)
(root / GENERATED).write_bytes((root / GENERATED).read_bytes()[:-100])
refused(lambda: load_cifar10(str(root), None))
"""

RUN_DIRS = """
import os, time
from common.arguments import run_dir_by_hand

def of(run_id, seconds):
    os.environ["TORCHELASTIC_RUN_ID"] = run_id
    moment = time.gmtime(seconds)
    real, time.strftime = time.strftime, lambda form: real(form, moment)
    found = run_dir_by_hand()
    time.strftime = real
    return found

assert of("none", 0) == of("none", 1) != of("0123456789", 0) == of("0123456789", 1)
del os.environ["TORCHELASTIC_RUN_ID"]
assert run_dir_by_hand().rpartition("-")[0].endswith(time.strftime("-%Y%m%d"))
"""

MAX_SECONDS = """
from common import distributed
from common.distributed import StopSignal, why_stopped

distributed.process_age_s = lambda: 50.0  # most of them for imports
assert StopSignal(40).is_requested and not StopSignal(90).is_requested and not StopSignal(0).is_requested
stop = StopSignal(40)
assert why_stopped(stop) == ("max_seconds", "max_seconds are over")
assert why_stopped(stop, lambda name: [name, "SIGUSR1"]) == ("signal", "SIGUSR1 received")
"""

FULL_DISK = """
import resource, sys
import torch
from common.metrics import MetricsLog

metrics = MetricsLog(sys.argv[1], torch.device("cpu"))
metrics.event("first", 1, text="x" * 100)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
size = metrics._path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))  # as a quota ends: within a line
metrics.event("torn", 2, text="y" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
metrics.event("last", 3)
metrics.close()
"""

REFUSED = """
from common.arguments import boolean
from common.distributed import gpus_were_allotted
assert not gpus_were_allotted({})
assert not gpus_were_allotted({"CUDA_VISIBLE_DEVICES": "-1", "SLURM_GPUS_ON_NODE": "0"})
assert not gpus_were_allotted({"CUDA_VISIBLE_DEVICES": "NoDevFiles"})
assert gpus_were_allotted({"CUDA_VISIBLE_DEVICES": "0,1"})
assert gpus_were_allotted({"SLURM_GPUS_ON_NODE": "2"}) and gpus_were_allotted({"SLURM_JOB_GPUS": "3"})
assert boolean("true") and not boolean("False")
"""


OLD_DRIVER = """
import torch
from common import distributed
def init():
    raise RuntimeError(
        "The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver by …"
    )
torch.version.cuda, torch.cuda.init = "13.0", init
distributed.driver_version = lambda: "570.86.15"
print(distributed.why_cuda_is_unusable(0))
"""


def test_no_file_of_the_trainers_has_the_name_of_another_module() -> None:
    names = {path.stem for path in TRAINERS.glob("*.py")} | {
        path.name for path in TRAINERS.iterdir() if path.is_dir()
    }
    names.discard("__pycache__")
    assert {"baseline", "ddp", "common"} <= names
    assert not names & sys.stdlib_module_names
    found = subprocess.run(
        [sys.executable, "-P", "-c", FIND_SHADOWED, *sorted(names)], cwd="/", text=True, capture_output=True
    )
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_the_trainers_stay_within_the_python_of_old_clusters() -> None:
    for path in TRAINERS.rglob("*.py"):
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))
        assert "import coach" not in path.read_text()
        assert "from coach" not in path.read_text()


@pytest.mark.train
def test_the_workshop_model_has_its_parameters_and_importing_it_starts_nothing(trainer: Trainer) -> None:
    done = trainer.python(MODEL)
    assert done.returncode == 0, done.stderr


@pytest.mark.train
def test_processes_that_generate_data_at_once_end_up_with_the_same_whole_set(
    trainer: Trainer, tmp_path: Path
) -> None:
    env = {**trainer.env, "PYTHONPATH": str(TRAINERS)}
    command = [sys.executable, "-c", GENERATE, str(tmp_path)]
    started = [trainer.begin(command, env) for _ in range(2)]
    outputs = [process.communicate(timeout=60 * PATIENCE) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert len({stdout.splitlines()[-1] for stdout, _ in outputs}) == 1
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("cifar-10-generated-500-100-v"), (
        "a changed generator must not find an older one's set"
    )
    assert [path.name for path in made.iterdir()] == ["cifar-10-generated.npz"]
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.train
def test_the_generated_images_read_like_cifar10_and_need_a_convolution(trainer: Trainer) -> None:
    done = trainer.python(LEARN, trainer.cache_dir)
    assert done.returncode == 0, done.stderr
    linear, convolution = map(float, done.stdout.splitlines()[-1].split())
    assert linear < 0.4
    assert convolution > 0.6
    assert convolution > 2 * linear


@pytest.mark.train
def test_no_step_waits_for_its_numbers(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.python(NEVER_WAITING, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.train
def test_a_checkpoint_of_other_layers_and_damaged_images_are_refused_in_one_line_each(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(FOREIGN_FILES, tmp_path)
    assert done.returncode == 0, done.stderr
    checkpoint, _, images = done.stdout.splitlines()  # the second line tells of the generated images
    assert (
        "step-00000001.pt: does not fit this optimizer: loaded state dict contains a parameter" in checkpoint
    )
    assert "cifar-10-generated.npz: cannot be read as arrays of numbers (File is not a zip file)" in images


@pytest.mark.train
def test_ranks_that_start_in_different_seconds_write_into_one_folder(trainer: Trainer) -> None:
    done = trainer.python(RUN_DIRS)
    assert done.returncode == 0, done.stderr


@pytest.mark.train
def test_the_limit_of_seconds_counts_the_start_and_is_told_as_no_signal(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(MAX_SECONDS)
    assert done.returncode == 0, done.stderr
    done = trainer.run("baseline.py", tmp_path, epochs=1000, max_seconds=1)
    assert done.returncode == 0, done.stderr
    assert "\nmax_seconds are over: leaving at step" in done.stdout
    assert ".pt (max_seconds)\n" in done.stdout
    last = (tmp_path / "metrics" / "rank-0.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["reason"] == "max_seconds"


@pytest.mark.train
def test_a_line_that_a_full_disk_has_torn_is_told_and_swallows_none_behind_it(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(FULL_DISK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "File too large; metrics are being lost" in done.stderr
    lines = (tmp_path / "metrics" / "rank-0.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert [json.loads(line)["event"] for line in (lines[0], lines[2])] == ["first", "last"]


@pytest.mark.train
def test_the_environment_says_whether_gpus_were_allotted(trainer: Trainer) -> None:
    done = trainer.python(REFUSED)
    assert done.returncode == 0, done.stderr


@pytest.mark.train
def test_a_driver_that_is_too_old_is_named_beside_the_cuda_of_the_wheel(trainer: Trainer) -> None:
    done = trainer.python(OLD_DRIVER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("driver_too_old: the NVIDIA driver 570.86.15 on ")
    assert "supports CUDA up to 12.8" in done.stdout
    assert done.stdout.rstrip().endswith("was built for CUDA 13.0")


CHECKPOINT = """
import os, stat, sys
from common.checkpoint import save_checkpoint
folder = os.path.join(sys.argv[1], "checkpoints")
os.makedirs(folder)
open(os.path.join(folder, ".step-00000002.pt.4711"), "w").close()  # of a process that was killed
seen = []
to_disk = os.fsync
def fsync(descriptor):
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    seen.append(("folder" if is_folder else "file", "step-00000003.pt" in os.listdir(folder)))
    to_disk(descriptor)
os.fsync = fsync
save_checkpoint(sys.argv[1], {"step": 3})
assert seen == [("file", False), ("folder", True)], seen
assert os.listdir(folder) == ["step-00000003.pt"], os.listdir(folder)
"""


@pytest.mark.train
def test_a_checkpoint_s_bytes_and_then_its_name_reach_the_disk_and_halves_of_others_go(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(CHECKPOINT, tmp_path)
    assert done.returncode == 0, done.stderr
