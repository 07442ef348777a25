"""A node: its GPUs with their activity, its jobs, and its last hours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.queueing.free_gpus import allocation_map, free_gpus
from coach.lookback.node_past import NodePast
from coach.model.slurm.cluster import GpuAllocation, GpuCount, Node
from coach.render.text import line_width, plain
from coach.tui.question import Answer
from coach.tui.render.node_page import Measured, NodeSubject, page_lines
from tests.tui.fake_session import NOW_S, make_job
from tests.tui.gpu_jobs import make_gpu_job
from tests.tui.labels import shipped

NODE = Node(
    *("node01", "mixed", None, ("gpu",), 16, 10, 128000, 64000, (GpuCount("h100", 4, 3),)),
    gpu_indices=(1, 2, 3),
)
HELD = (
    GpuAllocation("17", ("node01",), (2, 3)),
    GpuAllocation("12", ("node01",), (1,)),
)


def subject(*measured: Measured) -> NodeSubject:
    past = NodePast()
    past.look((replace(NODE, num_cpus_allocated=2),), NOW_S - 7200)
    past.look((NODE,), NOW_S - 3600)
    jobs = (make_job("12", "bob", num_gpus=1), make_job("17", num_gpus=2))
    answer = Answer(HELD, time_s=NOW_S)
    slots = allocation_map([NODE], HELD)
    return NodeSubject(
        *(NODE, free_gpus([NODE], ()), slots, jobs, measured, answer, past, False, NOW_S, shipped)
    )


def lines(page: NodeSubject, width: int, height: int) -> list[str]:
    rows = page_lines(page, width, height)
    assert [plain(row) for row in rows if line_width(row) > width] == []
    return [plain(row) for row in rows]


@pytest.mark.parametrize("size", [(78, 22), (118, 34), (198, 48)])
def test_it_opens_on_its_gpus_then_the_job_that_holds_most(size: tuple[int, int]) -> None:
    rows = lines(subject(Measured("17", make_gpu_job(1, 2))), *size)
    of_gpus = [at for at, row in enumerate(rows) if row.startswith("   gpu ")]
    # A job counts its GPUs from 0: those of job 17 are the third and the fourth of the node.
    assert ["  use " in rows[at + 1] for at in of_gpus] == [False, False, True, True]
    assert "97%" in rows[of_gpus[2] + 1]
    assert "1 s old" in rows[of_gpus[2] + 1]
    text = "\n".join(rows)
    assert text.index("   17 ") < text.index("   12 ")
    assert "GPU utilization" in text
    assert "newest" in rows[-1]


def test_without_measurements_the_node_shows_its_allocation_and_the_key_that_measures() -> None:
    rows = lines(subject(), 78, 40)
    assert "use is not measured here: t on a job of yours" in rows[-1]
    allocated = next(row for row in rows if "CPUs allocated" in row)
    assert "10 of 16" in allocated


def test_the_charts_of_two_measured_jobs_name_their_job_and_their_lines() -> None:
    both = (Measured("17", make_gpu_job(1, 2)), Measured("12", make_gpu_job(1, 1)))
    rows = lines(subject(*both), 118, 80)
    text = "\n".join(rows)
    assert "GPU utilization, job 17" in text
    assert "GPU utilization, job 12" in text
    assert any(" gpu 0 " in row and " gpu 1 " in row for row in rows), "the legend of the job with two"
    alone = "\n".join(lines(subject(both[0]), 118, 80))
    assert ", job 17" not in alone
