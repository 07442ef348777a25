"""The cluster as strips, at every width and size."""

from __future__ import annotations

import pytest

from coach.analysis.queueing.node_strip import strips_of
from coach.lookback.glance import DeviceUse
from coach.model.slurm.cluster import GpuCount, Node, Partition
from coach.render.text import line_width, plain
from coach.tui.render.node_strip import drawn_strips, strip_lines

GPU = Partition("gpu", True, "up", None, None, 4, 0, 32, 8, (), 8)


def nodes(count: int, kind: str = "a100", total: int = 4, taken: int = 1) -> tuple[Node, ...]:
    return tuple(
        Node(f"{kind}-{index}", "mixed", None, ("gpu",), 8, 2, 1000, 0, (GpuCount(kind, total, taken),))
        for index in range(count)
    )


def shown(count: int, width: int, uses: dict[str, DeviceUse] | None = None, most: int = 8) -> list[str]:
    drawn = drawn_strips(strips_of(nodes(count), (GPU,)), width)
    return [plain(row) for row in strip_lines(drawn, uses or {}, 100.0, width, most)]


def test_few_nodes_have_a_sign_for_each_gpu() -> None:
    (row,) = shown(2, 120)
    assert row.startswith(" a100     █░░░ █░░░  2/8 GPUs allocated, 6 free · 2 nodes")


def test_measured_use_is_shown_with_its_age_below_the_allocation() -> None:
    allocated, used = shown(2, 120, {"a100-1": DeviceUse(1, 95.0, 100.0)})
    assert "2/8 GPUs allocated" in allocated
    assert used.startswith(" in use   ···· █···  100% use measured on 1 GPU of yours, 5 s old")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("count", [1, 40, 10_000])
def test_any_number_of_nodes_fits_any_width(width: int, count: int) -> None:
    rows = strip_lines(drawn_strips(strips_of(nodes(count), (GPU,)), width), {}, 100.0, width, 8)
    assert [line_width(row) <= width for row in rows] == [True]
    if width >= 120:
        assert ("in a block" in plain(rows[0])) == (count > 200)


def test_types_without_room_are_counted() -> None:
    strips = strips_of((*nodes(1), *nodes(1, "h100"), *nodes(1, "v100")), (GPU,))
    (row,) = strip_lines(drawn_strips(strips, 80), {}, 100.0, 80, 1)
    assert "…and 2 more types" in plain(row)
