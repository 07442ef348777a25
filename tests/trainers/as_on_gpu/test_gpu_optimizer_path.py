"""Every trainer makes its steps where torch updates a group of parameters in one call, as it does on a
GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import TRAINERS, Trainer
from tests.trainers.test_beyond import HOROVOD, is_installed, with_package

pytestmark = pytest.mark.train

NUM_STEPS = 2
PROGRAM = Path(__file__).with_name("step_every_trainer.py")
WITHOUT_OPTIMIZER = {"comm_bench.py", "ring.py"}
WITHOUT_OPTIMIZER |= {"convolutions.py", "ddp_buckets.py", "fused_kernel.py", "prefetcher.py"}
WITHOUT_OPTIMIZER |= {"stale_gradients.py"}  # its server subtracts by hand
WITHOUT_OPTIMIZER |= {"binding.py", "roofline.py"}  # the last steps twice before it counts
NEEDS = {
    "dali.py": "nvidia.dali",
    "lightning_cnn.py": "lightning",
    "mpi_allreduce.py": "mpi4py",
    "deepspeed_zero.py": "deepspeed",
    **dict.fromkeys(("gpt.py", "gpt_ddp.py", "gpt_fsdp.py", "gpt_tp.py", "lora.py"), "tokenizers"),
}
ENDS_BEFORE_ITS_FIRST_STEP = {
    "drill_missing_piece.py": "a module is missing",
    "drill_plain_python.py": "its ranks lose torchrun's variables",
    "drill_spelling.py": "DeepSpeed refuses the misspelled key",
}


def step_all(trainer: Trainer, tmp_path: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    with_horovod = with_package(
        trainer, tmp_path / "packages", "horovod", {"__init__.py": "", "torch.py": HOROVOD}
    )
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(NUM_STEPS), *names]
    done = with_horovod.call(command, with_horovod.env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return] # the program prints an object


def trainers(*, are_drills: bool) -> list[str]:
    names = sorted(path.name for path in TRAINERS.glob("*.py"))
    return [
        name
        for name in names
        if name.startswith("drill_") is are_drills
        and name not in WITHOUT_OPTIMIZER
        and (name not in NEEDS or is_installed(NEEDS[name]))
    ]


def test_every_trainer_makes_its_steps_as_on_a_gpu(trainer: Trainer, tmp_path: Path) -> None:
    found = step_all(trainer, tmp_path, trainers(are_drills=False))
    assert len(found) >= 17
    wrong = {
        name: outcome["said"]
        for name, outcome in found.items()
        if set(outcome["exit_codes"]) != {0} or set(outcome["num_steps"]) != {NUM_STEPS}
    }
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())


@pytest.mark.long
def test_every_drill_makes_a_step_as_on_a_gpu_unless_its_fault_comes_first(
    trainer: Trainer, tmp_path: Path
) -> None:
    found = step_all(trainer, tmp_path, trainers(are_drills=True))
    without_step = {name for name, outcome in found.items() if not any(outcome["num_steps"])}
    said = "\n".join(f"{name}: {found[name]['said']}" for name in without_step)
    assert without_step == set(ENDS_BEFORE_ITS_FIRST_STEP), said
    assert not [name for name, outcome in found.items() if "_foreach_" in outcome["said"]]
