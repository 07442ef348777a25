"""No step waits for the GPU or for the other ranks more often than it must."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.trainers.conftest import TRAINERS, Trainer
from tests.waiting import PATIENCE

pytestmark = pytest.mark.train

GPT = "layers:1,heads:2,embedding:16,sequence_length:32,vocabulary:300,sample_tokens:0,eval_at_end:false"
GPT += f",text:{TRAINERS / 'common'}"
READS_IN_A_STEP = {
    "baseline": 0,
    "amp=precision:fp16": 1,  # scaler.step reads whether a gradient overflowed
    "amp=precision:fp16,fused": 0,
    "amp=precision:bf16": 0,
    "ddp": 0,
    "ddp_amp=precision:bf16": 0,
    "ddp_amp=precision:fp16": 1,
    "fsdp": 0,
    "tensor_parallel=model:gpt,width:16,max_steps:3": 0,
    "pipeline_parallel=model:gpt,width:16,max_steps:3": 0,
    f"gpt={GPT}": 0,
    f"gpt_fsdp={GPT},max_steps:3": 0,
    f"gpt_tp={GPT},max_steps:3": 0,
    "gpu_data": 0,
    "fast=compile:false": 0,
}

BY_NOW = """
import os, sys
from pathlib import Path
import torch.distributed as dist
from common import distributed
from common.distributed import any_rank_by_now

assert any_rank_by_now(True) and not any_rank_by_now(False)  # one process asks nobody
rank, store = int(os.environ["RANK"]), dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)

def asked_first_by(first, is_true):
    # The other rank asks only when this one has its answer: who waited for the other would wait forever.
    if rank != first:
        store.wait([f"asked {first} {is_true}"])
    answer = any_rank_by_now(is_true)
    store.set(f"asked {rank} {is_true}", "")
    return answer

assert asked_first_by(0, False) is False
assert any_rank_by_now(rank == 1) is False  # nobody at the call before
assert any_rank_by_now(False) is True  # rank 1 at the call before, and rank 0 hears of it in the same step
assert not distributed._question  # after a yes there is nothing more to ask
assert any_rank_by_now(False) is False and distributed._question

class Metrics:
    logging_time_s = 0.0
    timing = type("Timing", (), {"summary": lambda self: {"num_steady_steps": 0}})()
    flush = close = lambda self: None
    event = lambda self, *args, **fields: None

distributed.as_text = str
distributed._leave = lambda code: None
distributed.finish(Metrics(), 1, "epochs")
assert not distributed._question, "left with a question on its way"
print("agreed", flush=True)
os._exit(0)
"""


WITHOUT_RECORDS = """
import sys
import torch
from common.metrics import MetricsLog

class Event:
    num = 0
    def record(self):
        Event.num += 1
    def synchronize(self):
        Event.num += 1

torch.cuda.Event = Event
torch.cuda.synchronize = lambda device: Event().synchronize()
for log_steps in (False, True):
    metrics = MetricsLog(sys.argv[1], torch.device("cuda"), log_steps=log_steps)
    for step in range(5):
        metrics.step(step=step, step_time_s=0.1, data_time_s=0.0, num_samples_global=8)
    metrics.wait_for_device()
    print(Event.num, metrics.timing.summary()["step_time_median_s"])
"""


def test_a_step_reads_no_more_from_the_device_than_it_must(trainer: Trainer, tmp_path: Path) -> None:
    script = Path(__file__).with_name("counted.py")
    command = [sys.executable, str(script), str(tmp_path), str(trainer.cache_dir), *READS_IN_A_STEP]
    done = trainer.call(command, trainer.env)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert {what: set(found["step"]) for what, found in counts.items()} == {
        what: {num} for what, num in READS_IN_A_STEP.items()
    }
    for found in counts.values():  # an interval of the log is ten steps
        assert found["record"] == [int(step == 10) for step in range(1, len(found["record"]) + 1)]


def test_ranks_agree_in_the_same_step_without_waiting_and_leave_no_question_open(
    trainer: Trainer, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", BY_NOW, str(tmp_path / "store")]
    env = {**trainer.env, "PYTHONPATH": str(TRAINERS)}
    ranks = [trainer.begin(command, {**env, "RANK": str(rank)}) for rank in range(2)]
    try:
        outputs = [process.communicate(timeout=120 * PATIENCE) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], outputs
    assert all(stdout.endswith("agreed\n") for stdout, _ in outputs), outputs


def test_without_records_of_steps_the_host_never_waits_for_the_gpu_and_times_no_step(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(WITHOUT_RECORDS, tmp_path)
    assert done.returncode == 0, done.stderr
    # Five ends of steps, four waits for the one before, and the wait at the end.
    assert done.stdout.splitlines() == ["0 None", "10 0.10000000149011612"]
