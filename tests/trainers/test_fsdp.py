from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import TRAINERS, Trainer, event_in, read_records, steps_in
from tests.trainers.test_ddp import read_whole_lines
from tests.waiting import PATIENCE, wait_until


@pytest.mark.train
def test_every_rank_keeps_its_share_and_a_restarted_job_goes_on_from_the_newest_whole_checkpoint(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags = {"precision": "bf16", "reshard_after_forward": "false", "eval_every_epoch": "true"}
    done = trainer.run("fsdp.py", tmp_path, ranks=2, epochs=1, checkpoint_every=3, **flags)
    assert done.returncode == 0, done.stderr
    assert "self-check: 2 ranks on 1 node(s)" in done.stdout
    by_rank = [read_records(tmp_path, rank) for rank in range(2)]
    assert event_in(by_rank[0], "start")["num_parameters"] == 39_626  # of the whole model
    for one, other in zip(*(steps_in(records) for records in by_rank), strict=True):
        assert one["grad_norm"] == other["grad_norm"]  # of all shares, on both ranks
        assert one["loss"] != other["loss"]
    assert event_in(by_rank[0], "eval")["accuracy"] == event_in(by_rank[1], "eval")["accuracy"]

    checkpoints = tmp_path / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000009", "step-00000010"]
    newest = checkpoints / "step-00000010"
    assert event_in(by_rank[1], "checkpoint")["path"] == str(newest)
    half = (
        4 * 2 * 39_626 / 2
    )  # of weights and momentum; rank 0's file holds the plain values of the optimizer as well
    sizes = [(newest / f"__{rank}_0.distcp").stat().st_size for rank in range(2)]
    assert half < sizes[1] < 1.5 * half
    assert half < sizes[0] < 3 * half

    # Killed while it wrote the next checkpoint: an incomplete one has another name.
    (checkpoints / ".unfinished-step-00000012").mkdir()
    done = trainer.run("fsdp.py", tmp_path, ranks=2, max_steps=13, checkpoint_every=13, **flags)
    assert done.returncode == 0, done.stderr
    assert f"resumed at step 10 from {newest}" in done.stdout
    assert [step["step"] for step in steps_in(read_records(tmp_path))] == list(range(1, 14))
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000010", "step-00000013"]


BUILT_IN_SHARES = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from common.distributed import TrainerError, hash_of_parameters
from common.models import build_model, count_parameters, parts_of
from common.sharded import Beginning, sharding_mesh

class Largest(TorchDispatchMode):
    num = 0  # bytes
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and not leaf.is_meta:
                self.num = max(self.num, leaf.nbytes)
        return result

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
for name in sys.argv[1:]:
    torch.manual_seed(7)
    whole = build_model(name, 64)
    torch.manual_seed(8)
    build_model(name, 64)
    next_of_this_rank = torch.rand(3)

    torch.manual_seed(8)
    with Largest() as largest:
        with torch.device("meta"), Beginning(7) as beginning:
            model = beginning.of(build_model(name, 64))
        assert torch.equal(torch.rand(3), next_of_this_rank)  # as on a rank that builds the whole
        for part in [*parts_of(model), model]:
            fully_shard(part, mesh=sharding_mesh(torch.device("cpu"), 1))
        beginning.fill(model.to_empty(device="cpu"), torch.device("cpu"))
    assert beginning.hash == hash_of_parameters(whole)
    assert largest.num == max(tensor.nbytes for tensor in whole.parameters())  # one tensor at a time
    for mine, its in zip(model.parameters(), whole.parameters()):
        shares = its.chunk(3)
        assert torch.equal(mine.to_local(), shares[1] if len(shares) > 1 else its[:0])
    for mine, its in zip(model.buffers(), whole.buffers()):
        assert torch.equal(mine, its)
    print(name, "begins as the whole does")

with torch.device("meta"), Beginning(7) as beginning:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.empty(2))
beginning.of(model)
try:
    beginning.fill(model.to_empty(device="cpu"), torch.device("cpu"))
except TrainerError as error:
    print(error)
"""


@pytest.mark.train
@pytest.mark.parametrize(
    "models", [["simplecnn", "gpt"], pytest.param(["resnet18"], marks=pytest.mark.long)], ids=" ".join
)
def test_no_rank_builds_the_whole_model_and_all_have_shares_of_the_one_that_one_device_has(
    trainer: Trainer, models: list[str]
) -> None:
    done = trainer.python(BUILT_IN_SHARES, *models)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(f"{model} begins as the whole does" for model in models),
        "weight: its initial values are not defined, so it cannot be built in shares",
    ]


@pytest.mark.train
def test_copies_of_the_model_that_do_not_share_out_the_ranks_are_refused(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.run("fsdp.py", tmp_path, ranks=2, max_steps=1, replicas=3)
    assert done.returncode != 0
    assert "error: 2 ranks cannot be shared out evenly over --replicas 3" in done.stderr


SLOW_DISK = """
import sys
import threading
from pathlib import Path
from torch.distributed.checkpoint import FileSystemWriter

def write_for_ever(self, plan, planner):
    if "step-00000024" in str(self.path):
        threading.Event().wait()
    return write(self, plan, planner)

write, FileSystemWriter.write_data = FileSystemWriter.write_data, write_for_ever
import fsdp
fsdp.run(fsdp.main)
"""


@pytest.mark.long
@pytest.mark.train
def test_training_goes_on_while_a_checkpoint_is_written_and_a_kill_leaves_the_one_before(
    trainer: Trainer, tmp_path: Path
) -> None:
    program = tmp_path / "slow_disk.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(TRAINERS)!r})\n{SLOW_DISK}")
    flags: dict[str, Any] = {"checkpoint_every": 12, "async_checkpoint": "true", "num_train_samples": 1600}
    command = trainer.command("fsdp.py", tmp_path, 2, max_steps=100, **flags)
    command[command.index(str(TRAINERS / "fsdp.py"))] = str(program)
    metrics = [tmp_path / "metrics" / f"rank-{rank}.jsonl" for rank in range(2)]
    process = trainer.begin(command, trainer.env)
    try:
        # Both ranks are after step 24 and have not written its checkpoint.
        wait_until(
            lambda: all(path.exists() and b'"step":33,' in path.read_bytes() for path in metrics),
            what="steps behind the checkpoint",
        )
        for path in metrics:
            os.kill(event_in(read_whole_lines(path), "start")["pid"], signal.SIGKILL)
        process.communicate(timeout=60 * PATIENCE)
    finally:
        process.terminate()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [".unfinished-step-00000024", "step-00000012"]
    killed = steps_in(read_whole_lines(metrics[0]))

    done = trainer.run("fsdp.py", tmp_path, ranks=2, max_steps=25, **flags)
    assert done.returncode == 0, done.stderr
    assert "resumed at step 12 from" in done.stdout
    assert "checkpoint of step 24 was complete after" in done.stdout
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000024", "step-00000025"]
    again = steps_in(read_records(tmp_path))[len(killed) :]
    assert [step["step"] for step in again] == list(range(13, 26))
    for key in ("loss", "grad_norm"):  # the copy is the state of step 12, bit for bit
        assert [step[key] for step in again] == [step[key] for step in killed[12:25]]


NOT_A_CHECKPOINT = """
import sys
import torch
from common.distributed import TrainerError
from common.sharded import load_state
folder = sys.argv[1]
torch.save({"made_with": {"ranks": 2}}, f"{folder}/trainer.pt")
for path, made_with in ((f"{folder}/none", {}), (f"{folder}/trainer.pt", {}), (folder, {"ranks": 4})):
    try:
        load_state(path, made_with)
    except TrainerError as error:
        print(error)
"""


@pytest.mark.train
def test_a_checkpoint_of_another_trainer_is_refused_in_one_line(trainer: Trainer, tmp_path: Path) -> None:
    done = trainer.python(NOT_A_CHECKPOINT, tmp_path)
    assert done.returncode == 0, done.stderr
    missing, file, other = done.stdout.splitlines()
    assert missing == f"{tmp_path}/none/trainer.pt: no such checkpoint"
    assert file.startswith(f"{tmp_path}/trainer.pt/trainer.pt: not a checkpoint of these trainers")
    assert other == f"{tmp_path}/trainer.pt: was made with ranks=2, but this run has ranks=4"


@pytest.mark.long
@pytest.mark.train
def test_a_resumed_job_augments_and_drops_out_as_if_it_had_never_ended_and_all_as_ddp_does(
    trainer: Trainer, tmp_path: Path
) -> None:
    flags = {"max_steps": 8, "gradient_accumulation": 2}
    assert trainer.run("ddp.py", tmp_path / "ddp", ranks=2, **flags).returncode == 0
    for until in (3, 8):
        done = trainer.run("fsdp.py", tmp_path / "fsdp", ranks=2, **{**flags, "max_steps": until})
        assert done.returncode == 0, done.stderr
    for rank in range(2):
        ddp, fsdp = (
            [step["loss"] for step in steps_in(read_records(tmp_path / name, rank))]
            for name in ("ddp", "fsdp")
        )
        assert fsdp == pytest.approx(ddp, rel=1e-4)


@pytest.mark.long
@pytest.mark.train
def test_a_signal_to_one_rank_lets_all_write_their_shares_of_the_same_step(
    trainer: Trainer, tmp_path: Path
) -> None:
    metrics = [tmp_path / "metrics" / f"rank-{rank}.jsonl" for rank in range(2)]
    process = trainer.start("fsdp.py", tmp_path, ranks=2, max_steps=100_000)
    try:
        wait_until(
            lambda: all(path.exists() and b'"loss"' in path.read_bytes() for path in metrics),
            what="the first steps",
        )
        os.kill(event_in(read_whole_lines(metrics[1]), "start")["pid"], signal.SIGUSR1)
        _, stderr = process.communicate(timeout=60 * PATIENCE)
    finally:
        process.terminate()
    assert process.returncode == 0, stderr
    by_rank = [read_records(tmp_path, rank) for rank in range(2)]
    last = [steps_in(records)[-1]["step"] for records in by_rank]
    assert last[0] == last[1]
    assert [event_in(records, "checkpoint")["reason"] for records in by_rank] == ["signal", "signal"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"step-{last[0]:08d}"]
