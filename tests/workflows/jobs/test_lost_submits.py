"""Runs whose launch was interrupted: cancel, the next launch and the screens report Slurm's record of
them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coach import runs
from coach.launch.submit import NoAnswer
from coach.model.errors import UserError
from coach.model.slurm.job_action import Verb
from coach.sources.io import Query
from coach.sources.machine.user import user_name
from coach.sources.runs.local_process import identify
from coach.workflows.jobs.job_actions import HasEnded, plan_action
from coach.workflows.jobs.lost_submits import lines_for_launch
from coach.workflows.launching.start import submit
from tests.sources.squeue import own_squeue
from tests.workflows.known import DAY_S, World
from tests.workflows.test_launching import World as Launches
from tests.workflows.test_launching import queued

RUN = "20261121-142233-ddp-4f2a"
OTHER = "20261121-142234-ddp-4f2b"
LATER = "2026-11-30T12:00:00"
ENV = {"PATH": "/usr/bin"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("coach.workflows.jobs.own_jobs.resolve_backend", lambda *words: "slurm")
    return World(tmp_path)


def lose(world: World, run_id: str = RUN, **said: object) -> dict[str, str]:
    """Make a run without a job id; returns the row of the queue that belongs to it."""
    run_dir = world.make(run_id, "PENDING", **{"age_s": 3600.0, "job_id": None, "user": user_name(), **said})
    output = str(runs.scheduler_logs(run_dir.parent, run_id)[0])
    return {"job_id": "99", "state": "PENDING", "user": user_name(), "submit": LATER, "stdout": output}


def refusal(world: World, *run_ids: str) -> UserError:
    with pytest.raises(UserError) as caught:
        plan_action(Verb.CANCEL, run_ids, world.settings, ENV, world)
    return caught.value


def test_a_run_that_is_not_in_the_queue_was_never_submitted(world: World) -> None:
    lose(world, age_s=200.0)
    error = refusal(world, RUN)
    assert (
        error.message == f"{RUN}: its launch was interrupted and never reached Slurm: it was never submitted"
    )
    assert error.hint == f"`coach runs clean {RUN}` removes it"


def test_a_launch_older_than_the_queue_s_memory_is_never_called_unsubmitted(world: World) -> None:
    lose(world)
    error = refusal(world, RUN)
    assert (
        error.message
        == f"{RUN}: its launch was interrupted: no job of it is in the queue, and none has begun"
    )
    assert error.hint == f"`coach runs clean {RUN}` removes it"


def test_a_young_one_may_still_be_on_its_way(world: World) -> None:
    lose(world, age_s=5.0)
    assert "check again in a minute" in (refusal(world, RUN).hint or "")


def test_where_slurm_does_not_answer_it_may_be_queued(world: World) -> None:
    lose(world)
    world.rows = None
    error = refusal(world, RUN)
    assert "it may be queued: Slurm does not answer: Unable to contact slurm controller" in error.message
    assert "never" not in error.message


def test_a_job_that_ended_before_it_was_found_is_not_cancelled(world: World) -> None:
    world.queue({**lose(world), "state": "CANCELLED", "end": LATER})
    error = refusal(world, RUN)
    assert isinstance(error, HasEnded)
    assert "job 99 is CANCELLED" in error.message


def test_several_lost_runs_are_looked_for_by_one_question(world: World) -> None:
    lose(world)
    lose(world, OTHER)
    refusal(world, RUN, OTHER)
    assert world.num_asked == 1


def test_a_read_only_coach_finds_the_job_and_writes_nothing(world: World) -> None:
    world.queue(lose(world))
    world.settings = replace(world.settings, is_readonly=True)
    assert "is queued as job 99 (PENDING)" in lines_for_launch("ddp", world.settings, world, user_name())[0]
    assert runs.read_json(world.settings.runs_root / RUN / "run.json")["job_id"] is None


def test_the_next_launch_reports_each_lost_submission_and_asks_slurm_only_if_there_is_one(
    world: World,
) -> None:
    def say(recipe: str) -> tuple[str, ...]:
        return lines_for_launch(recipe, world.settings, world, user_name())

    assert say("ddp") == ()
    assert world.num_asked == 0
    world.queue(lose(world))
    lose(world, OTHER, launcher=identify(psutil.Process(os.getpid())))
    old = "20261120-142235-ddp-4f2c"
    lose(world, old, age_s=2 * DAY_S)
    lose(world, "20261121-142236-ddp-long-4f2d", recipe="ddp-long")
    assert set(say("ddp")) == {
        (
            "a run of this recipe is queued as job 99 (PENDING): its launch was interrupted; `coach cancel "
            f"{RUN}` ends it"
        ),
        f"a launch of this recipe is under way: {OTHER}",
    }
    assert world.num_asked == 1
    # run.json has the job now, but the user who launches does not know it yet.
    assert any("queued as job 99" in line for line in say("ddp"))
    world.queue()
    assert not any("queued" in line for line in say("ddp"))


def test_nothing_is_launched_while_an_earlier_launch_of_it_may_be_queued(world: World) -> None:
    lose(world)
    world.rows = None
    with pytest.raises(UserError, match="Slurm does not answer") as caught:
        lines_for_launch("ddp", world.settings, world, user_name())
    assert RUN in (caught.value.hint or "")


def test_a_launcher_is_named_while_sbatch_works_and_no_longer(tmp_path: Path) -> None:
    world = Launches(tmp_path)
    world.client("sbatch", 'cp "$(dirname "$2")/run.json" "$FAKE/seen.json"; echo 17')
    submitted = submit(world.plan(), world.settings, world.env, world.io)
    assert runs.read_json(tmp_path / "seen.json")["launcher"]["pid"] == os.getpid()
    assert runs.read_json(Path(submitted.run_dir) / "run.json")["launcher"] is None
    world.client("sbatch", "echo 'Batch job submission failed: Socket timed out' >&2; exit 1")
    plan = world.plan()
    with pytest.raises(NoAnswer):
        submit(plan, world.settings, world.env, world.io)
    assert runs.read_json(Path(plan.run_dir) / "run.json")["launcher"] is None


def test_a_lost_run_is_cancelled_by_its_run_id(tmp_path: Path) -> None:
    world = Launches(tmp_path)
    world.client("sbatch", "echo 'Batch job submission failed: Socket timed out' >&2; exit 1")
    plan = world.plan()
    with pytest.raises(NoAnswer):
        submit(plan, world.settings, world.env, world.io)
    output = str(runs.scheduler_logs(Path(plan.run_dir).parent, plan.run_id)[0])
    row = {"job_id": "17", "state": "PENDING", "user": user_name(), "submit": LATER, "stdout": output}
    # The separators of a query are random: the script takes them from its command line.
    (tmp_path / "row").write_bytes(own_squeue(row)(Query("jobs", (), "\x01", "\x02")))
    world.client(
        "squeue",
        'case "$*" in *stdout*) python3 - "$@" <<EOF\n'
        "import sys, re, pathlib\n"
        "columns = sys.argv[-1].split(',')\n"
        "separator, end = columns[0].split(':', 1)[1], columns[-1].split(':', 1)[1]\n"
        "text = pathlib.Path('" + str(tmp_path / "row") + "').read_text()\n"
        "print(text.replace(chr(1), separator).replace(chr(2), end), end='')\n"
        "EOF\n;; *) " + queued("PENDING") + "\n;; esac",
    )
    action = plan_action(Verb.CANCEL, (plan.run_id,), world.settings, world.env, world.io)
    assert action.commands == ("scancel 17",)
    assert action.waiting_run_dirs == (("17", plan.run_dir),)
    record = runs.read_json(Path(plan.run_dir) / "run.json")
    assert (record["job_id"], record["found_by"]) == ("17", "StdOut")
