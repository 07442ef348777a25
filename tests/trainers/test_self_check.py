"""Two processes that meet over gloo, with one mistake after another on one of them."""

from __future__ import annotations

import json
import sys

import pytest

from tests.trainers.conftest import TRAINERS, Trainer

SCENES = """
import json, os, platform
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from common import distributed
from common.loading import ResumableSampler
from common.distributed import TrainerError, self_check

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for both
dist.init_process_group("gloo")
rank = dist.get_rank()
samples = list(range(321))  # an odd number: the sampler repeats one of them
cpu = torch.device("cpu")
said = []
distributed.print_rank0 = lambda text: said.append(text)


def scene(name, sampler=None, model=None, num_workers=0, shard=None, env=None, **patched):
    env = env or {}
    before = dict(os.environ), {key: getattr(distributed, key) for key in patched}
    os.environ.update(env)
    for key, value in patched.items():
        setattr(distributed, key, value)
    said.clear()
    try:
        sampler = sampler or DistributedSampler(samples, num_replicas=2, rank=rank)
        loader = DataLoader(samples, sampler=ResumableSampler(sampler), num_workers=num_workers)
        if model is None:
            torch.manual_seed(0)
            model = nn.BatchNorm1d(4)
        self_check(model, cpu, loader, shard)
        text = " | ".join(said)
    except TrainerError as error:
        text = str(error)
    os.environ.clear()
    os.environ.update(before[0])
    for key, value in before[1].items():
        setattr(distributed, key, value)
    texts = [None, None]
    dist.all_gather_object(texts, text)
    results[name] = texts


results = {}
scene("healthy")
scene("few cores", num_workers=2)
scene("no sampler", RandomSampler(samples, generator=torch.Generator().manual_seed(rank)))
scene("by LOCAL_RANK", DistributedSampler(samples, num_replicas=2, rank=0), env={"SLURMD_NODENAME": f"node{rank}", "LOCAL_RANK": "0"})
scene("of four", DistributedSampler(samples, num_replicas=4, rank=rank))
scene("not shuffled", DistributedSampler(samples, num_replicas=2, rank=rank, shuffle=False))
scene("one model", RandomSampler(samples, generator=torch.Generator().manual_seed(0)), shard=0)
scene("one model, other data", shard=0)
scene("local rank", env={"LOCAL_RANK": "0"})
scene("device", device_identity=lambda device: "GPU-5f1c")
torch.manual_seed(rank)
scene("parameters", model=nn.Linear(3, 3))
python = platform.python_version
platform.python_version = lambda: f"3.1{rank}.0"
scene("python")
platform.python_version = python
version = torch.__version__
torch.__version__ = f"2.{6 + rank}.0"
scene("torch")
torch.__version__ = version
scene("too many expected", env={"WORLD_SIZE": "3"})
scene("healthy again")
if rank == 0:
    print(json.dumps(results), flush=True)
dist.barrier()
os._exit(0)
"""


@pytest.fixture(scope="module")
def said(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Scene → the output of each rank."""
    script = tmp_path_factory.mktemp("scenes") / "scenes.py"
    script.write_text(SCENES)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
    ]
    done = trainer.call(command, {**trainer.env, "PYTHONPATH": str(TRAINERS)})
    assert done.returncode == 0, done.stderr
    scenes: dict[str, list[str]] = json.loads(done.stdout)
    return scenes


@pytest.mark.train
def test_healthy_ranks_print_the_facts_that_the_self_check_proved(said: dict[str, list[str]]) -> None:
    text = said["healthy"][0]
    assert text.startswith(
        "self-check: 2 ranks on 1 node(s), each with its own place and device, 0.5 core(s) per rank"
    )
    assert "every sample on one rank and in another order every epoch, same parameters" in text
    assert said["healthy again"][0] == text


@pytest.mark.train
def test_fewer_cores_than_processes_is_a_warning_that_names_rank_and_remedy(
    said: dict[str, list[str]],
) -> None:
    warning = said["few cores"][0].partition(" | ")[2]
    assert warning.startswith(
        "warning: self-check: rank 0 has 0.5 core(s) for itself and its 2 loading processes"
    )
    assert "--cpus-per-task" in warning
    assert "num_workers" in warning


@pytest.mark.train
@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("no sampler", "rank 1 trains on samples of rank 0: 321 of its 321"),
        ("by LOCAL_RANK", "rank 1 trains on samples of rank 0: 161 of its 161; the sampler needs"),
        ("of four", "no rank trains on 160 of 321 samples"),
        ("not shuffled", "on rank 0, the next epoch has the same order"),
        ("one model, other data", "ranks 0 and 1 hold parts of one model, but read different samples"),
        ("local rank", "ranks 0 and 1 share one local rank: 0 on "),
        ("device", "ranks 0 and 1 share one device: GPU-5f1c on "),
        ("parameters", "in its parameters after start: "),
        ("python", "in its Python version: 3.11.0 instead of 3.10.0"),
        ("torch", "in its torch version: 2.7.0 instead of 2.6.0"),
        ("too many expected", "2 ranks joined, but WORLD_SIZE is 3"),
    ],
)
def test_a_mistake_on_one_rank_stops_all_and_names_rank_and_cause(
    said: dict[str, list[str]], scene: str, expected: str
) -> None:
    assert said[scene][0] == said[scene][1]
    assert said[scene][0].startswith("self-check: ")
    assert expected in said[scene][0]


@pytest.mark.train
def test_ranks_that_hold_parts_of_one_model_may_read_the_same(said: dict[str, list[str]]) -> None:
    assert said["one model"][0].startswith("self-check: 2 ranks on 1 node(s)")


WITHOUT_SET_EPOCH = """
from torch.utils.data import DataLoader, DistributedSampler
from common.checks import cores_per_rank
from common.loading import ResumableSampler, SeededSamples
from common.distributed import TrainerError
shuffle = DistributedSampler(range(40), num_replicas=2, rank=1)
sampler = ResumableSampler(shuffle)
loader = DataLoader(SeededSamples(range(40), 0), batch_size=4, sampler=sampler)
first = [batch.tolist() for batch in loader]
try:
    list(loader)
except TrainerError as error:
    print(error)
shuffle.set_epoch(1)
assert [batch.tolist() for batch in loader] != first

# Two ranks share cores 0 and 1 of node a, a third has core 2 there for itself; the cores of node b are others.
ranks = [("a", {0, 1}), ("a", {0, 1}), ("a", {2}), ("b", {0, 1, 2, 3})]
assert cores_per_rank(ranks) == [1, 1, 1, 4]
"""


@pytest.mark.train
def test_an_epoch_in_the_order_of_the_one_before_is_an_error(trainer: Trainer) -> None:
    done = trainer.python(WITHOUT_SET_EPOCH)
    assert done.returncode == 0, done.stderr
    assert "rank 0 would train in the order of the epoch before: call set_epoch(epoch)" in done.stdout
