"""The parameters, reports and memory of one rank, at numbers of ranks that no test machine has.

The model is the GPT of 875,264 parameters in 69 tensors: 4 blocks of 198,272, and 82,176 outside of them. A
batch is one sequence of 128 x 128 numbers. AdamW keeps two numbers for each parameter, and a step count for
each tensor.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import TRAINERS, Trainer

NUM_PARAMETERS, NUM_TENSORS = 875_264, 69
BLOCK, REST = 198_272, 82_176
HIDDEN = 128 * 128
SUMS_OF_A_BLOCK = 4
"""After attention and after the MLP; backward before the MLP and before attention, whose query, key and value
share one."""

ASKS_WHO_STOPS = "1 x all_reduce 1 int32"
PROGRAM = Path(__file__).with_name("on_fake_ranks.py")


@dataclass(frozen=True, slots=True)
class Rank:
    shapes: list[tuple[list[int], str]]
    """Of each parameter: what lies on this rank, and how the whole is placed."""
    collectives: list[str]
    parameters: int
    gradients: int
    optimizer: int
    peak: int
    """Bytes above those at the begin of the step."""
    peak_of_profiler: int

    @property
    def said(self) -> list[str]:
        """The collectives of a step in order; equal neighbours are one entry with their number."""
        return [f"{len([*same])} x {words}" for words, same in itertools.groupby(self.collectives)]

    def numbers_in(self, name: str) -> int:
        """How many numbers this rank gives to all collectives of that name."""
        return sum(int(words.split()[1]) for words in self.collectives if words.startswith(name))


def fake_ranks(trainer: Trainer, tmp_path: Path, *wanted: str) -> list[Rank]:
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(trainer.cache_dir), *wanted]
    done = trainer.call(command, trainer.env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return [
        Rank(**{**found[what], "shapes": [tuple(one) for one in found[what]["shapes"]]}) for what in wanted
    ]


def fsdp_says(ranks: int) -> list[str]:
    """All parts are gathered for the forward pass, and the blocks again for the backward pass: the next block
    before the gradients of the previous one are reduced. Parameters outside of blocks stay gathered. The norm
    adds up the norms of all tensors."""
    among, share, rest = f"float32 among {ranks}", BLOCK // ranks, REST // ranks
    return [
        f"{ASKS_WHO_STOPS} among {ranks}",
        f"1 x all_gather {rest} {among}",
        f"6 x all_gather {share} {among}",
        *(f"1 x reduce_scatter {BLOCK} {among}", f"1 x all_gather {share} {among}") * 2,
        f"2 x reduce_scatter {BLOCK} {among}",
        f"1 x reduce_scatter {REST} {among}",
        f"1 x all_reduce {NUM_TENSORS} {among}",
    ]


def holds_its_share(rank: Rank, ranks: int) -> None:
    """1/N of parameters, gradients and optimizer, cut along the first dimension, and nothing else."""
    assert len(rank.shapes) == NUM_TENSORS
    for local, placed in rank.shapes:
        assert placed.endswith("S(0)")
        whole = json.loads(placed.removesuffix(" S(0)"))
        assert local == [whole[0] // ranks, *whole[1:]]
    assert rank.parameters == rank.gradients == 4 * NUM_PARAMETERS // ranks
    assert rank.optimizer == 2 * rank.parameters + 4 * NUM_TENSORS


def holds_its_heads(rank: Rank, tp: int, blocks: int) -> None:
    """1/N of the matrices of its blocks, and of all biases that are no sum's."""
    split = [(local, placed) for local, placed in rank.shapes if "S(" in placed]
    assert len(split) == 10 * blocks
    for local, placed in split:
        whole = json.loads(placed.partition(" S(")[0])
        dimension = int(placed[-2])
        assert local == [size // tp if i == dimension else size for i, size in enumerate(whole)]
    numbers = [math.prod(local) for local, _ in split]
    assert sum(numbers) == blocks * (12 * HIDDEN + 7 * 128) // tp
    assert rank.optimizer == 2 * rank.parameters + 4 * len(rank.shapes)


def is_what_the_profiler_saw(rank: Rank) -> None:
    assert rank.peak == pytest.approx(rank.peak_of_profiler, rel=0.01)


def last_stage_says(tp: int, dp: int, pp: int) -> list[str]:
    """Of the last stage of a pipeline with four micro-batches: the activations come, the heads add up, the
    gradients go. Then copies add up each gradient by itself, in the order of the parameters."""
    ranks, blocks, copies = tp * dp * pp, 4 // pp, f"float32 among {dp}"
    bias, matrix, wide = (f"1 x all_reduce {numbers // tp} {copies}" for numbers in (128, HIDDEN, 4 * HIDDEN))
    norms = f"3 x all_reduce 128 {copies}"  # two of a layer norm, and the bias before or after it
    block = [*(matrix, bias) * 3, matrix, norms, wide, f"1 x all_reduce {512 // tp} {copies}", wide, norms]
    return [
        f"{ASKS_WHO_STOPS} among {ranks}",
        *(
            f"1 x recv {HIDDEN} float32 among {pp}",
            f"{blocks * SUMS_OF_A_BLOCK} x all_reduce {HIDDEN} float32 among {tp}",
            f"1 x send {HIDDEN} float32 among {pp}",
        )
        * 4,
        f"2 x all_reduce 128 {copies}",
        *block * blocks,
        f"1 x all_reduce {256 * 128} {copies}",
        f"1 x all_reduce {12 * blocks} float32 among {tp}",
        f"1 x all_reduce 2 float32 among {ranks}",
    ]


@pytest.mark.train
def test_each_of_eight_ranks_holds_reports_and_keeps_the_share_in_its_lesson(
    trainer: Trainer, tmp_path: Path
) -> None:
    fsdp, hybrid, without_reshard, ddp, heads, mesh = fake_ranks(
        trainer,
        tmp_path,
        "fsdp@3/8",
        "fsdp@3/8=replicas:2",
        "fsdp@3/8=reshard_after_forward:false",
        "ddp@3/8=max_steps:3",  # the first step tells DDP the order of its buckets
        "tensor_parallel@3/4",
        "parallel_3d@5/8=tp:2,pp:2",
    )
    for rank in (fsdp, hybrid, without_reshard, ddp, heads, mesh):
        is_what_the_profiler_saw(rank)

    holds_its_share(fsdp, 8)
    assert fsdp.said == fsdp_says(8)
    assert fsdp.numbers_in("all_gather") * 8 == NUM_PARAMETERS + 4 * BLOCK
    assert fsdp.numbers_in("reduce_scatter") == NUM_PARAMETERS

    holds_its_share(without_reshard, 8)
    assert without_reshard.numbers_in("all_gather") * 8 == NUM_PARAMETERS
    assert without_reshard.peak - fsdp.peak > 4 * 2 * BLOCK  # at the least two blocks more stay gathered

    # Two copies: a group of four gathers and scatters, and of its share the two that have it add up the rest.
    assert {tuple(placed.split("] ")[1:]) for _, placed in hybrid.shapes} == {("R, S(0)",)}
    assert hybrid.parameters == 4 * NUM_PARAMETERS / 4
    by_group = {
        words.partition(" float32 ")[2]
        for words in hybrid.collectives
        if "scatter" in words or "gather" in words
    }
    assert by_group == {"among 4"}
    between = [f"all_reduce {BLOCK // 4} float32 among 2"] * 4 + [f"all_reduce {REST // 4} float32 among 2"]
    assert [words for words in hybrid.collectives if words.endswith("among 2")] == between

    assert {placed for _, placed in ddp.shapes} == {"whole"}
    assert ddp.parameters == ddp.gradients == 4 * NUM_PARAMETERS
    assert ddp.optimizer == 8 * NUM_PARAMETERS + 4 * NUM_TENSORS
    assert ddp.said == [f"{ASKS_WHO_STOPS} among 8", f"1 x all_reduce {NUM_PARAMETERS} float32 among 8"]

    among = "float32 among 4"
    split = [placed for _, placed in heads.shapes if "S(" in placed]
    says = [
        f"{4 * SUMS_OF_A_BLOCK} x all_reduce {HIDDEN} {among}",
        f"1 x all_reduce {len(split) + 8} {among}",
    ]
    assert heads.said == [f"{ASKS_WHO_STOPS} among 4", *says]
    holds_its_heads(heads, 4, 4)
    assert mesh.said == last_stage_says(tp=2, dp=2, pp=2)
    holds_its_heads(mesh, 2, 2)


@pytest.mark.language
@pytest.mark.train
def test_each_rank_of_the_language_model_holds_and_reports_the_share_in_its_lesson(
    trainer: Trainer, tmp_path: Path
) -> None:
    """2 blocks of 49,984 parameters in 16 tensors; outside of them 320 tokens and 32 places of 64 numbers,
    and the last norm. The embedding of the tokens, which also predicts, is there once."""
    sizes = (
        "layers:2,heads:4,embedding:64,sequence_length:32,vocabulary:300,sample_tokens:0,eval_at_end:false"
    )
    sizes += f",text:{TRAINERS / 'common'}"
    fsdp, heads = fake_ranks(trainer, tmp_path, f"gpt_fsdp@3/8={sizes}", f"gpt_tp@3/4={sizes}")
    block, rest, num_tensors = 49_984, (320 + 32 + 2) * 64, 2 * 16 + 4
    whole = 2 * block + rest
    assert fsdp.parameters == fsdp.gradients == 4 * whole // 8
    assert fsdp.optimizer == 2 * fsdp.parameters + 4 * num_tensors
    assert fsdp.numbers_in("all_gather") * 8 == 4 * block + rest  # parameters of both ends stay gathered
    assert fsdp.numbers_in("reduce_scatter") == whole

    split = [placed for _, placed in heads.shapes if "S(" in placed]
    assert ([320, 64], "whole") in heads.shapes
    assert len(split) == 2 * 10
    assert heads.parameters == heads.gradients == 4 * (whole - 2 * (12 * 64**2 + 7 * 64) * 3 // 4)
    assert heads.said[1] == f"{2 * SUMS_OF_A_BLOCK} x all_reduce {32 * 64} float32 among 4"


@pytest.mark.long
@pytest.mark.train
def test_each_of_128_ranks_holds_and_reports_its_share_like_one_of_eight(
    trainer: Trainer, tmp_path: Path
) -> None:
    first, last, mesh = fake_ranks(
        trainer,
        tmp_path,
        "fsdp@0/128",
        "fsdp@127/128",
        "parallel_3d@127/128=tp:4,pp:4,num_train_samples:320",
    )
    for rank in (first, last):
        holds_its_share(rank, 128)
        assert rank.said == fsdp_says(128)
    assert mesh.said == last_stage_says(tp=4, dp=8, pp=4)
    holds_its_heads(mesh, 4, 1)
    for rank in (first, last, mesh):
        is_what_the_profiler_saw(rank)
