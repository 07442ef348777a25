"""An ended run goes on in its own directory, as a requeued one does, or coach says why it cannot."""

from __future__ import annotations

import io as text_io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.analysis.jobs.named_run import run_or_job
from coach.config import Switch
from coach.launch import local
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Submitted
from coach.model.launching.site import Limits
from coach.model.slurm.job_action import JobAction
from coach.sources.runs.run_files import read_run
from coach.sources.runs.run_list import read_listed_run
from coach.workflows.launching.resume import perform_resume, plan_resume
from coach.workflows.launching.start import start_again, submit
from tests.workflows.test_launching import World, queued

FORGOTTEN = "exit 0"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def checkpoint(paths: runs.RunPaths, step: int, *, is_whole: bool = True) -> Path:
    paths.checkpoints_dir.mkdir(exist_ok=True)
    data = text_io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("data.pkl", "x")
    path = paths.checkpoints_dir / f"step-{step:08d}.pt"
    path.write_bytes(data.getvalue() if is_whole else data.getvalue()[:20])
    return path


def ended_run(world: World, state: str = "CANCELLED", **changes: object) -> runs.RunPaths:
    """A run that was launched as job 17 and has ended; Slurm has forgotten it. The next job is 23."""
    plan = world.plan()
    paths = runs.RunPaths(submit(plan, world.settings, world.env, world.io).run_dir)
    for log in (paths.stdout_log, paths.stderr_log):
        log.write_text("step 40\n")
    paths.metrics_dir.mkdir()
    paths.metrics_of(0).write_text('{"step":40}\n')
    ended = {"state": state, "ended_time_s": 1795271600.0}
    runs.update_json(paths.run_json, {**ended, "started_time_s": 1795271005.0, **changes})
    runs.write_json(paths.exit_json, {"schema": 1, **ended, "exit_code": 1})
    runs.write_json(paths.verdict_json, {"schema": 1, "state": state})
    world.client("squeue", FORGOTTEN)
    world.client("sbatch", 'echo "$@" > "$FAKE/sbatch.args"; echo "23;cluster"')
    return paths


def planned(world: World, target: str, backend: str = "auto") -> JobAction:
    return plan_resume(target, world.settings, world.env, world.io, backend)


def resumed(world: World, target: str) -> Submitted:
    return perform_resume(planned(world, target), world.settings, world.env, world.io)


def why_refused(world: World, target: str, backend: str = "auto") -> str:
    with pytest.raises(UserError) as caught:
        planned(world, target, backend)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_cancelled_run_goes_on_as_the_same_run_with_a_new_job(world: World) -> None:
    paths = ended_run(world)
    newest = checkpoint(paths, 40)
    action = planned(world, paths.run_dir.name)
    assert action.commands == (f"sbatch --parsable {paths.job_script}",)
    assert "step-00000040.pt (step 40)" in action.notes[0]
    assert runs.read_json(paths.run_json)["job_id"] == "17"  # a plan starts nothing
    done = perform_resume(action, world.settings, world.env, world.io)
    assert (done.run_id, done.run_dir, done.job_id) == (paths.run_dir.name, str(paths.run_dir), "23")
    record = runs.read_json(paths.run_json)
    assert (record["job_id"], record["state"], record["ended_time_s"]) == ("23", "PENDING", None)
    assert [(each["job_id"], each["state"], each["checkpoint"]) for each in record["attempts"]] == [
        ("17", "CANCELLED", str(newest))
    ]
    assert read_listed_run(world.io, paths.run_dir).state == "PENDING"
    assert not paths.verdict_json.exists()
    mark = f"coach: this is attempt 2 of job {paths.run_dir.name}\n"
    assert paths.stdout_log.read_text() == paths.stderr_log.read_text() == "step 40\n" + mark
    assert paths.metrics_of(0).read_text() == '{"step":40}\n'


def test_the_earlier_job_still_names_the_run(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 40)
    resumed(world, "17")
    run = read_run(world.io, paths.run_dir)
    assert run.job_ids == ("23", "17")
    assert run_or_job("17", [run]) is run_or_job("23", [run]) is run


def test_a_run_can_be_resumed_more_than_once(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 40)
    resumed(world, "17")
    runs.update_json(paths.run_json, {"state": "TIMEOUT", "ended_time_s": 1795272600.0})
    checkpoint(paths, 80)
    resumed(world, "17")
    attempts = runs.read_json(paths.run_json)["attempts"]
    assert [(each["job_id"], each["state"]) for each in attempts] == [("17", "CANCELLED"), ("23", "TIMEOUT")]
    assert "coach: this is attempt 3 of job" in paths.stdout_log.read_text()


def test_a_refused_submission_leaves_record_and_logs_as_they_were(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 20)
    torn = checkpoint(paths, 40, is_whole=False)
    files = (paths.run_json, paths.exit_json, paths.verdict_json, paths.stdout_log, paths.stderr_log, torn)
    before = {path: path.read_bytes() for path in files}
    world.client("sbatch", "echo 'sbatch: error: Invalid qos specification' >&2; exit 1")
    with pytest.raises(UserError, match="Invalid qos specification"):
        resumed(world, paths.run_dir.name)
    assert {path: path.read_bytes() for path in files} == before
    assert len(list(torn.parent.iterdir())) == 2


def test_of_two_that_resume_a_run_at_once_one_starts_it(world: World) -> None:
    paths = ended_run(world)
    newest = checkpoint(paths, 40)
    seen = read_run(world.io, paths.run_dir)  # the second one looked before the first one began
    resumed(world, paths.run_dir.name)
    record = runs.read_json(paths.run_json)
    world.client("sbatch", "echo 24")
    with pytest.raises(UserError, match="it was resumed a moment ago"):
        start_again(seen, str(newest), (), world.settings, world.env, world.io)
    assert runs.read_json(paths.run_json) == record


def test_an_interrupted_submission_leaves_the_run_as_one_whose_job_may_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ended_run(world)
    checkpoint(paths, 40)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coach.launch.submit.submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resumed(world, paths.run_dir.name)
    record = runs.read_json(paths.run_json)
    assert (record["job_id"], record["state"], record["launcher"]) == (None, "PENDING", None)


def test_a_submission_without_an_answer_keeps_a_run_whose_job_can_be_found(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 40)
    world.settings = replace(world.settings, sbatch_timeout_s=0.2)
    world.client("sbatch", "exec sleep 30")
    with pytest.raises(UserError, match="no answer within"):
        resumed(world, paths.run_dir.name)
    record = runs.read_json(paths.run_json)
    assert (record["job_id"], record["state"], record["launcher"]) == (None, "PENDING", None)
    assert record["attempts"][0]["job_id"] == "17"


def test_a_torn_checkpoint_is_set_aside_and_the_whole_one_before_it_is_taken(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 20)
    torn = checkpoint(paths, 40, is_whole=False)
    action = planned(world, paths.run_dir.name)
    assert "step-00000020.pt (step 20)" in action.notes[0]
    assert "step-00000040.pt" in action.notes[1]
    perform_resume(action, world.settings, world.env, world.io)
    assert sorted(path.name for path in torn.parent.iterdir()) == [
        "step-00000020.pt",
        "torn-step-00000040.pt",
    ]


def test_a_step_that_was_torn_before_is_set_aside_again(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 20)
    torn = checkpoint(paths, 40, is_whole=False)
    before = torn.with_name(f"torn-{torn.name}")
    before.mkdir()
    resumed(world, paths.run_dir.name)
    assert before.is_dir()
    assert torn.with_name(f"torn-torn-{torn.name}").is_file()


def test_only_an_ended_run_of_mine_with_work_left_is_resumed(world: World) -> None:
    paths = ended_run(world)
    run_id = paths.run_dir.name
    assert "it has no whole checkpoint; at the launch, --set checkpoint_every=N" in why_refused(world, run_id)
    checkpoint(paths, 40, is_whole=False)
    assert "it has no whole checkpoint" in why_refused(world, run_id)
    checkpoint(paths, 40)
    assert "no run of coach" in why_refused(world, "99")
    assert "for the backend slurm, not local" in why_refused(world, run_id, "local")
    world.client("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    runs.update_json(paths.run_json, {"ended_time_s": world.io.now()})
    assert "Unable to contact" in why_refused(world, run_id)
    world.client("squeue", FORGOTTEN)
    world.settings = replace(world.settings, limits=Limits(max_running=0))
    assert "at most 0 at once" in why_refused(world, run_id)
    world.settings = replace(world.settings, limits=Limits())
    paths.run_json.chmod(0o666)
    assert "coach starts nothing from the run" in why_refused(world, run_id)
    paths.run_json.chmod(0o600)
    runs.update_json(paths.run_json, {"launch": {"own": {"kind": "batch"}}})
    assert "a batch file of yours" in why_refused(world, run_id)
    runs.update_json(paths.run_json, {"launch": {"own": None}})
    assert planned(world, run_id).commands
    paths.job_script.unlink()
    assert "no batch script" in why_refused(world, run_id)


def test_a_drill_that_the_site_switched_off_is_not_resumed(world: World) -> None:
    paths = ended_run(world, drill="idle_hands")
    checkpoint(paths, 40)
    assert planned(world, paths.run_dir.name).commands
    world.settings = replace(world.settings, switched_off=frozenset({Switch.DRILLS}))
    assert "coach resumes no drill: " in why_refused(world, paths.run_dir.name)


def test_a_completed_run_has_nothing_left_to_do(world: World) -> None:
    paths = ended_run(world, "COMPLETED")
    checkpoint(paths, 40)
    assert "it has completed" in why_refused(world, paths.run_dir.name)


def test_a_recipe_that_saves_none_is_named_as_the_reason(world: World) -> None:
    paths = ended_run(world)
    record = runs.read_json(paths.run_json)
    runs.write_json(paths.run_json, {**record, "parameters": {"lr": 0.1}})
    assert "its recipe saves no checkpoint" in why_refused(world, paths.run_dir.name)


def test_a_run_that_still_waits_runs_or_ends_is_left_alone(world: World) -> None:
    paths = ended_run(world)
    checkpoint(paths, 40)
    runs.update_json(paths.run_json, {"state": "RUNNING", "ended_time_s": None})
    paths.exit_json.unlink()
    world.client("squeue", queued("RUNNING"))
    assert "it has not ended" in why_refused(world, paths.run_dir.name)


def test_a_local_run_goes_on_under_a_supervisor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ended_run(world, backend="local", job_id=None)
    run_id = paths.run_dir.name
    runs.update_json(paths.run_json, {"job_id": run_id})
    checkpoint(paths, 40)
    started: list[Path] = []
    monkeypatch.setattr(local, "start", lambda run_dir, env: started.append(run_dir))
    done = resumed(world, run_id)
    assert (done.run_id, done.job_id, started) == (run_id, run_id, [paths.run_dir])
    record = runs.read_json(paths.run_json)
    assert (record["job_id"], record["state"], record["supervisor"]) == (run_id, "PENDING", None)


def test_a_run_of_an_older_coach_has_no_attempts_and_opens_as_before(world: World) -> None:
    paths = runs.RunPaths(
        submit(world.plan(LaunchRequest("ddp")), world.settings, world.env, world.io).run_dir
    )
    assert "attempts" not in runs.read_json(paths.run_json)
    assert read_run(world.io, paths.run_dir).job_ids == ("17",)
    runs.update_json(paths.run_json, {"attempts": ["?", {"job_id": 3}, {"job_id": "16"}]})
    assert read_run(world.io, paths.run_dir).job_ids == ("17", "16")
