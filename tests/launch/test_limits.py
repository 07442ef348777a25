"""The site's upper limits, checked and reported in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coach.launch.limits import check_limits, num_alive
from coach.model.errors import UserError
from coach.model.launching.launch import Resources
from coach.model.launching.site import Limits
from coach.model.training.run import Run

ASKED = Resources(num_nodes=2, gpus_per_node=4, nproc_per_node=4, cpus_per_task=8, time_limit_s=3600)
NOW_S = 1_800_000_000.0


def run(run_id: str, state: str | None, **fields: Any) -> Run:
    known: dict[str, Any] = {
        "resources": {"time_limit_s": 3600},
        "created_time_s": NOW_S - 10,
        "started_time_s": None,
        **fields,
    }
    return Run(
        run_id=run_id,
        run_dir=f"/runs/{run_id}",
        recipe="ddp",
        backend="slurm",
        job_id=None,
        state=state,
        parameters={},
        launch={},
        ended_time_s=None,
        parent_run_id=None,
        fix=None,
        device={},
        dataset={},
        versions={},
        **known,
    )


def test_a_launch_within_all_limits_passes() -> None:
    check_limits(ASKED, 2, Limits(max_gpus=8, max_time_s=3600, max_running=3))
    check_limits(replace(ASKED, time_limit_s=None), 99, Limits())


@pytest.mark.parametrize(
    ("asked", "alive", "limits", "words"),
    [
        (
            ASKED,
            0,
            Limits(max_gpus=7),
            "8 GPUs (2 x 4): the site allows at most 7 GPUs in one launch (site.toml:3)",
        ),
        (
            ASKED,
            0,
            Limits(max_time_s=1800),
            "--time 01:00:00: the site allows at most 00:30:00 (site.toml:4)",
        ),
        (
            replace(ASKED, time_limit_s=None),
            0,
            Limits(max_time_s=1800),
            "no time limit: the site allows at most 00:30:00 (site.toml:4)",
        ),
        (
            ASKED,
            2,
            Limits(max_running=2),
            "2 of your runs are pending or running: the site allows at most 2 at once (site.toml:5)",
        ),
    ],
)
def test_more_than_the_site_allows_is_refused_with_the_place_of_the_limit(
    asked: Resources, alive: int, limits: Limits, words: str
) -> None:
    origins = {
        "limits.max_gpus": "site.toml:3",
        "limits.max_time": "site.toml:4",
        "limits.max_running": "site.toml:5",
    }
    with pytest.raises(UserError) as caught:
        check_limits(asked, alive, limits, origins)
    assert caught.value.message == words
    assert caught.value.hint


def test_a_cancel_that_the_site_switched_off_is_not_advised() -> None:
    for can_cancel in (True, False):
        with pytest.raises(UserError) as caught:
            check_limits(ASKED, 2, Limits(max_running=2), can_cancel=can_cancel)
        assert ("coach cancel" in (caught.value.hint or "")) == can_cancel


def test_runs_that_wait_or_run_count_and_those_that_must_have_ended_do_not() -> None:
    known = [
        run("pending", "PENDING"),
        run("running", "RUNNING", started_time_s=NOW_S - 60),
        run("ended", "COMPLETED"),
        run("never-submitted", None),
        run("lost", "RUNNING", started_time_s=NOW_S - 3 * 3600),
        run("parent", "RUNNING", started_time_s=NOW_S - 60),
    ]
    assert num_alive(known, NOW_S) == 3
    assert num_alive(known, NOW_S, without="parent") == 2
