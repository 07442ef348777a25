"""`benchmarks/training.py` counts a step's roofs and does not guess them, and prints its tables on any
device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import REPOSITORY
from tests.trainers.conftest import Trainer

SCRIPT = REPOSITORY / "benchmarks" / "training.py"

ROOFS = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from common.models import build_model, loss_of
from roofs import Work, device_of, roofs_of, work_of

def work(batch_size, precision):
    model = build_model("simplecnn", 64).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch_size,))
    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(images)
        loss_of(logits, labels).backward()
        optimizer.step()
    step()
    return work_of(step)

def of_a_sample(precision):
    # The weights are read and written once a step: what eight more samples add has no share of them.
    few, more = work(4, precision), work(12, precision)
    return Work((more.flops - few.flops) / 8, (more.num_bytes - few.num_bytes) / 8, few.num_operators)

# By hand: 246.18 MFLOP a sample; every layer reads and writes its maps once or twice: 9.07 MB in 32 bits, 4.76 MB in 16.
fp32, bf16 = of_a_sample("fp32"), of_a_sample("bf16")
assert abs(fp32.flops / 246.183936e6 - 1) < 1e-6, fp32
assert 0.85 < fp32.num_bytes / 9.07e6 < 1.1, fp32
assert 0.85 < bf16.num_bytes / 4.76e6 < 1.1, bf16

h200 = device_of("NVIDIA H200")
assert device_of("NVIDIA H100 PCIe").memory < device_of("NVIDIA H100 80GB HBM3").memory
assert device_of("AMD Instinct MI300X") is None
few = roofs_of(work(4, "bf16"), h200, "bf16")
assert few.binding == "launch" and few.least_s == few.launch_s, few
for precision, binding in (("fp32", "compute"), ("bf16", "memory")):
    counted = fp32 if precision == "fp32" else bf16
    large = Work(4096 * counted.flops, 4096 * counted.num_bytes, counted.num_operators)
    assert roofs_of(large, h200, precision).binding == binding, precision
"""


def run(*options: object, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, options)]
    return subprocess.run(command, text=True, capture_output=True, timeout=timeout_s)


@pytest.mark.train
def test_the_roofs_of_a_step_are_those_of_a_calculation_by_hand(trainer: Trainer) -> None:
    done = trainer.python(ROOFS, REPOSITORY / "benchmarks")
    assert done.returncode == 0, done.stderr


@pytest.mark.train
@pytest.mark.long
def test_the_tables_of_a_device_come_out_complete(trainer: Trainer, tmp_path: Path) -> None:
    done = run("--gpu", "--tiny", "--write", tmp_path)
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "training-cpu.md").read_text()
    assert kept.count("| batch 16, ") == 6  # three precisions, two places of the data
    for text in ("measured on CPU", "## ResNet-18", "tokens x 2, eager", "goal 45.0%"):
        assert text in kept


@pytest.mark.train
@pytest.mark.long
def test_coach_s_own_calls_cost_a_training_less_than_a_hundredth_of_its_time(trainer: Trainer) -> None:
    done = run("--trainers", "baseline,ddp,amp", "--cache_dir", trainer.cache_dir, "--pairs", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "budget 1% of the steps' time: kept by all" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("%")]
    assert rows == ["baseline", "ddp", "amp"]
    assert done.stdout.count("95 % interval") == 2


@pytest.mark.gpu
@pytest.mark.timeout(3600)
def test_a_gpu_reaches_the_figures_of_the_recipes(trainer: Trainer, tmp_path: Path) -> None:
    done = run("--gpu", "--write", tmp_path, "--cache_dir", trainer.cache_dir, timeout_s=3600)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
