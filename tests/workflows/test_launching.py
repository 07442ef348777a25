"""From a request to a run and back: submit, refuse, cancel, fix. Slurm's clients are small scripts that
answer like the real ones."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.config import LaunchDefaults, Settings
from coach.launch.own_program import own_request, read_own_program
from coach.model.errors import UserError
from coach.model.judging.finding import Fix
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.slurm.job_action import Verb
from coach.model.training.run import Run
from coach.sources.io import CommandResult, Query, SystemIo
from coach.sources.machine.user import user_name
from coach.sources.runs.run_files import read_run
from coach.workflows.jobs.job_actions import HasEnded, perform, plan_action
from coach.workflows.launching import start
from coach.workflows.launching.prepare import plan_for, with_defaults
from coach.workflows.launching.relaunch import (
    ParentChoice,
    changes,
    read_parent_script,
    relaunch,
    request_for_fix,
    script_diff,
)
from coach.workflows.launching.start import check_ready, make_ready, submit
from tests.config.site import Place
from tests.launch.examples import CLUSTER

CLIENTS = {
    "sbatch": 'echo "$@" > "$FAKE/sbatch.args"; env > "$FAKE/sbatch.env"; echo "17;cluster"',
    "scancel": 'echo "$@" > "$FAKE/scancel.args"',
}


def queued(state: str, user: str | None = None, submitted: str = "", limit: str = "10:00") -> str:
    """A squeue with one job, which answers for any job id."""
    return squeue_rows(f"$6|$6|{user or user_name()}|{state}|{submitted}|{limit}|0:05|1|1|None|train")


def squeue_rows(text: str) -> str:
    """A squeue that prints these rows, with the separators of its caller in the place of `|` and line
    ends."""
    sed = "s/|/$sep/g; s/\\$/${8##*:}/"
    return f'sep=${{8#*:}}\nsep=${{sep%%,*}}\ncat <<END | sed "{sed}"\n{text}\nEND'


class World:
    """An environment with fake clients, and settings with directories of their own."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        for name, body in {**CLIENTS, "squeue": queued("PENDING")}.items():
            self.client(name, body)
        self.env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "FAKE": str(root), "HOME": str(root)}
        self.root = root
        self.settings = Settings(root / "runs", root / "cache", root / "config")
        self.io = SystemIo(self.env)

    def client(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def plan(self, request: LaunchRequest | None = None) -> Plan:
        request = with_defaults(request or LaunchRequest("ddp", python=sys.executable), self.settings)
        return plan_for(request, self.settings, self.env, self.io, CLUSTER, 1795271000.0)

    def parent(self) -> Run:
        submitted = submit(self.plan(), self.settings, self.env, self.io)
        return read_run(self.io, Path(submitted.run_dir))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_submitted_run_has_its_record_script_and_code_before_it_starts(world: World) -> None:
    plan = world.plan()
    submitted = submit(plan, world.settings, world.env, world.io)
    paths = runs.RunPaths(submitted.run_dir)
    assert submitted.job_id == "17"
    assert (world.root / "sbatch.args").read_text().split() == ["--parsable", str(paths.job_script)]
    assert paths.job_script.read_text() == plan.script
    record = runs.read_json(paths.run_json)
    assert (record["job_id"], record["state"], record["recipe"]) == ("17", "PENDING", "ddp")
    assert paths.run_dir.stat().st_mode & 0o777 == 0o700
    assert (Path(plan.code_dir) / "trainers" / "ddp.py").is_file()
    assert (Path(plan.code_dir) / "coach" / "node" / "__main__.py").is_file()


def test_the_job_inherits_nothing_of_an_outer_allocation(world: World) -> None:
    outer = {"SLURM_JOB_ID": "3", "SBATCH_PARTITION": "x", "SLURM_CONF": "/etc/slurm/slurm.conf"}
    submit(world.plan(), world.settings, {**world.env, **outer}, world.io)
    seen = (world.root / "sbatch.env").read_text()
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in seen
    assert "SLURM_JOB_ID" not in seen
    assert "SBATCH_PARTITION" not in seen


def test_a_refused_submission_shows_slurm_s_words_and_leaves_nothing(world: World) -> None:
    world.client("sbatch", "echo 'sbatch: error: Invalid qos specification' >&2; exit 1")
    plan = world.plan()
    with pytest.raises(UserError, match="Invalid qos specification"):
        submit(plan, world.settings, world.env, world.io)
    assert not Path(plan.run_dir).exists()


def test_a_submission_without_an_answer_keeps_the_run_that_may_be_queued(
    world: World,
) -> None:
    settings = replace(world.settings, sbatch_timeout_s=0.2)
    world.client("sbatch", "exec sleep 30")
    plan = world.plan()
    with pytest.raises(UserError, match="no answer within") as caught:
        submit(plan, settings, world.env, world.io)
    assert "may have accepted the job" in (caught.value.hint or "")
    assert Path(plan.run_dir, "job.sh").read_text() == plan.script


def test_a_dry_run_makes_the_code_that_the_script_needs_and_no_run(world: World) -> None:
    plan = world.plan()
    check_ready(plan)
    assert sorted(path.name for path in world.settings.runs_root.iterdir()) == [".code", ".logs"]
    assert Path(plan.code_dir).is_dir()
    make_ready(plan)
    with pytest.raises(UserError, match="this run exists already"):
        check_ready(plan)


def test_a_dry_run_fails_where_the_runs_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan()
    check_ready(plan)  # the code is there already, so nothing is written the second time
    monkeypatch.setattr(
        "coach.workflows.launching.start.why_not_kept",
        lambda path: f"{path} is on a read-only file system",
    )
    with pytest.raises(UserError, match="read-only file system"):
        check_ready(plan)


def test_a_run_has_links_to_where_slurm_will_write(world: World) -> None:
    plan = world.plan()
    make_ready(plan)
    run_dir = Path(plan.run_dir)
    assert sorted(path.name for path in run_dir.iterdir()) == ["stderr.log", "stdout.log"]
    assert not (run_dir / "stdout.log").exists()  # a link to where Slurm will write it
    (run_dir.parent / ".logs" / f"{plan.run_id}.out").write_text("step 1\n")
    assert (run_dir / "stdout.log").read_text() == "step 1\n"
    assert Path(plan.code_dir).is_dir()


def test_a_read_only_coach_neither_launches_nor_cancels(world: World) -> None:
    settings = replace(world.settings, is_readonly=True)
    with pytest.raises(UserError, match="read-only"):
        submit(world.plan(), settings, world.env, world.io)
    with pytest.raises(UserError, match="read-only"):
        plan_action(Verb.CANCEL, ("17",), settings, world.env, world.io)
    assert not world.settings.runs_root.exists()


def test_values_that_a_launch_leaves_out_come_from_the_config(world: World) -> None:
    defaults = LaunchDefaults(
        partition="gpu", time="20:00", setup=("module load x",), sbatch={"comment": "a"}
    )
    settings = replace(world.settings, launch=defaults)
    request = with_defaults(LaunchRequest("ddp", time_limit_s=60, sbatch={"nice": "1"}), settings)
    assert (request.partition, request.time_limit_s, request.setup) == ("gpu", 60, ("module load x",))
    assert request.sbatch == {"comment": "a", "nice": "1"}
    assert with_defaults(LaunchRequest("ddp"), settings).time_limit_s == 1200


def test_a_batch_file_takes_sbatch_s_variables_over_its_own_lines_and_nothing_from_the_config(
    tmp_path: Path,
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --account=file\ntrue\n")
    place = Place(tmp_path, {"SBATCH_ACCOUNT": "lab"})
    place.user('[launch]\nqos = "user"\n')
    program = read_own_program(str(tmp_path / "job.sbatch"), (), tmp_path)
    asked = with_defaults(own_request(program, LaunchRequest("")), place.load())
    assert (asked.account, asked.qos) == ("lab", None)
    said = own_request(program, LaunchRequest("", account="said"))
    assert with_defaults(said, place.load()).account == "said"


def test_a_missing_python_is_refused(world: World) -> None:
    with pytest.raises(UserError, match="--python /no/such: no such file"):
        world.plan(LaunchRequest("ddp", python="/no/such"))


def test_cancelling_a_waiting_run_shows_the_command_and_records_the_end(world: World) -> None:
    parent = world.parent()
    planned = plan_action(Verb.CANCEL, (parent.run_id,), world.settings, world.env, world.io)
    assert planned.commands == ("scancel 17",)
    perform(planned, world.env, 5.0)
    assert (world.root / "scancel.args").read_text().strip() == "17"
    assert runs.read_json(runs.RunPaths(parent.run_dir).run_json)["state"] == "CANCELLED"


def test_a_job_is_cancelled_by_its_id_with_its_run(world: World) -> None:
    parent = world.parent()
    planned = plan_action(Verb.CANCEL, ("17",), world.settings, world.env, world.io)
    assert planned.waiting_run_dirs == (("17", parent.run_dir),)


@pytest.mark.parametrize(
    ("squeue", "error", "words"),
    [
        (queued("RUNNING", "somebody-else"), UserError, "it belongs to somebody-else"),
        (queued("COMPLETED"), HasEnded, "it has ended already (COMPLETED)"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", UserError, "Invalid job id"),
    ],
)
def test_a_job_of_another_user_or_an_ended_one_is_not_cancelled(
    world: World, squeue: str, error: type[UserError], words: str
) -> None:
    world.client("squeue", squeue)
    with pytest.raises(error) as caught:
        plan_action(Verb.CANCEL, ("17",), world.settings, world.env, world.io)
    assert words in caught.value.message
    assert not (world.root / "scancel.args").exists()


@pytest.mark.parametrize("target", ["../17", "17; rm -rf /", "", "-f", "20261121-142233-ddp-4f2a"])
def test_only_run_ids_and_job_ids_are_cancelled(world: World, target: str) -> None:
    with pytest.raises(UserError, match="neither a run in"):
        plan_action(Verb.CANCEL, (target,), world.settings, world.env, world.io)


def test_a_fix_changes_the_parent_s_own_request(world: World) -> None:
    plan = world.plan(LaunchRequest("ddp", num_nodes=2, python=sys.executable, set={"lr": 1e20}))
    submitted = submit(plan, world.settings, world.env, world.io)
    parent = read_run(world.io, Path(submitted.run_dir))
    fix = Fix(
        "a smaller learning rate", {"lr": 0.05, "warmup_steps": 100, "time": "20:00"}, changes_learning=True
    )
    request = request_for_fix(parent, fix, "NUM001")
    assert (request.num_nodes, request.time_limit_s, request.backend) == (2, 1200, "slurm")
    assert request.set == {"lr": 0.05, "warmup_steps": 100}
    assert request.parent_run_id == parent.run_id
    child = world.plan(request)
    assert child.run_json["fix"] == {
        "rule": "NUM001",
        "title": "a smaller learning rate",
        "changes": {"lr": 0.05, "warmup_steps": 100, "time": "20:00"},
    }
    assert set(changes(parent, child)) == {
        ("lr", "1e+20", "0.05"),
        ("warmup_steps", "0", "100"),
        ("time_limit_s", "00:10:00", "00:20:00"),
    }
    lines = script_diff(read_parent_script(parent), parent.run_id, child)
    assert any(line.startswith("-") and "--lr=1e+20" in line for line in lines)
    assert any(line.startswith("+") and "--lr=0.05" in line for line in lines)
    assert not any(parent.run_id in line or child.run_id in line for line in lines)


def test_a_fix_that_the_recipe_does_not_know_is_refused(world: World) -> None:
    with pytest.raises(UserError, match="which recipe ddp does not have"):
        request_for_fix(world.parent(), Fix("x", {"no_such_parameter": 1}), "GPU001")


def test_a_child_can_wait_for_its_parent(world: World) -> None:
    parent = world.parent()
    plan = world.plan()
    submit(plan, world.settings, world.env, world.io, after=parent)
    assert "--dependency=afterany:17" in (world.root / "sbatch.args").read_text()


def relaunched(world: World, parent: Run, plan: Plan, choice: ParentChoice) -> Submitted:
    return relaunch(plan, parent, choice, world.settings, world.env, world.io)


def test_a_cancelled_parent_is_gone_before_its_child_is_submitted(world: World) -> None:
    world.client("scancel", 'echo "scancel $@" >> "$FAKE/order"')
    parent, plan = world.parent(), world.plan()
    world.client("sbatch", 'echo sbatch >> "$FAKE/order"; echo "$@" > "$FAKE/sbatch.args"; echo 18')
    submitted = relaunched(world, parent, plan, ParentChoice.CANCEL)
    assert (world.root / "order").read_text().splitlines() == ["scancel 17", "sbatch"]
    assert submitted.job_id == "18"
    assert "dependency" not in (world.root / "sbatch.args").read_text()


def test_a_parent_that_cannot_be_cancelled_gets_no_child_beside_it(world: World) -> None:
    parent, plan = world.parent(), world.plan()
    (world.root / "sbatch.args").unlink()
    world.client("scancel", "echo 'scancel: error: Access/permission denied' >&2; exit 1")
    with pytest.raises(
        UserError, match=r"nothing was launched: the parent .* not cancelled: .*Access/permission"
    ):
        relaunched(world, parent, plan, ParentChoice.CANCEL)
    assert not (world.root / "sbatch.args").exists()
    assert not Path(plan.run_dir).exists()


def test_a_child_that_cannot_be_written_does_not_cost_its_parent(world: World) -> None:
    parent, plan = world.parent(), world.plan()
    make_ready(plan)
    with pytest.raises(UserError, match="this run exists already"):
        relaunched(world, parent, plan, ParentChoice.CANCEL)
    assert not (world.root / "scancel.args").exists()


def test_a_child_that_is_refused_after_its_parent_was_cancelled_says_both(world: World) -> None:
    parent, plan = world.parent(), world.plan()
    world.client("sbatch", "echo 'sbatch: error: Invalid qos specification' >&2; exit 1")
    with pytest.raises(UserError, match=r"parent .* was cancelled, but its child was refused: .*Invalid qos"):
        relaunched(world, parent, plan, ParentChoice.CANCEL)
    assert not Path(plan.run_dir).exists()


def test_a_parent_that_ended_in_between_needs_no_cancel(world: World) -> None:
    parent, plan = world.parent(), world.plan()
    world.client("squeue", queued("FAILED"))
    assert relaunched(world, parent, plan, ParentChoice.CANCEL).job_id == "17"
    assert not (world.root / "scancel.args").exists()


@pytest.mark.parametrize(
    ("choice", "has_dependency"), [(ParentChoice.KEEP, False), (ParentChoice.WAIT, True)]
)
def test_a_parent_that_is_kept_or_waited_for_is_left_alone(
    world: World, choice: ParentChoice, has_dependency: bool
) -> None:
    relaunched(world, world.parent(), world.plan(), choice)
    assert ("--dependency=afterany:17" in (world.root / "sbatch.args").read_text()) is has_dependency
    assert not (world.root / "scancel.args").exists()


class _Clock:
    """Time that passes only while somebody sleeps."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_waiting_for_a_requeued_job_does_not_ask_the_controller_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked_s = _Clock(), list[float]()
    monkeypatch.setattr(start, "time", clock)
    runs.write_json(runs.RunPaths(tmp_path).exit_json, {"state": "FAILED"})  # of the first attempt

    class Queue(SystemIo):
        def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
            asked_s.append(clock.now_s)
            state = b"PENDING\n" if clock.now_s < 600 else b"COMPLETED\n"
            return CommandResult(query, 0, state, "", 0.0, 0.0)

    waited = start.wait(Submitted("run", str(tmp_path), "7", "PENDING"), "slurm", Queue({}), print)
    assert waited == "COMPLETED"
    assert 100 < len(asked_s) < 200  # once in five seconds, but for the first half minute


def test_a_job_does_not_count_as_ended_while_the_controller_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, notes = _Clock(), list[str]()
    monkeypatch.setattr(start, "time", clock)

    class Queue(SystemIo):
        def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
            if clock.now_s < 600:
                return CommandResult(query, 1, b"", "Unable to contact slurm controller", 0.0, 0.0)
            return CommandResult(query, 0, b"COMPLETED\n", "", 0.0, 0.0)

    waited = start.wait(Submitted("run", str(tmp_path), "7", "PENDING"), "slurm", Queue({}), notes.append)
    assert waited == "COMPLETED"
    assert clock.now_s >= 600
    assert notes == ["still waiting: Unable to contact slurm controller"]
