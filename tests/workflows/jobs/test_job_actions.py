"""Act on the right jobs, all of them in one command, and leave a true record, even if job ids are reused and
run.json is out of date."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, LeftOut, Outcome, Step, Verb
from coach.sources.machine.user import user_name
from coach.workflows.jobs.job_actions import HasEnded, open_shell, perform, plan_action
from tests.workflows.test_launching import World, queued, squeue_rows

RUN = "20261121-142233-ddp-4f2a"
MADE_S = 1795271000.0
TODAY, NEXT_YEAR = "2026-11-21T15:00:00", "2027-11-21T15:00:00"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def recorded(world: World, run_id: str = RUN, **changes: object) -> runs.RunPaths:
    paths = runs.create_run_dir(world.settings.runs_root, run_id)
    record = {"backend": "slurm", "job_id": "17", "user": user_name(), "created_time_s": MADE_S}
    runs.write_json(paths.run_json, {**record, "state": "RUNNING", "started_time_s": MADE_S + 5, **changes})
    return paths


def queue_says(world: World, state: str, submitted: str = TODAY) -> None:
    world.client("squeue", queued(state, submitted=submitted))


def planned(world: World, verb: Verb, *targets: str, time_limit_s: int | None = None) -> JobAction:
    return plan_action(verb, targets, world.settings, world.env, world.io, time_limit_s)


def cancel(world: World, target: str) -> Outcome:
    return perform(planned(world, Verb.CANCEL, target), world.env, 5.0)


def test_a_requeued_run_that_waits_again_is_recorded_as_cancelled_although_it_once_ran(world: World) -> None:
    paths = recorded(world)
    queue_says(world, "PENDING")
    cancel(world, RUN)
    assert (world.root / "scancel.args").read_text().strip() == "17"
    assert runs.read_json(paths.run_json)["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda paths: shutil.rmtree(paths.run_dir), "No such file or directory"),
        (lambda paths: paths.run_json.write_text('{"state": "PEN'), "Unterminated string"),
    ],
    ids=["removed meanwhile", "torn"],
)
def test_a_cancel_that_cannot_be_recorded_was_carried_out_all_the_same(
    world: World, spoil: Callable[[runs.RunPaths], object], why: str
) -> None:
    paths = recorded(world, state="PENDING", started_time_s=None)
    queue_says(world, "PENDING")
    action = planned(world, Verb.CANCEL, RUN)
    spoil(paths)
    outcome = perform(action, world.env, 5.0)
    assert (outcome.done, outcome.refused) == (("17",), ())
    (note,) = outcome.notes
    assert note.startswith(f"its end could not be recorded: {paths.run_json}: ")
    assert why in note


def test_a_local_run_that_cannot_be_read_is_refused_in_one_line(world: World) -> None:
    paths = recorded(world)
    paths.run_json.write_text("{")
    step = Step(("kill", RUN), (RUN,), str(paths.run_dir))
    with pytest.raises(UserError, match=r"run\.json"):
        perform(JobAction(Verb.CANCEL, (step,)), world.env, 5.0)


def test_a_run_whose_script_runs_says_itself_how_it_ended(world: World) -> None:
    paths = recorded(world)
    queue_says(world, "RUNNING")
    cancel(world, RUN)
    assert runs.read_json(paths.run_json)["state"] == "RUNNING"


def test_a_run_that_is_over_does_not_cost_the_job_that_has_its_number_now(world: World) -> None:
    recorded(world, state="COMPLETED", ended_time_s=MADE_S + 60)
    queue_says(world, "RUNNING", NEXT_YEAR)
    with pytest.raises(UserError, match="17 is the number of another one now"):
        planned(world, Verb.CANCEL, RUN)
    assert planned(world, Verb.CANCEL, "17").waiting_run_dirs == ()


def test_a_run_of_another_cluster_with_the_same_home_is_not_cancelled_here(world: World) -> None:
    recorded(world, cluster="tiger")
    world.settings = replace(world.settings, cluster="della")
    queue_says(world, "RUNNING")
    with pytest.raises(UserError, match="it is job 17 of cluster tiger, and this is della"):
        planned(world, Verb.CANCEL, RUN)
    assert planned(world, Verb.CANCEL, "17").waiting_run_dirs == ()


def test_of_two_runs_with_one_number_the_job_is_that_of_the_newest(world: World) -> None:
    recorded(world)
    newer = recorded(world, "20271121-142233-ddp-4f2b", created_time_s=MADE_S + 31_536_000)
    queue_says(world, "PENDING", NEXT_YEAR)
    assert planned(world, Verb.CANCEL, "17").waiting_run_dirs == (("17", str(newer.run_dir)),)


def test_a_local_run_that_said_its_end_before_its_supervisor_died_has_ended_as_it_said(world: World) -> None:
    supervisor = {"pid": 2**22 - 3, "create_time_s": 1.0, "node": os.uname().nodename}
    paths = recorded(world, backend="local", supervisor=supervisor)
    runs.write_json(paths.exit_json, {"state": "COMPLETED", "ended_time_s": MADE_S + 9})
    with pytest.raises(HasEnded, match=r"it has ended already \(COMPLETED\)"):
        planned(world, Verb.CANCEL, RUN)


def rows(world: World, *said: str) -> None:
    """A queue of `ID STATE REASON LIMIT REQUEUE`."""
    lines = []
    for text in said:
        job_id, state, reason, limit, requeue = text.split()
        lines.append(
            f"{job_id}|{job_id}|{user_name()}|{state}|{TODAY}|{limit}|5:00|{requeue}|1|{reason}|train"
        )
    world.client("squeue", squeue_rows("\n".join(lines)))


def test_marked_jobs_are_held_by_one_command_and_the_others_are_left_out_and_said(world: World) -> None:
    rows(world, "17 PENDING Priority 10:00 1", "18 RUNNING None 10:00 1", "19 PENDING JobHeldUser 10:00 1")
    rows_of = planned(world, Verb.HOLD, "17", "18", "19", "20")
    assert rows_of.commands == ("scontrol hold 17",)
    assert rows_of.left_out == (
        LeftOut("20", "Slurm does not know it, or has forgotten it"),
        LeftOut("18", "it is RUNNING: only a waiting job can be held"),
        LeftOut("19", "it is held already"),
    )
    rows(world, "17 PENDING Priority 10:00 1", "18 PENDING Priority 10:00 1")
    assert planned(world, Verb.HOLD, "17", "18").commands == ("scontrol hold 17,18",)
    assert planned(world, Verb.CANCEL, "17", "18").commands == ("scancel 17 18",)


@pytest.mark.parametrize(
    ("verb", "row", "why"),
    [
        (Verb.RELEASE, "17 PENDING JobHeldAdmin 10:00 1", "only an administrator can release it"),
        (Verb.RELEASE, "17 PENDING Priority 10:00 1", "it is not held"),
        (Verb.REQUEUE, "17 RUNNING None 10:00 0", "--no-requeue"),
        (Verb.REQUEUE, "17 PENDING None 10:00 1", "it waits already"),
        (Verb.SHELL, "17 PENDING None 10:00 1", "only a running job"),
        (Verb.CANCEL, "17 FAILED None 10:00 1", "it has ended already"),
    ],
)
def test_an_impossible_action_gives_its_reason_before_any_question(
    world: World, verb: Verb, row: str, why: str
) -> None:
    rows(world, row)
    with pytest.raises(UserError, match=why):
        planned(world, verb, "17")


@pytest.mark.parametrize(
    ("minutes", "why"),
    [(20, "users may only lower a limit"), (10, "that is its limit already"), (5, "would end at once")],
)
def test_a_time_limit_is_only_lowered_and_not_below_the_time_used(
    world: World, minutes: int, why: str
) -> None:
    rows(world, "17 RUNNING None 10:00 1")
    with pytest.raises(UserError, match=why):
        planned(world, Verb.TIMELIMIT, "17", time_limit_s=minutes * 60)
    lowered = planned(world, Verb.TIMELIMIT, "17", time_limit_s=420)
    assert lowered.commands == ("scontrol update jobid=17 timelimit=00:07:00",)


def test_tasks_of_an_array_are_named_as_slurm_takes_them(world: World) -> None:
    rows(world, "17_[3-8%2] PENDING JobArrayTaskLimit 10:00 1", "17_1 RUNNING None 10:00 1")
    assert planned(world, Verb.CANCEL, "17").commands == ("scancel 17",)
    assert planned(world, Verb.CANCEL, "17_[3-8%2]").commands == ("scancel '17_[3-8]'",)
    assert planned(world, Verb.CANCEL, "17_1", "17_5").commands == ("scancel 17_1 17_5",)
    assert planned(world, Verb.HOLD, "17").commands == ("scontrol hold '17_[3-8]'",)
    assert planned(world, Verb.REQUEUE, "17").commands == ("scontrol requeue 17_1",)
    assert planned(world, Verb.TIMELIMIT, "17", time_limit_s=360).commands == (
        "scontrol update jobid=17 timelimit=00:06:00",
    )
    with pytest.raises(UserError, match="only for the whole array 17"):
        planned(world, Verb.TIMELIMIT, "17_4", time_limit_s=360)


def test_the_last_task_of_an_array_that_waits_is_recorded_as_cancelled(world: World) -> None:
    paths = recorded(world, job_id="17_3", state="PENDING", started_time_s=None)
    rows(world, "17_[3] PENDING Priority 10:00 1", "17_1 COMPLETED None 10:00 1")
    cancel(world, RUN)
    assert (world.root / "scancel.args").read_text().strip() == "17"
    assert runs.read_json(paths.run_json)["state"] == "CANCELLED"


def test_a_requeued_task_is_recorded_as_cancelled_while_another_task_runs(world: World) -> None:
    paths = recorded(world, job_id="17_3")
    rows(world, "17_[3] PENDING Priority 10:00 1", "17_1 RUNNING None 10:00 1")
    cancel(world, RUN)
    assert runs.read_json(paths.run_json)["state"] == "CANCELLED"


@pytest.mark.parametrize("target", ["17", "17_[3-4]", "17_[3-4%1]"])
def test_the_waiting_tasks_of_a_whole_array_are_recorded_as_cancelled(world: World, target: str) -> None:
    waiting = [
        recorded(world, f"{RUN[:-1]}{task}", job_id=f"17_{task}", state="PENDING", started_time_s=None)
        for task in (3, 4)
    ]
    others = [recorded(world, f"{RUN[:-1]}{task}", job_id=f"17_{task}") for task in (0, 1)]
    unnamed = recorded(world, f"{RUN[:-1]}5", job_id="18", state="PENDING", started_time_s=None)
    rows(
        world,
        "17_[3-4%1] PENDING JobArrayTaskLimit 10:00 1",
        "17_1 RUNNING None 10:00 1",
        "17_0 COMPLETED None 10:00 1",
    )
    cancel(world, target)
    assert [runs.read_json(paths.run_json)["state"] for paths in waiting] == ["CANCELLED"] * 2
    assert {runs.read_json(paths.run_json)["state"] for paths in others} == {"RUNNING"}
    assert runs.read_json(unnamed.run_json)["state"] == "PENDING"


def test_no_shell_is_opened_on_a_slurm_whose_added_step_would_wait(world: World) -> None:
    rows(world, "17 RUNNING None 10:00 1")
    world.client("srun", "echo slurm 21.08.8")
    with pytest.raises(UserError, match=r"this is Slurm 21\.08\.8: before 22\.05 an added step"):
        planned(world, Verb.SHELL, "17")
    world.client("srun", "echo slurm 22.05.8")
    assert planned(world, Verb.SHELL, "17").commands[0].startswith("srun --jobid=17 ")


def test_refused_jobs_are_listed_with_slurm_s_words_and_the_others_are_changed(world: World) -> None:
    rows(world, "17 RUNNING None 10:00 1", "18 RUNNING None 10:00 1")
    words = "Requested operation is presently disabled for job 18"
    world.client("scontrol", f"echo '{words}' >&2; exit 1")
    outcome = perform(planned(world, Verb.REQUEUE, "17", "18"), world.env, 5.0)
    assert outcome.done == ("17",)
    assert outcome.words == "17 was requeued · 18: Requested operation is presently disabled"
    with pytest.raises(UserError, match="scontrol: 18: Requested operation is presently disabled"):
        perform(planned(world, Verb.REQUEUE, "18"), world.env, 5.0)


def test_very_many_jobs_are_named_by_several_commands(world: World) -> None:
    rows(world, *(f"{number} PENDING Priority 10:00 1" for number in range(100, 350)))
    action = planned(world, Verb.HOLD, *map(str, range(100, 350)))
    assert [len(step.job_ids) for step in action.steps] == [100, 100, 50]
    assert perform_nothing_else(world, action) == 3


def perform_nothing_else(world: World, action: JobAction) -> int:
    """Number of commands that were run."""
    world.client("scontrol", 'echo "$@" >> "$FAKE/scontrol.all"')
    assert len(perform(action, world.env, 5.0).done) == 250
    return len((world.root / "scontrol.all").read_text().splitlines())


def test_a_shell_knows_nothing_of_an_allocation_that_coach_itself_runs_in(world: World) -> None:
    rows(world, "17 RUNNING None 10:00 1")
    world.client("srun", '[ "$1" = --version ] && echo "slurm 24.11.5" || env > "$FAKE/srun.env"')
    action = planned(world, Verb.SHELL, "17")
    assert action.steps[0].argv[0] == "srun"
    step = replace(action.steps[0], argv=(str(world.bin / "srun"), *action.steps[0].argv[1:]))
    outer = {**world.env, "SLURM_MEM_PER_CPU": "100", "SLURM_CONF": "/etc/s.conf", "LC_ALL": "fr_FR.UTF-8"}
    assert open_shell(replace(action, steps=(step,)), outer) == 0
    given = (world.root / "srun.env").read_text()
    assert "SLURM_CONF=/etc/s.conf" in given
    assert "SLURM_MEM_PER_CPU" not in given
    assert "LC_ALL=fr_FR.UTF-8" in given
