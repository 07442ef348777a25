"""coach on a cluster of ten thousand nodes with fifty thousand jobs: it stays quick, small and polite."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coach.sources.slurm.nodes import nodes_query, partitions_query
from coach.sources.slurm.queue import jobs_query
from tests.cluster.guest import Guest, counting_clients
from tests.cluster.scale import ScaleCluster
from tests.cluster.slurm import booted
from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.processor import slowness
from tests.waiting import wait_until

NUM_PENDING, NUM_ALLOCATED = 50_000, 20
NUM_JOBS = NUM_PENDING + NUM_ALLOCATED
IDLE_S = 120.0

pytestmark = [pytest.mark.long, pytest.mark.cluster]


@pytest.fixture(scope="module")
def large_slurm() -> Iterator[ScaleCluster]:
    with booted("coach-scale", ScaleCluster) as cluster:
        cluster.submit_many(NUM_PENDING, NUM_ALLOCATED)
        yield cluster


def bare_s(cluster: ScaleCluster, whose: str | None) -> float:
    """The time of the bare commands behind the first screen."""
    times = []
    for _ in range(3):
        start_s = time.monotonic()
        for query in (jobs_query(whose), nodes_query(), partitions_query()):
            cluster.run(query.argv)
        times.append(time.monotonic() - start_s)
    return statistics.median(times)


def test_the_screens_answer_at_once_while_fifty_thousand_jobs_are_read(
    large_slurm: ScaleCluster, tmp_path: Path
) -> None:
    probe = Path(__file__).with_name("screen_probe.py")
    env = {**os.environ, **large_slurm.env, "COACH_HOME": str(tmp_path), "COACH_AS_ROOT": "1"}
    done = subprocess.run(
        [sys.executable, probe, str(NUM_JOBS)], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["own_view_jobs"] == 0, "everybody's jobs were asked for before anybody wanted to see them"
    assert found["own_view_mib"] <= 150, found
    assert found["all_view_mib"] <= 400, found
    assert found["all_s"] <= 1.2 * bare_s(large_slurm, None) + 1.0, found
    slow = slowness()
    assert found["refresh_cpu_s"] <= 1.5 * slow, found
    blocked_ms = max(found["first_blocked_ms"], found["all_blocked_ms"], found["refresh_blocked_ms"])
    assert blocked_ms <= 50 * slow, found
    assert max(found["keys_ms"].values()) <= 100 * slow, found


def test_left_open_it_costs_a_fiftieth_of_a_core_with_all_that_it_runs(
    large_slurm: ScaleCluster, user: User, train_python: Path, open_directory: Path
) -> None:
    calls = counting_clients(open_directory / "clients")
    coach = InstalledCoach(train_python, user, large_slurm.env)
    env = coach.env()
    bare = bare_s(large_slurm, user.name)
    with Guest(user.argv(coach.argv()), env | {"PATH": f"{calls.parent}:{env['PATH']}"}) as guest:
        assert guest.wait_for("big0") <= 1.2 * bare + 1.0
        time.sleep(5.0)
        before_s, num_before, start_s = sum(guest.cpu_s()), len(calls.read_text().split()), time.monotonic()
        # coach is left alone for this time, which is the measured time
        wait_until(lambda: time.monotonic() >= start_s + IDLE_S, 2 * IDLE_S, "an idle time", every_s=1.0)
        passed_s = time.monotonic() - start_s
        assert 3600 * (sum(guest.cpu_s()) - before_s) / passed_s <= 72 * slowness()
        assert 60 * (len(calls.read_text().split()) - num_before) / passed_s <= 12
        assert guest.memory_mib()[1] <= 150
        guest.press("\t\t")  # past the detail to the nodes: there is no own job to move among
        assert statistics.median(guest.press("\x1b[B") for _ in range(10)) <= 0.1
