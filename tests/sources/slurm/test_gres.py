from __future__ import annotations

import pytest

from coach.sources.slurm.gres import Gres, count_gpus, gpu_indices, parse_gpus, parse_gres


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("gpu:a100:2(IDX:0-1)", {"a100": 2}),
        ("gpu:a100:4(IDX:0,2-3,5)", {"a100": 4}),
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:a100:0(IDX:N/A)", {"a100": 0}),
        ("gpu:(null):4(IDX:0-3)", {None: 4}),
        ("gpu:a100:4(S:0),gpu:h100:2(S:1),shard:8", {"a100": 4, "h100": 2}),
        ("gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:4)", {"a100": 2, "h100": 1}),
        ("gpu:2", {None: 2}),
        ("gpu:3090:2", {"3090": 2}),
        ("gpu", {None: 1}),
        ("gres:gpu:2", {None: 2}),
        ("gres/gpu:2", {None: 2}),
        ("gres:gpu:a100:2", {"a100": 2}),
        ("gres/gpu:a100:2", {"a100": 2}),
        ("cpu=2,mem=8G,node=2,gres/gpu=4,gres/gpu:a100=4", {"a100": 4}),
        ("cpu=2,gres/gpu=4", {None: 4}),
        ("cpu:1,gres/gpu=1", {None: 1}),
        ("cpu=2,mem=200M,node=2,billing=2", {}),
        ("N/A", {}),
        ("(null)", {}),
        ("", {}),
        ("shard:8,mps:100,nogpu:4", {}),
        ("gpu:1g.5gb:7(S:0-1),gpu:nvidia_a100_3g.20gb:1", {"1g.5gb": 7, "nvidia_a100_3g.20gb": 1}),
        ("gpu:a100:no_consume:4", {"a100": 4}),
        ("gpu:a100:2(S:0-1)(IDX:0-1)", {"a100": 2}),
        ("gres/gpu:1g.5gb=3,gres/shard=4", {"1g.5gb": 3}),
    ],
)
def test_gpus_are_counted_in_every_spelling_that_slurm_uses(
    expression: str, expected: dict[str | None, int]
) -> None:
    assert parse_gpus(expression) == expected


def test_an_expression_without_gpus_gives_unknown_and_not_zero() -> None:
    assert count_gpus("cpu=2") is None
    assert count_gpus("gres:gpu:a100:0") == 0


def test_shards_and_index_lists_are_separate_items() -> None:
    assert parse_gres("gpu:h100:4(IDX:0-2,5),shard:h100:6(0/8,6/8,0/8,0/8),gpu:(null):0(IDX:N/A)") == (
        Gres("gpu", "h100", 4, (0, 1, 2, 5)),
        Gres("shard", "h100", 6, (1,)),
        Gres("gpu", None, 0, None),
    )


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ("gpu:a100:2(IDX:0-1)", (0, 1)),
        ("gpu:a100:1(IDX:3),gpu:h100:2(IDX:4-5)", (3, 4, 5)),
        ("gpu:a100:0(IDX:N/A)", ()),
        ("gpu:a100:2", None),
        ("(null)", None),
        ("gpu:a100:2(IDX:0-99999999999)", ()),
    ],
)
def test_gpus_in_use_have_indices_or_are_unknown(used: str, expected: tuple[int, ...] | None) -> None:
    assert gpu_indices(used) == expected
