"""Benches, the trainers of the lessons that measure: each writes all of its rows, and its arithmetic is
right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import Trainer, event_in, read_records

pytestmark = pytest.mark.train

NOT_OPTIONS: dict[str, Any] = {
    "width": None,
    "num_train_samples": None,
    "batch_size": None,
    "num_workers": None,
    "eval_every_epoch": None,
}
"""Options that the fixture passes by default, and that benches do not have."""

DIVERGED = """
import sys
from argparse import Namespace
import torch
import number_formats
from common.bench import Bench

kinds = {"weights": torch.tensor([float("nan"), float("inf"), 1.0]), "activations": torch.zeros(3)}
number_formats.gradients_of_last_step = lambda *_: kinds
with Bench(Namespace(run_dir=sys.argv[1], max_seconds=0, max_steps=3), torch.device("cpu")) as bench:
    number_formats.show_gradients(Namespace(max_steps=3), None, bench.device, bench)
"""

SERVER = """
import argparse, os, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from common.bench import Bench
from common.distributed import gather
from stale_gradients import NO_MORE, Server

NUM_WORKERS, NUM_GRADIENTS = 3, 10
folder, rank, pids = sys.argv[1], 0, []
for number in range(1, NUM_WORKERS + 1):
    pids.append(os.fork())
    if not pids[-1]:
        rank = number
        break
store = dist.FileStore(f"{folder}/store", NUM_WORKERS + 1)
patience = timedelta(seconds=100)
dist.init_process_group("gloo", store=store, rank=rank, world_size=NUM_WORKERS + 1, timeout=patience)
args = argparse.Namespace(run_dir=folder, max_seconds=0, max_steps=NUM_GRADIENTS, lr=0.5, batch_size=1)
start = torch.tensor([1.0, -2.0])

def work():
    batches, message = [], torch.empty(2 + 2)
    while True:
        dist.recv(message, 0)
        if message[-1] == NO_MORE:
            return batches
        batches.append(int(message[-1]))
        # The gradient is the parameters that this worker has read, so an update at lr 0.5 halves them.
        dist.send(torch.cat([message[:3], torch.ones(1)]), 0)

bench, ages = Bench(args, torch.device("cpu")) if rank == 0 else None, {}
for way in ("fresh", "sync", "async"):
    if rank == 0:
        server = Server(args, start.clone(), NUM_WORKERS, bench)
        getattr(server, f"serve_{way}")()
        server.send_to_all(NO_MORE)
        ages[way] = server.ages
        num_updates = 4 if way == "sync" else NUM_GRADIENTS  # three updates of three, one of one
        assert server.version == num_updates, (way, server.version)
        if way != "async":
            assert torch.equal(server.parameters, start * 0.5**num_updates), (way, server.parameters)
    by_rank = gather([] if rank == 0 else work())
    assert sorted(sum(by_rank, [])) == list(range(NUM_GRADIENTS)), (way, by_rank)
if rank:
    os._exit(0)
assert ages["fresh"] == ages["sync"] == [0] * NUM_GRADIENTS, ages
# A worker's gradient of age N is applied N + 1 updates after that worker's gradient before it. So the sum of
# (age + 1) over one worker's gradients is at most the number of all updates.
assert len(ages["async"]) == NUM_GRADIENTS
assert 0 < sum(ages["async"]) <= (NUM_WORKERS - 1) * NUM_GRADIENTS, ages
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * NUM_WORKERS
print("counted", flush=True)
os._exit(0)
"""


def rows_of(
    trainer: Trainer, name: str, run_dir: Path, event: str, ranks: int = 1, **flags: object
) -> list[dict[str, Any]]:
    """Run a bench to its end on the CPU. Return its events of this kind: the rows of its table."""
    done = trainer.run(name, run_dir, ranks, **{**NOT_OPTIONS, **flags})
    assert done.returncode == 0, done.stderr
    records = read_records(run_dir)
    assert event_in(records, "start")["device"] == "cpu"
    assert event_in(records, "end")["reason"] == "max_steps"
    return [record for record in records if record.get("event") == event]


def test_four_convolutions_are_equal_on_even_odd_and_single_sizes(trainer: Trainer) -> None:
    code = """
import torch
import torch.nn.functional as F
from convolutions import direct, fft, im2col, multiplications, winograd

torch.manual_seed(0)
for num_in, num_out, size, width in ((3, 5, 8, 3), (2, 4, 7, 3), (1, 1, 1, 3), (4, 2, 9, 5), (2, 3, 6, 7)):
    images = torch.randn(2, num_in, size, size, dtype=torch.float64)
    kernels = torch.randn(num_out, num_in, width, width, dtype=torch.float64)
    expected = F.conv2d(images, kernels, padding=width // 2)
    for convolve in (direct, im2col, fft, *([winograd] if width == 3 else [])):
        found = convolve(images, kernels)
        assert found.shape == expected.shape, (convolve.__name__, found.shape)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=convolve.__name__)
shape = (1, 2, 3, 8, 3)
assert multiplications("direct", *shape) == 2 * 3 * 64 * 9 == 2.25 * multiplications("winograd", *shape)
assert multiplications("winograd", 1, 1, 1, 7, 3) == 16 * 16
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_each_convolution_has_a_row_with_its_time_and_a_small_error(trainer: Trainer, tmp_path: Path) -> None:
    rows = rows_of(trainer, "convolutions.py", tmp_path, "convolution", batch_size=1, max_steps=1)
    assert len(rows) == 3 * 5 + 2 * 4
    assert {row["way"] for row in rows} == {"conv2d", "direct", "im2col", "fft", "winograd"}
    assert all(0 <= row["largest_error"] < 1e-4 and row["convolution_time_s"] > 0 for row in rows)


def test_number_formats_lose_precision_by_their_bits_and_histograms_count_every_gradient(
    trainer: Trainer, tmp_path: Path
) -> None:
    sums = rows_of(
        trainer,
        "number_formats.py",
        tmp_path,
        "sum",
        max_steps=2,
        num_terms=300,
        width=4,
        batch_size=8,
        num_train_samples=16,
    )
    plain = {row["format"]: row["plain"] for row in sums}
    assert plain == {"fp32": 300, "tf32": 300, "fp16": 300, "bf16": 256, "e4m3": 16, "e5m2": 8}
    kahan = {row["format"]: row["kahan"] for row in sums}
    assert kahan["bf16"] == 300
    assert {row["in_fp32"] for row in sums} == {300}

    records = read_records(tmp_path)
    largest = {row["format"]: row["largest"] for row in records if row.get("event") == "format"}
    assert largest["tf32"] == (2 - 2**-10) * 2.0**127 < largest["fp32"] == (2 - 2**-23) * 2.0**127
    assert (largest["fp16"], largest["e4m3"], largest["e5m2"]) == (65504, 448, 57344)
    became = {row["format"]: row["became"] for row in records if row.get("event") == "format"}
    assert became["fp16"] == ["0", "0.099976", "4096", "inf"]
    assert became["bf16"][2:] == ["4096", "70144"]
    assert became["tf32"][2:] == ["4096", "69952"]
    assert became["e4m3"] == ["0", "0.10156", "inf", "inf"]
    num_parameters = event_in(records, "start")["num_parameters"]
    weights = next(row for row in records if row.get("kind") == "weights" and "counts" in row)
    assert sum(weights["counts"]) + weights["num_zero"] == num_parameters
    lost = {(row["kind"], row["format"]): row for row in records if row.get("event") == "lost"}
    assert set(lost["activations", "fp32"]["to_zero"]) == {0}
    to_zero = lost["activations", "e4m3"]["to_zero"]
    assert to_zero[0] > 0
    assert to_zero == sorted(to_zero, reverse=True), "with a larger loss scale fewer values become zero"


def test_gradients_of_a_training_that_has_diverged_are_not_taken_for_numbers(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(DIVERGED, tmp_path)
    assert done.returncode == 0, done.stderr
    not_finite, zero = (line for line in done.stdout.splitlines() if line)
    assert not_finite.startswith("gradients of the weights: not measured: 2 of them are not finite; ")
    assert zero.startswith("gradients of the activations: not measured: all of them are zero; ")
    assert read_records(tmp_path) == []


def test_a_server_hands_out_every_batch_once_and_counts_how_old_each_gradient_is(
    trainer: Trainer, tmp_path: Path
) -> None:
    done = trainer.python(SERVER, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "counted"


@pytest.mark.long
def test_a_server_applies_the_same_number_of_gradients_in_three_ways(
    trainer: Trainer, tmp_path: Path
) -> None:
    num_gradients, num_workers = 13, 2
    flags = {"max_steps": num_gradients, "width": 4, "batch_size": 40, "num_train_samples": 32}
    ways = {
        row["way"]: row
        for row in rows_of(trainer, "stale_gradients.py", tmp_path, "way", ranks=1 + num_workers, **flags)
    }
    for row in ways.values():
        assert sum(row["gradients_by_age"]) == num_gradients
        assert row["loss"] > 0
    assert ways["fresh"]["gradients_by_age"] == [num_gradients]
    assert ways["fresh"]["num_updates"] == num_gradients
    assert ways["sync"]["gradients_by_age"] == [num_gradients]
    assert ways["sync"]["num_updates"] == 7  # six updates of two gradients each, and one of one
    assert ways["async"]["num_updates"] == num_gradients
    assert 0 < ways["async"]["mean_age"] <= num_workers - 1
    steps = [record for record in read_records(tmp_path) if "event" not in record]
    assert [step["step"] for step in steps] == list(range(1, num_gradients + 1))
    assert {step["num_samples"] for step in steps} == {32}  # there are no more


def test_the_buckets_of_each_row_hold_all_gradients_and_the_last_row_has_one(
    trainer: Trainer, tmp_path: Path
) -> None:
    rows = rows_of(
        trainer, "ddp_buckets.py", tmp_path, "buckets", ranks=2, width=8, batch_size=1, max_steps=3
    )
    num_bytes = 4 * event_in(read_records(tmp_path), "start")["num_parameters"]
    assert {sum(row["bucket_bytes"]) for row in rows} == {num_bytes}
    counts = [len(row["bucket_bytes"]) for row in rows]
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)
    assert all(row["bucket_step_s"] > 0 for row in rows)


def test_the_calculated_step_time_overlaps_messages_with_the_backward_pass(trainer: Trainer) -> None:
    code = """
import json
from ddp_buckets import fastest, model_of_step

assert fastest([(9, 0.1, 3.0), (2, 0.25, 1.0), (1, 1, 1.2), (1, 4, 0.9)]) == "all in one bucket"
assert fastest([(9, 0.1, 3.0), (2, 0.25, 1.0), (2, 1, 0.9), (1, 4, 1.2)]) == "2 buckets, bucket_cap_mb=0.25"
ready = {3: 1.0, 2: 2.0, 1: 3.0, 0: 4.0}  # the last layer's gradient comes first
def step(*buckets, alpha):
    return model_of_step([(list(numbers), 10 * len(numbers)) for numbers in buckets], ready, 5.0, alpha, 0.05)

print(json.dumps([
    step([3], [2], [1], [0], alpha=0.5),  # each message takes 1.0, and overlaps with the backward pass
    step([3], [2], [1], [0], alpha=2.0),  # the messages queue: four of 2.5 each, from time 1.0 on
    step([3, 2], [1, 0], alpha=2.0),
    step([3, 2, 1, 0], alpha=2.0),  # the only message starts when all gradients are ready
]))
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == pytest.approx([5.0, 1 + 4 * 2.5, 5 + 3.0, 4 + 4.0])


@pytest.mark.kernels
def test_the_triton_kernel_is_right_and_the_cuda_kernel_compiles(trainer: Trainer, tmp_path: Path) -> None:
    rows = rows_of(
        trainer, "fused_kernel.py", tmp_path, "kernel", rows=5, columns=300, max_steps=1, compile="false"
    )
    ways = {row["way"]: row for row in rows if row["way"] != "cuda"}
    assert ways["eager"]["kernel_time_s"] > 0
    assert ways["triton"]["kernel_time_s"] is None  # the time of an interpreted kernel means nothing
    assert all(way["largest_error"] < 1e-5 for way in ways.values())
    compiled = [row for row in rows if row["way"] == "cuda"]
    assert [row["architecture"] for row in compiled] == ["sm_80", "sm_90"]
    assert all(row["num_binary_bytes"] > 1000 for row in compiled)


@pytest.mark.long
@pytest.mark.kernels
def test_both_kernels_compile_to_machine_code_for_two_gpus(trainer: Trainer, tmp_path: Path) -> None:
    code = """
import os, sys
import torch
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
torch.cuda.is_available = lambda: True  # otherwise Triton interprets the kernel
from fused_kernel import bias_gelu_in_triton, compile_cuda
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

types = dict.fromkeys(["x", "bias", "result"], "*fp32") | dict.fromkeys(["num_numbers", "num_columns"], "i32")
# The annotations are strings (`from __future__ import annotations`). Triton must still find the constexpr.
assert [parameter.is_constexpr for parameter in bias_gelu_in_triton.params] == [False] * 5 + [True]
for capability in (80, 90):
    source = ASTSource(bias_gelu_in_triton, {**types, "BLOCK": "constexpr"}, {"BLOCK": 1024})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm
    assert f".target sm_{capability}" in made["ptx"] and made["cubin"].startswith(b"\\x7fELF")
    assert compile_cuda(f"sm_{capability}").startswith(b"\\x7fELF")
"""
    done = trainer.python(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.kernels
def test_a_cuda_kernel_with_an_error_is_refused_with_the_compiler_s_message(trainer: Trainer) -> None:
    code = """
import fused_kernel
fused_kernel.CUDA_SOURCE = fused_kernel.CUDA_SOURCE.replace("tanhf(inner)", "tanhf(outer)")
try:
    fused_kernel.compile_cuda("sm_80")
except fused_kernel.TrainerError as error:
    print(error)
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr
    assert 'identifier "outer" is undefined' in done.stdout


def test_a_prefetcher_gives_every_batch_once_and_in_order(trainer: Trainer, tmp_path: Path) -> None:
    rows = rows_of(trainer, "prefetcher.py", tmp_path, "way", max_steps=1, batch_mib=1, num_batches=2, work=1)
    assert [row["way"] for row in rows] == ["ordinary", "prefetcher"]
    assert all(row["batch_time_s"] > 0 for row in rows)
    code = """
import torch
from prefetcher import DataPrefetcher
batches = [torch.full((2,), float(number)) for number in range(5)]
cpu = torch.device("cpu")
assert [batch[0].item() for batch in DataPrefetcher(batches, cpu)] == [0, 1, 2, 3, 4]
assert list(DataPrefetcher([], cpu)) == []
"""
    done = trainer.python(code)
    assert done.returncode == 0, done.stderr


def test_a_bench_starts_no_new_row_after_a_stop_signal(trainer: Trainer, tmp_path: Path) -> None:
    code = """
import argparse, os, signal, sys
import torch
from common.bench import Bench

with Bench(argparse.Namespace(run_dir=sys.argv[1], max_seconds=0, max_steps=3), torch.device("cpu")) as bench:
    bench.start()
    calls = []
    assert bench.goes_on() and bench.seconds_of(lambda: calls.append(1)) >= 0
    assert len(calls) == 5 and bench.step == 3
    os.kill(os.getpid(), signal.SIGTERM)
    assert not bench.goes_on()
    bench.finish()
"""
    done = trainer.python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SIGTERM received" in done.stdout
    assert event_in(read_records(tmp_path), "end")["reason"] == "signal"
