"""A learner's way through a drill on the command line: listed, withheld, answered wrong, answered right; the
engine is never told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coach.cli import guarded, run_command
from coach.config import Settings, load
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.teaching.drill import Drill, Need, Twin
from coach.workflows.launching.defaults import with_defaults
from coach.workflows.launching.recipes import find_recipe
from coach.workflows.teaching.drills import why_skipped
from tests.drills.every_drill import twin_request
from tests.installed import REPOSITORY
from tests.json_documents import check_printed, check_run_dir
from tests.launch.examples import CLUSTER, MACHINE
from tests.tui.fake_session import nan_diagnosis

RECORDINGS = REPOSITORY / "tests" / "recordings"
RUN_ID = "20261121-043902-strange_loss-bca6"

_CHECK_STDIN = """
import sys
from dataclasses import replace
from pathlib import Path
from coach.launch import recipe
recipe.data_dir = lambda: Path(sys.argv[1])
from coach.cli import guarded, run_command
sys.exit(guarded(lambda: run_command("check", ["-", "--backend", "local"])))
"""

RECIPE = """
schema = 1
name = "strange_loss"
title = "It worked with the other optimizer"
summary = "Since this morning."
trainer = "baseline.py"
devices = "single"
time = "00:02:00"
parameters_of = "baseline"

[drill]
planted = "nan_loss"
choices = ["input_bound", "nan_loss", "gradient_not_finite", "hang"]
set = { lr = 1e20 }
options = { mem = "900M", env = { A = "drill", B = "drill" } }

[drill.twin]
recipe = "baseline"
set = { lr = 0.01 }
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A coach with one drill and one ended run of it."""
    data = tmp_path / "data"
    shutil.copytree(REPOSITORY / "recipes", data / "recipes", ignore=shutil.ignore_patterns("drills"))
    (data / "trainers").symlink_to(REPOSITORY / "trainers")
    drills = data / "recipes" / "drills"
    drills.mkdir()
    (drills / "strange_loss.toml").write_text(RECIPE)
    (drills / "strange_loss.md").write_text("# Too high a learning rate\n\nLook at lr first.\n")
    monkeypatch.setattr("coach.launch.recipe.data_dir", lambda: data)
    home = tmp_path / "home"
    run_dir = home / "runs" / RUN_ID
    shutil.copytree(RECORDINGS / "nan", run_dir)
    record = json.loads((run_dir / "run.json").read_text())
    record |= {"run_id": RUN_ID, "recipe": "strange_loss", "drill": "strange_loss", "state": "COMPLETED"}
    (run_dir / "run.json").write_text(json.dumps(record))
    monkeypatch.setenv("COACH_HOME", str(home))
    return home


def coach(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = guarded(lambda: run_command(words[0], words[1:]))
    out, err = capfd.readouterr()
    check_printed(words, out)
    return status, out, err


def listed(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    status, out, _ = coach(capfd, "drill", "--backend", "local", "--format", "json")
    assert status == 0
    (drill,) = json.loads(out)["drills"]
    return dict(drill)


@pytest.fixture
def settings(home: Path) -> Settings:
    return load({"COACH_HOME": str(home)})


def test_until_it_is_answered_check_and_list_tell_nothing(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local", "--format", "json")
    told = json.loads(out)
    assert (status, told["findings"], told["state"]) == (0, [], "COMPLETED")
    (gap,) = told["not_measured"]
    assert (gap["what"], gap["because"]) == ("diagnosis", "drill: answer first")
    assert f"coach drill {RUN_ID} --answer" in gap["how"]
    _, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local")
    assert "drill: answer first" in out
    assert "NUM001" not in out
    assert "nothing found" not in out
    for file in ("stdout.log", "metrics/rank-0.jsonl"):
        _, out, _ = coach(capfd, "check", str(home / "runs" / RUN_ID / file), "--backend", "local")
        assert "drill: answer first" in out
        assert "NUM001" not in out
    drill = listed(capfd)
    assert drill["planted"] is None
    assert drill["run_dir"] == str(home / "runs" / RUN_ID)


def test_naming_its_files_shows_no_more_of_an_open_drill(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = home / "runs" / RUN_ID
    scheduled = home / "runs" / ".logs" / f"{RUN_ID}.out"  # Slurm's path for its output
    scheduled.parent.mkdir()
    (run_dir / "stdout.log").rename(scheduled)
    (run_dir / "stdout.log").symlink_to(scheduled)
    (home / "link.log").symlink_to(run_dir / "stdout.log")
    (home / "other.log").write_text("step 1\n")
    named = ["--log", str(run_dir / "stdout.log")]
    whole = [str(home / "link.log")], [str(home / "runs")], [str(scheduled)], [str(run_dir / "stdout.log")]
    for words in (*whole, [str(home / "other.log"), *named]):
        _, out, _ = coach(capfd, "check", *words, "--backend", "local")
        assert "drill: answer first" in out
        assert "NUM001" not in out
    with open(run_dir / "stdout.log", "rb") as log:
        done = subprocess.run(
            [sys.executable, "-c", _CHECK_STDIN, str(home.parent / "data")], stdin=log, capture_output=True
        )
    assert b"drill: answer first" in done.stdout, done.stderr.decode()
    assert b"NUM001" not in done.stdout


def test_a_fix_waits_for_the_answer_and_says_so(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in ([RUN_ID], [RUN_ID, "--list"], [RUN_ID, "NUM001", "--dry-run"]):
        status, out, err = coach(capfd, "fix", *words)
        assert (status, out) == (2, "")
        assert "drill: answer first" in err
        assert f"coach drill {RUN_ID} --answer" in err


def test_the_engine_judges_a_copy_without_the_names_like_any_other_run(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = home / "copy"
    shutil.copytree(home / "runs" / RUN_ID, copy)
    record = (copy / "run.json").read_text()
    (copy / "run.json").write_text(record.replace("strange_loss", "x").replace("baseline", "y"))
    _, out, _ = coach(capfd, "check", str(copy), "--backend", "local", "--format", "json")
    first = json.loads(out)["findings"][0]
    assert (first["cause"], first["primary"]) == ("nan_loss", True)


def test_a_wrong_answer_shows_counter_evidence_and_leaves_the_drill_open(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = coach(capfd, "drill", "strange_loss", "--answer", "input_bound")
    assert status == 1
    assert "not input_bound" in out
    assert "GPU005 saw nothing of it" in out
    _, told, _ = coach(capfd, "drill", "strange_loss", "--answer", "hang", "--format", "json")
    assert [drill["planted"] for drill in json.loads(told)["drills"]] == [None]
    assert "NUM001" not in out
    _, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local")
    assert "drill: answer first" in out
    assert (listed(capfd)["planted"], listed(capfd)["is_solved"]) == (None, False)


def test_the_right_answer_shows_the_proof_and_the_lesson_and_is_kept_with_its_tries(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    coach(capfd, "drill", "strange_loss", "--answer", "hang")
    status, out, _ = coach(capfd, "drill", RUN_ID, "--answer", "nan_loss")
    assert status == 0
    check_run_dir(home / "runs" / RUN_ID)
    assert "right: nan_loss" in out
    assert "NUM001" in out
    assert "Look at lr first." in out
    kept = json.loads((home / "runs" / RUN_ID / "drill_answer.json").read_text())
    assert (kept["schema"], kept["answer"], kept["is_right"], kept["num_tries"]) == (1, "nan_loss", True, 2)
    _, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local")
    assert "NUM001" in out
    assert (listed(capfd)["planted"], listed(capfd)["is_solved"]) == ("nan_loss", True)
    status, _, err = coach(capfd, "drill", RUN_ID, "--answer", "hang")
    assert status == 2
    assert "answered already: nan_loss, right" in err


def test_a_drill_that_was_solved_and_launched_again_stays_solved_in_the_list(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    coach(capfd, "drill", RUN_ID, "--answer", "nan_loss")
    again = home / "runs" / RUN_ID.replace("-0439", "-0539")
    shutil.copytree(
        home / "runs" / RUN_ID, again, ignore=shutil.ignore_patterns("drill_answer.json", "exit.json")
    )
    record = json.loads((again / "run.json").read_text())
    (again / "run.json").write_text(json.dumps({**record, "run_id": again.name}))
    drill = listed(capfd)
    assert (drill["run_dir"], drill["is_solved"], drill["planted"]) == (str(again), True, None)
    _, out, _ = coach(capfd, "drill", "--backend", "local")
    assert "solved before" in out


@pytest.fixture
def killed(home: Path) -> Path:
    """The run of the drill as it is if its memory ran out before the fault could show."""
    run_dir = home / "runs" / RUN_ID
    shutil.rmtree(run_dir / "metrics")
    (run_dir / "stdout.log").write_text("epoch 1\n")
    (run_dir / "stderr.log").write_text(
        "slurmstepd-node1: error: StepId=17.0 exceeded memory limit (171192320 > 157286400), being killed\n"
        "srun: error: node1: task 0: Killed\n"
    )
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**record, "state": "FAILED"}))
    for end in ("exit.json", "verdict.json"):
        (run_dir / end).unlink(missing_ok=True)
    return run_dir


@pytest.mark.parametrize("answer", ["nan_loss", "hang"])
def test_a_run_that_ended_otherwise_than_planned_is_spoiled_and_counts_as_no_answer(
    killed: Path, capfd: pytest.CaptureFixture[str], answer: str
) -> None:
    status, out, _ = coach(capfd, "drill", "strange_loss", "--answer", answer)
    assert status == 1
    assert out.startswith("strange_loss: spoiled: it ended with MEM007 host-out-of-memory: ")
    assert f"{answer} is neither right nor wrong: coach drill strange_loss launches it again" in out
    assert "right: " not in out
    assert "Look at lr first." not in out
    kept = json.loads((killed / "drill_answer.json").read_text())
    assert (kept["is_right"], kept["num_tries"]) == (False, 0)
    check_run_dir(killed)
    status, out, _ = coach(capfd, "drill", "strange_loss", "--answer", answer, "--format", "json")
    (told,) = json.loads(out)["drills"]
    assert (status, told["planted"], told["is_solved"]) == (1, None, None)
    assert told["spoiled"].startswith("it ended with MEM007 ")
    drill = listed(capfd)
    assert (drill["planted"], drill["is_solved"], drill["spoiled"]) == (None, None, told["spoiled"])
    _, out, _ = coach(capfd, "drill", "--backend", "local")
    assert "spoiled" in out
    _, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local")
    assert "MEM007" in out


def test_giving_up_on_a_spoiled_run_tells_the_cause_and_that_this_run_does_not_show_it(
    killed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = coach(capfd, "drill", RUN_ID, "--give-up")
    assert "given up: it is nan_loss, but it ended with MEM007 " in out
    assert "Look at lr first." in out
    assert (listed(capfd)["planted"], listed(capfd)["is_solved"]) == ("nan_loss", False)


def test_a_run_without_its_fault_is_spoiled_at_its_end_and_not_judged_before(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir = home / "runs" / RUN_ID
    steps = [{"step": step, "loss": 2.3, "time_s": 1e9 + step} for step in range(1, 9)]
    (run_dir / "metrics" / "rank-0.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    for log in ("stdout.log", "stderr.log"):
        (run_dir / log).write_text("")
    record, end = (json.loads((run_dir / name).read_text()) for name in ("run.json", "exit.json"))
    (run_dir / "exit.json").unlink()
    (run_dir / "run.json").write_text(json.dumps({**record, "state": "RUNNING"}))
    status, out, err = coach(capfd, "drill", RUN_ID, "--answer", "nan_loss")
    assert (status, out) == (2, "")
    assert "it does not show its fault yet" in err
    assert not (run_dir / "drill_answer.json").exists()
    (run_dir / "run.json").write_text(json.dumps(record))
    (run_dir / "exit.json").write_text(json.dumps(end))
    status, out, _ = coach(capfd, "drill", RUN_ID, "--answer", "nan_loss")
    assert (status, out.splitlines()[0]) == (
        1,
        "strange_loss: spoiled: it ended with COMPLETED and no sign of its fault",
    )


def test_only_the_cause_that_the_run_shows_is_right_among_those_that_its_finding_may_have() -> None:
    drill = Drill("nan_loss", ("a", "b", "c", "d"), Twin("baseline"), also=("loss_divergence",))

    def right(*causes: str, of: str | None = None) -> set[str]:
        findings = [nan_diagnosis().findings[0]]
        made = [replace(findings[0], rule=cause, cause=cause, consequence_of=None) for cause in causes]
        return set(drill.right_answers([*made[:1], *(replace(each, consequence_of=of) for each in made[1:])]))

    assert right("loss_divergence") == {"loss_divergence"}
    assert right("nan_loss") == {"nan_loss", "loss_divergence"}
    assert right("slurm_cancelled", "nan_loss") == {"nan_loss", "loss_divergence"}
    assert right("slurm_cancelled", "loss_divergence") == set(), "it is not what ended the run"
    assert right("host_oom", "nan_loss", of="host_oom") == set()
    assert right("loss_divergence", "nan_loss", of="loss_divergence") == {"nan_loss", "loss_divergence"}
    assert right() == set()


def test_giving_up_shows_the_diagnosis_and_does_not_count_as_solved(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = coach(capfd, "drill", "strange_loss", "--give-up")
    check_run_dir(home / "runs" / RUN_ID)
    assert status == 1
    assert "given up: it is nan_loss" in out
    kept = json.loads((home / "runs" / RUN_ID / "drill_answer.json").read_text())
    assert (kept["answer"], kept["is_right"]) == (None, False)
    _, out, _ = coach(capfd, "check", RUN_ID, "--backend", "local")
    assert "NUM001" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("strange_loss", "--answer", "nanloss"), "not on the list"),
        (("strange_los", "--answer", "nan_loss"), "did you mean strange_loss?"),
        (("baseline",), "baseline is not a drill"),
        (("--answer", "nan_loss"), "which drill?"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_kept(
    home: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    status, out, err = coach(capfd, "drill", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert not (home / "runs" / RUN_ID / "drill_answer.json").exists()


def test_the_lesson_is_not_to_be_read_among_the_recipes(settings: Settings) -> None:
    with pytest.raises(UserError, match="is a drill"):
        find_recipe("strange_loss", settings)


def test_a_drill_has_its_fault_s_values_and_a_person_s_values_win(settings: Settings) -> None:
    plain = with_defaults(LaunchRequest("strange_loss"), settings)
    assert (plain.set["lr"], plain.mem, plain.gpus_per_node) == (1e20, "900M", 0)
    asked = LaunchRequest("strange_loss", set={"lr": 2}, mem="2G", env={"A": "mine"})
    said = with_defaults(asked, settings)
    assert (said.set["lr"], said.mem, said.env) == (2, "2G", {"A": "mine", "B": "drill"})
    again = with_defaults(said, settings)  # a changed plan is planned again
    assert (again.set, again.mem, again.env) == (said.set, said.mem, said.env)
    child = with_defaults(LaunchRequest("strange_loss", parent_run_id=RUN_ID), settings)
    assert (dict(child.set), child.mem) == ({}, None)


def test_a_drill_names_its_missing_requirement() -> None:
    def why(need: Need, site: Site) -> str | None:
        return why_skipped(Drill("a", ("a", "b", "c", "d"), Twin("baseline"), needs=(need,)), site)

    assert why(Need.GPU, CLUSTER) is None
    assert "GPU" in (why(Need.GPU, MACHINE) or "")
    assert "Slurm" in (why(Need.SLURM, MACHINE) or "")
    assert why(Need.TWO_NODES, MACHINE) is None


def test_a_drill_that_no_node_here_has_room_for_is_skipped() -> None:
    def why(**options: object) -> str | None:
        return why_skipped(Drill("a", ("a", "b", "c", "d"), Twin("baseline"), options=options), MACHINE)

    assert why(cpus_per_task=1, mem="100M") is None
    assert "a node with 5000 CPUs" in (why(cpus_per_task=5000) or "")
    assert "MiB of memory" in (why(mem="5000G") or "")


def test_a_twin_is_launched_on_as_many_nodes_that_one_machine_plays() -> None:
    drill = Drill("a", ("a", "b", "c", "d"), Twin("ddp", options={"num_nodes": 2}), needs=(Need.TWO_NODES,))
    twin = twin_request(drill, "local")
    assert (twin.recipe, twin.num_nodes, twin.has_local_nodes, twin.gpus_per_node) == ("ddp", 2, True, 0)
