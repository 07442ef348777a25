"""`coach fix RUN` as a user types it: a change of the training's result needs its own option, and no fix is
tried twice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from coach import runs
from coach.cli.fix_choice import with_another
from coach.cli.fix_foreign import other_fixes
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix, Severity, Subject
from coach.workflows.launching.fix_offer import remedies
from coach.workflows.launching.possible_fixes import numbered
from tests.forked import forked_coach
from tests.launch.examples import MACHINE, plan
from tests.rules.examples import run

PARENT, CHILD = "20261121-142230-baseline-0000", "20261121-142231-baseline-0001"
STEP = {"loss": 2.3, "num_samples": 8, "num_samples_global": 8, "step_time_s": 0.1, "data_time_s": 0.01}


class Shell:
    """A user with runs of his own, on a machine without Slurm."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan = plan(root, "baseline", MACHINE, set={"lr": 1000.0})
        self.env = {
            **os.environ,
            "COACH_HOME": str(root),
            "PYTHONPATH": str(Path.cwd()),
            "COACH_AS_ROOT": "1",
        }

    def run(self, run_id: str, parameters: Mapping[str, Any], **said: Any) -> Path:
        """One that completed, with a loss that is no number from its third step on."""
        paths = runs.create_run_dir(self.root / "runs", run_id)
        value = {
            "run_id": run_id,
            "recipe": "baseline",
            "backend": "local",
            "state": "COMPLETED",
            "parameters": {**self.plan.parameters, **parameters},
            "launch": {"recipe": "baseline"},
            "parameter_info": {"lr": {"default": 0.05, "usual": [0.001, 0.3]}},
            "resources": asdict(self.plan.resources),
            "created_time_s": 1000.0,
        }
        paths.run_json.write_text(json.dumps({**value, **said}))
        paths.metrics_of(0).parent.mkdir(exist_ok=True)
        records = [{"step": step, "epoch": 0, "time_s": 1000.0 + step, **STEP} for step in range(40)]
        for record in records[3:]:
            record["loss"] = "NaN"
        paths.metrics_of(0).write_text("".join(json.dumps(record) + "\n" for record in records))
        return paths.run_dir

    def coach(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = forked_coach(("fix", *args), self.env)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_yes_does_not_cover_a_fix_that_changes_the_training_s_result(shell: Shell) -> None:
    shell.run(PARENT, {"lr": 1000.0})
    done = shell.coach(PARENT, "--yes")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "this fix changes the training result: --yes does not cover that" in done.stderr
    assert "this changes the training result: it will differ from the parent's" in done.stderr
    assert [path.name for path in (shell.root / "runs").glob("2026*")] == [PARENT]


def test_a_fix_that_another_child_has_tried_is_refused_and_the_chain_is_named(shell: Shell) -> None:
    shell.run(PARENT, {"lr": 1000.0})
    fixes = json.loads(shell.coach(PARENT, "--list", "--format", "json").stdout)["fixes"]
    fix = {"rule": fixes[0]["rule"], "title": fixes[0]["title"], "changes": fixes[0]["changes"]}
    shell.run(CHILD, fixes[0]["changes"], parent_run_id=PARENT, fix=fix, state="FAILED", resources={})
    done = shell.coach(PARENT, "--dry-run")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"this fix was tried before: {CHILD} was launched exactly so and ended FAILED" in done.stderr
    assert "another fix is" not in done.stderr


def test_a_list_without_fixes_has_no_header(shell: Shell) -> None:
    path = shell.run(PARENT, {"lr": 0.05})
    metrics = runs.RunPaths(path).metrics_of(0)
    metrics.write_text(metrics.read_text().replace('"NaN"', "2.0"))
    done = shell.coach(PARENT, "--list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no finding has a fix that changes the launch" in done.stderr


def test_a_refused_fix_leads_to_the_next_one_of_the_same_finding() -> None:
    parent = replace(run(), recipe="baseline", launch={"recipe": "baseline"}, why_not_mine=None)
    fixes = Fix("20 CPUs", {"cpus_per_task": 20}), Fix("look"), Fix("2 workers", {"num_workers": 2})
    slow = Finding(
        *("GPU005", "input-bound", "input_bound", Severity.WARNING, 0.9, True, None),
        *(Subject(), "slow", (), fixes, None),
    )
    found = numbered(remedies(parent, [replace(slow, rule="MEM001", fixes=fixes[:1]), slow]))
    refused = UserError("--cpus-per-task 20: partition cpu has 16 CPUs per node")
    assert with_another(refused, found, found[0].remedy, "17") is refused
    assert [with_another(refused, found, each.remedy, "17").hint for each in found[1:]] == [
        "another fix is `coach fix 17 GPU005 --number 2`: 2 workers",
        "another fix is `coach fix 17 GPU005 --number 1`: 20 CPUs",
    ]


def test_a_run_that_lies_elsewhere_is_tried_short_as_well(shell: Shell) -> None:
    elsewhere = shell.run(PARENT, {"lr": 1000.0}).rename(shell.root / "moved")
    done = shell.coach(str(elsewhere), "--trial", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "max_steps: " in done.stderr


def test_a_read_only_coach_shows_the_fixes_and_launches_nothing(shell: Shell) -> None:
    shell.run(PARENT, {"lr": 1000.0})
    (shell.root / "config.toml").write_text("readonly = true\n")
    listed = shell.coach(PARENT, "--list")
    assert (listed.returncode, "NUM001" in listed.stdout) == (0, True), listed.stderr
    for words in (["--dry-run"], ["--yes", "--change-learning"]):
        done = shell.coach(PARENT, *words)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "launches nothing" in done.stderr
    assert [path.name for path in (shell.root / "runs").glob("2026*")] == [PARENT]


def test_other_findings_with_a_fix_are_named_by_their_commands() -> None:
    assert other_fixes("8129", ()) == ""
    assert other_fixes("8129", ["NUM001", "MEM001", "NUM001"]) == (
        "another finding has one: `coach fix 8129 NUM001` or `coach fix 8129 MEM001`"
    )


def test_a_healthy_run_is_said_to_need_no_fix(shell: Shell) -> None:
    paths = runs.RunPaths(shell.run(PARENT, {}))
    records = [{"step": step, "epoch": 0, "time_s": 1000.0 + step, **STEP} for step in range(40)]
    for record in records:
        record["loss"] = 2.3 / (1 + record["step"])
    paths.metrics_of(0).write_text("".join(json.dumps(record) + "\n" for record in records))
    done = shell.coach(PARENT, "--dry-run")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        f"coach: {PARENT}: healthy: no finding, so no fix",
    )


def test_the_fix_of_a_group_is_that_of_its_first_run_with_one(shell: Shell) -> None:
    group = {"group_id": PARENT, "parameter": "lr", "size": 2}
    healthy = shell.run(PARENT, {}, sweep={**group, "index": 0, "value": 0.1})
    shell.run(CHILD, {"lr": 1000.0}, sweep={**group, "index": 1, "value": 1000.0})
    metrics = runs.RunPaths(healthy).metrics_of(0)
    metrics.write_text(metrics.read_text().replace('"NaN"', "2.0"))
    done = shell.coach(PARENT, "--dry-run")
    assert (done.returncode, f"coach: {PARENT}: the first run with a fix is {CHILD}\n" in done.stderr) == (
        0,
        True,
    ), done.stderr
    assert "lr: 1000.0 → 0.05" in done.stdout
    assert "the first run with a fix" not in shell.coach(CHILD, "--dry-run").stderr
