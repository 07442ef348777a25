"""`coach config`: the values in force, their files, and the mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from coach.cli import config as command
from coach.config.keys import FIXED_SCREEN_KEYS, KEYS
from coach.model.errors import UserError
from tests.json_documents import check_printed

SITE = """[launch]
partition = "gpu"
environment = "pt"
[environments.pt]
kind = "modules"
modules = ["pytorch/2.6"]
[limits]
max_time = "1:00:00"
[locked]
"launch.partition" = "one for the course"
"""


class Coach:
    """The command in this process; its files in a folder of the test."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.root, self._capsys = root, capsys
        self.site = root / "site.toml"
        self.user = root / "config.toml"
        self.site.write_text(SITE)
        for name in list(os.environ):
            if name.startswith("COACH_"):
                monkeypatch.delenv(name)
        for name, value in {
            "COACH_HOME": str(root),
            "COACH_SITE": str(self.site),
            "COACH_AS_ROOT": "1",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SLURM_CLUSTER_NAME", "tiger")

    def __call__(self, *args: str, status: int = 0) -> tuple[list[str], list[str]]:
        parser = ArgumentParser()
        command.configure(parser)
        assert command.run(parser.parse_args(args)) == status
        said = self._capsys.readouterr()
        check_printed(["config", *args], said.out)
        return said.out.splitlines(), said.err.splitlines()

    def json(self, *args: str, status: int = 0) -> Any:
        lines, _ = self(*args, "--format", "json", status=status)
        return json.loads("\n".join(lines))


@pytest.fixture
def coach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Coach:
    return Coach(tmp_path, monkeypatch, capsys)


def test_every_value_is_explained_with_file_and_line(coach: Coach, monkeypatch: pytest.MonkeyPatch) -> None:
    coach.user.write_text('\n[launch]\naccount = "pi"\npartition = "gpu2"\n')
    monkeypatch.setenv("COACH_LAUNCH_QOS", "fast")
    lines, notes = coach("--explain")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line}
    assert rows["launch.partition"] == f'"gpu" site, locked: one for the course ({coach.site}:2)'
    assert rows["launch.account"] == f'"pi" {coach.user}:3'
    assert rows["launch.qos"] == '"fast" environment variable COACH_LAUNCH_QOS'
    assert rows["launch.time"] == "– default"
    assert rows["limits.max_time"] == f'"01:00:00" {coach.site}:8'
    assert rows["runs_root"] == f'"{coach.root}/runs" environment variable COACH_HOME'
    assert rows["environments.pt"] == f'kind "modules", modules ["pytorch/2.6"] {coach.site}:4'
    assert notes == [
        f'coach: {coach.user}:4: launch.partition = "gpu2" is ignored:'
        f" locked by the site ({coach.site}:10): one for the course"
    ]


def test_one_key_or_one_table_is_explained(coach: Coach) -> None:
    lines, _ = coach("--explain", "limits")
    assert [line.split()[0] for line in lines[:4]] == [
        "KEY",
        "limits.max_gpus",
        "limits.max_time",
        "limits.max_running",
    ]
    with pytest.raises(UserError, match="there is no key limit") as refused:
        coach("--explain", "limit.max_gpu")
    assert refused.value.hint == "did you mean limits.max_gpus?"
    with pytest.raises(UserError) as refused:
        coach("--explain", "zzz")
    assert refused.value.hint == "`coach config --explain` lists the keys"


def test_every_key_of_the_reference_is_explained(coach: Coach) -> None:
    coach.site.write_text("[poll]\nmin_jobs_interval_s = 30\n")
    told = {row["key"]: row for row in coach.json("--explain")["settings"]}
    fixed = {f"keys.{name}" for name in FIXED_SCREEN_KEYS}
    assert KEYS.keys() - told.keys() == fixed
    floor = told["poll.min_jobs_interval_s"]
    assert (floor["value"], floor["origin"]) == (30.0, f"{coach.site}:2")


def test_without_an_option_only_keys_with_a_value_are_shown(coach: Coach) -> None:
    lines, _ = coach()
    keys = [line.split()[0] for line in lines]
    assert "launch.partition" in keys
    assert "launch.account" not in keys


def test_json_has_values_origins_and_locks(coach: Coach) -> None:
    found = coach.json("--explain")
    rows = {row["key"]: row for row in found["settings"]}
    assert rows["launch.partition"] == {
        "key": "launch.partition",
        "value": "gpu",
        "origin": f"{coach.site}:2",
        "locked": "one for the course",
    }
    assert (rows["launch.time"]["value"], rows["launch.time"]["origin"]) == (None, None)
    assert rows["environments.pt"]["value"] == {"kind": "modules", "modules": ["pytorch/2.6"]}
    assert (found["schema"], found["cluster"], found["notes"]) == (1, "tiger", [])
    files = {file["path"]: file["is_there"] for file in found["files"]}
    assert [files[str(path)] for path in (coach.site, coach.user, coach.root / "remembered.toml")] == [
        True,
        False,
        False,
    ]


def test_lists_of_paths_are_shown_as_json(coach: Coach) -> None:
    coach.site.write_text(f'recipes = ["{coach.root}"]\n[rules]\nfiles = ["{coach.root}/rows.toml"]\n')
    values = {each["key"]: each["value"] for each in coach.json()["settings"]}
    assert (values["recipes"], values["rules.files"]) == ([str(coach.root)], [f"{coach.root}/rows.toml"])


def test_a_checked_file_is_good_or_all_its_mistakes_are_named(coach: Coach) -> None:
    lines, _ = coach("--check", str(coach.site))
    assert lines == [f"{coach.site}: nothing is wrong (the site's file, 4 keys, 1 locked)"]
    coach.site.write_text('[launch]\nacount = "x"\nnodes = "two"\n')
    lines, _ = coach("--check", status=2)
    assert lines == [
        f"{coach.site}:2: unknown key launch.acount",
        "  did you mean launch.account?",
        f"{coach.site}:3: launch.nodes = 'two': expected a whole number, at least 1",
        f"{coach.site}: 2 problems (the site's file, 0 keys)",
    ]
    found = coach.json("--check", str(coach.site), status=2)
    assert found["files"][0]["problems"][0] == {
        "file": str(coach.site),
        "line": 2,
        "message": "unknown key launch.acount",
        "hint": "did you mean launch.account?",
    }


def test_a_checked_file_names_what_is_not_there(coach: Coach) -> None:
    rules = coach.root / "rules.toml"
    rules.write_text('[[group]]\nrule = "ENV010"\nkind = "full"\n[[group.wording]]\npattern = "("\n')
    coach.site.write_text(
        f'recipes = ["{coach.root}/nowhere"]\n[rules]\nfiles = ["{rules}"]\n[keys]\n6 = "basline"\n'
        '7 = "ddp"\n[launch]\ntime = "3-00:00:00"\n[launch.sbatch]\n"--comment" = "x"\nnice = "10"\n'
        '[limits]\nmax_time = "01:00:00"\n[cohort]\nroster = "/nowhere/names"\n'
    )
    (checked,) = coach.json("--check", str(coach.site), status=2)["files"]
    told = {each["line"]: each["message"].partition(":")[0] for each in checked["problems"]}
    keys = (
        {1: "recipes", 3: "rules.files", 5: "keys.6", 8: "launch.time"}
        | {10: "launch.sbatch.--comment", 15: "cohort.roster"}
    )  # fmt: skip
    assert told == keys


def test_a_wrong_value_with_a_colon_is_told_from_what_is_wrong(coach: Coach) -> None:
    coach.site.write_text('theme = "night"\n[launch]\ntime = "1: 30"\n')
    lines, _ = coach("--check", str(coach.site), status=2)
    assert lines == [
        f"{coach.site}:3: launch.time = '1: 30': not a time limit",
        "  expected for example 30:00, 2:00:00 or 1-12:00:00",
        f"{coach.site}: 1 problem (the site's file, 1 key)",
    ]


def test_a_missing_file_cannot_be_checked(coach: Coach) -> None:
    with pytest.raises(UserError, match="no such file"):
        coach("--check", "/no/such.toml")


def test_a_remembered_answer_is_shown_with_its_line(coach: Coach) -> None:
    memory = coach.root / "remembered.toml"
    memory.write_text('["tiger".launch]\naccount = "pi"\nqos = "fast"\n')
    lines, _ = coach("--explain", "launch.account")
    assert lines[1].split() == ["launch.account", '"pi"', f"{memory}:2"]


def test_with_a_broken_site_file_help_and_the_check_still_work(coach: Coach) -> None:
    coach.site.write_text("[launch]\nacount = 'x'\n")

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "coach", *args], capture_output=True, text=True, timeout=60
        )

    assert run("--help").returncode == 0
    refused = run("recipes")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines() == [
        f"coach: {coach.site}:2: unknown key launch.acount",
        "  did you mean launch.account?",
    ]
    checked = run("config", "--check")
    assert (checked.returncode, checked.stdout.splitlines()[0]) == (
        2,
        f"{coach.site}:2: unknown key launch.acount",
    )


def test_one_key_is_shown_with_its_meaning_and_its_allowed_values(coach: Coach) -> None:
    lines, _ = coach("--explain", "slurm.sbatch_timeout_s")
    assert "Timeout of sbatch, which includes a site's plugins and wrapper. Its value: seconds, " in (
        "\n".join(lines)
    )
    assert not any("Its value:" in line for line in coach("--explain", "slurm")[0])
