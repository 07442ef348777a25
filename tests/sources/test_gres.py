from __future__ import annotations

import pytest

from coach.sources.gres import count_gpus, parse_gpus


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
    ],
)
def test_gpus_are_counted_in_every_spelling_that_slurm_uses(
    expression: str, expected: dict[str | None, int]
) -> None:
    assert parse_gpus(expression) == expected


def test_saying_nothing_about_gpus_is_not_saying_zero() -> None:
    assert count_gpus("cpu=2") is None
    assert count_gpus("gres:gpu:a100:0") == 0
