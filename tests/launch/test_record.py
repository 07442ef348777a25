"""The launch stored in run.json: a relaunch makes exactly the same request."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from coach.launch.record import said
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram
from tests.launch.relaunches import asked_again

ASKED = LaunchRequest(
    "ddp",
    num_nodes=2,
    gpus_per_node=4,
    nproc_per_node=4,
    time_limit_s=5400,
    partition="gpu",
    account="lab",
    qos="long",
    reservation="day",
    constraint="hbm",
    mem="64G",
    cpus_per_task=6,
    gpu_type="a100",
    gpu_request="gres",
    cpus_per_gpu=8,
    exclude="bad1",
    signal="USR1@60",
    environment="pytorch",
    python="/env/bin/python",
    setup=("module load cuda",),
    env={"A": "b"},
    set={"lr": 0.1, "amp": True},
    sbatch={"nice": "5"},
    has_local_nodes=True,
    until_done=3,
    resume_with="--resume {path}",
    max_restarts=2,
    has_gpm=True,
    share="/course",
    is_mended=True,
    own=OwnProgram(
        OwnKind.BATCH, ("job.sh", "--x"), "/home/ada", ("signal",), "big", {"lr": "optim.lr"}, array_task=0
    ),
)


def test_a_relaunch_asks_for_everything_that_was_said_the_first_time() -> None:
    kept = json.loads(json.dumps(said(ASKED)))
    assert asked_again(kept, "ddp") == ASKED
    unsaid = {item.name for item in fields(LaunchRequest)} - {*kept}
    assert unsaid.isdisjoint(
        {item.name for item in fields(LaunchRequest) if getattr(ASKED, item.name)}
        - {"recipe", "backend", "defaulted", "fix"}
    )


def test_a_record_of_another_version_is_read_as_far_as_it_is_understood() -> None:
    kept = {**said(ASKED), "time_limit_s": "90 min", "num_nodes": 2.5, "setup": "x", "hours": 3}
    assert asked_again(kept, "ddp") == replace(ASKED, time_limit_s=None, num_nodes=None, setup=None)
    kept["own"] = {**kept["own"], "array_task": "5", "name": 3, "parameters": ["lr"]}
    own = asked_again(kept, "ddp").own
    assert own is not None
    assert (own.array_task, own.name, own.parameters, own.words) == (None, None, {}, ("job.sh", "--x"))
    for broken in ({"words": []}, {"directory": None}, {"offers": "signal"}):
        assert asked_again({**kept, "own": {**kept["own"], **broken}}, "ddp").own is None
