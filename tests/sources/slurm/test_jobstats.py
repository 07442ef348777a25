"""jobstats' summary in AdminComment, in the form in which a site's epilog writes it."""

from __future__ import annotations

import base64
import gzip
import json
import time
import zlib
from typing import Any

import pytest

from coach.sources.slurm.ended_jobs import parse_history
from coach.sources.slurm.jobstats import parse_jobstats
from tests.sources.scripted_io import captured

GIB = 2**30
GPU_JOB: dict[str, Any] = {
    "gpus": 1,
    "nodes": {
        "della-k1g1": {
            "cpus": 12,
            "gpu_total_memory": {"1": 85899345920},
            "gpu_used_memory": {"1": 83314868224},
            "gpu_utilization": {"1": 98.6},
            "total_memory": 137438953472,
            "total_time": 57620.8,
            "used_memory": 84683702272,
        }
    },
    "total_time": 50944,
}
"""As jobstats' own documentation shows it."""


def comment(summary: object) -> str:
    """The words of jobstats: JSON, gzip, base64, and a prefix."""
    return "JS1:" + packed(json.dumps(summary).encode())


def packed(data: bytes) -> str:
    """Without gzip's time stamp: these texts name tests, and every worker must collect the same names."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii")


def node(**values: object) -> dict[str, object]:
    return {"cpus": 4, "total_time": 100, "used_memory": GIB, "total_memory": 8 * GIB, **values}


def test_jobstats_gives_the_efficiency_of_a_job_that_coach_never_saw() -> None:
    used = parse_jobstats(comment(GPU_JOB))
    assert used is not None
    assert used.cpu_pct == pytest.approx(100 * 57620.8 / (12 * 50944))
    assert used.memory_pct == pytest.approx(61.6, abs=0.1)
    assert (used.memory_used_mib, used.memory_asked_mib) == (84683702272 / 2**20, 131072.0)
    assert used.gpu_pct == 98.6


def test_nodes_are_summed_and_gpus_are_averaged() -> None:
    nodes = {"a": node(gpu_utilization={"0": 90, "1": 10.0}), "b": node(gpu_utilization={"0": 50, "1": 50})}
    used = parse_jobstats(comment({"nodes": nodes, "total_time": 100, "gpus": 4}))
    assert used is not None
    assert (used.cpu_pct, used.memory_pct, used.gpu_pct) == (25.0, 12.5, 50.0)


def test_a_value_that_one_node_lacks_is_unknown_for_the_job() -> None:
    nodes = {"a": node(), "b": node(used_memory=None, total_time="12")}
    used = parse_jobstats(comment({"nodes": nodes, "total_time": 100}))
    assert used is not None
    assert (used.cpu_pct, used.memory_pct, used.memory_used_mib, used.gpu_pct) == (None, None, None, None)
    assert used.memory_asked_mib == 16384.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "JS1:Short",
        "JS1:None",
        "JS1:",
        "JS1:====",
        "fixed by the administrator",
        "JS2:" + comment(GPU_JOB)[4:],
        comment(GPU_JOB)[:-20],
        "JS1:" + base64.b64encode(json.dumps(GPU_JOB).encode()).decode(),
        "JS1:" + packed(b"[" * 100_000),
        "JS1:" + packed(b'{"nodes": {}, "total_time": ' + b"9" * 9999 + b"}"),
        "JS1:" + packed(b"\xff\xfe"),
        comment([1, 2]),
        comment({"nodes": [1]}),
        comment({"nodes": {"a": 1}}),
        comment({"nodes": {}}),
        comment({"total_time": 4}),
    ],
)
def test_a_comment_without_a_summary_gives_no_efficiency(text: str) -> None:
    assert parse_jobstats(text) is None


@pytest.mark.parametrize(
    "values",
    [
        {"cpus": -4, "used_memory": float("nan"), "gpu_utilization": {"0": 400}},
        {"cpus": True, "used_memory": "1", "gpu_utilization": [90]},
        {"cpus": 0, "used_memory": 10**400, "gpu_utilization": {"0": float("inf")}},
    ],
)
def test_impossible_numbers_of_a_comment_are_left_out(values: dict[str, object]) -> None:
    used = parse_jobstats(comment({"nodes": {"a": node(**values)}, "total_time": 100}))
    assert used is not None
    assert (used.cpu_pct, used.memory_pct, used.gpu_pct) == (None, None, None)


def test_a_decompression_bomb_is_not_unpacked() -> None:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    piece = b" " * (1 << 20)
    bomb = b"".join(squeezer.compress(piece) for _ in range(300)) + squeezer.flush()
    began = time.process_time()
    assert parse_jobstats("JS1:" + base64.b64encode(bomb).decode()) is None
    assert parse_jobstats("JS1:" + "A" * (64 << 20)) is None
    assert time.process_time() - began < 1.0


def test_the_history_prefers_jobstats_to_slurms_samples() -> None:
    told = captured("history-24.11.txt").decode("utf-8", "surrogateescape")
    separator = "|SEPARATOR"
    fields = told.split(separator)
    names = next(place for place, field in enumerate(fields) if field == "burn")
    fields[names - 1] = comment(GPU_JOB)
    before = {each.job.job_id: each for each in parse_history(told, separator)[0]}
    found, num_bad = parse_history(separator.join(fields), separator)
    changed = [each for each in found if each != before[each.job.job_id]]
    assert num_bad == 0
    assert [each.job.name for each in changed] == ["burn"]
    assert changed[0].efficiency.gpu_pct == 98.6
    assert changed[0].efficiency.time_pct == before[changed[0].job.job_id].efficiency.time_pct
