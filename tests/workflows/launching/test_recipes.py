"""Recipes as a user meets them: in order, with the changes of each step, as a copy to work on, and launched
from that copy."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.config import Settings
from coach.launch.recipe import find_recipes, get_recipe, lesson_of, read_recipe
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.rules.registry import rule_classes
from coach.sources.io import SystemIo
from coach.workflows.launching.prepare import plan_for, with_defaults
from coach.workflows.launching.recipes import (
    eject,
    find_recipe,
    known_recipes,
    ladder,
    launch_name,
    pages,
    recipe_keys,
)
from coach.workflows.launching.start import make_ready
from tests.forked import typed_coach
from tests.launch.examples import CLUSTER


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A copy of `ddp` in a folder of the user's."""
    folder = tmp_path / "work" / "my ddp"
    eject(get_recipe("ddp"), folder)
    return folder


def test_the_ladder_begins_with_the_first_step_and_follows_next() -> None:
    shipped = find_recipes()[0]
    steps = ladder(shipped)
    names = [recipe.name for recipe in steps]
    assert names[0] == "baseline"
    assert sorted(names) == sorted(recipe.name for recipe in shipped)
    ddp, baseline = (next(r for r in shipped if r.name == name) for name in ("ddp", "baseline"))
    linked = ladder((ddp, replace(baseline, next="ddp")))
    assert [recipe.name for recipe in linked] == ["baseline", "ddp"]


def test_every_step_names_the_changes_of_its_trainer(settings: Settings) -> None:
    by_name = {page.recipe.name: page for page in pages(settings)[0]}
    assert by_name["baseline"].previous is None
    amp = by_name["amp"]
    assert amp.previous is not None
    assert any(row.startswith("+") and "autocast" in row for row in amp.diff)
    assert "What it teaches" in by_name["ddp"].lesson
    assert (by_name["scale"].previous, by_name["scale"].diff) == ("ddp", ())


def test_a_copy_has_all_that_it_needs_and_runs_by_hand(mine: Path) -> None:
    names = {path.name for path in mine.iterdir()}
    assert names == {"ddp.py", "common", "ddp.toml", "ddp.md", "README.md"}
    assert "torchrun --standalone --nproc-per-node=2 ddp.py --epochs 1" in (mine / "README.md").read_text()
    assert "\nkey" not in (mine / "ddp.toml").read_text()
    code = "import ast, sys; ast.parse(open('ddp.py').read()); sys.path.insert(0, '.'); import common"
    assert subprocess.run([sys.executable, "-I", "-c", code], cwd=mine, timeout=60).returncode == 0


def test_a_copy_of_a_bench_is_started_by_hand_with_options_that_it_has(tmp_path: Path) -> None:
    eject(get_recipe("prefetcher"), tmp_path / "mine")
    assert "python prefetcher.py --max_steps 5\n" in (tmp_path / "mine" / "README.md").read_text()
    assert "max_steps" in get_recipe("prefetcher").parameters


def test_a_copy_by_another_name_keeps_the_fields_of_its_recipe(tmp_path: Path) -> None:
    eject(get_recipe("pipeline_parallel"), tmp_path / "stages")
    toml = tmp_path / "stages" / "pipeline_parallel.toml"
    toml.write_text(toml.read_text().replace('name = "pipeline_parallel"', 'name = "unet"', 1))
    copied = get_recipe(str(tmp_path / "stages"))
    assert (copied.name, copied.uneven_by_design) == ("unet", True)


def test_a_copy_overwrites_no_file(mine: Path) -> None:
    with pytest.raises(UserError, match="is there already, and not empty"):
        eject(get_recipe("baseline"), mine)
    assert not (mine / "baseline.toml").exists()


def test_a_copy_of_a_sweep_still_finds_the_parameters_it_inherits(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    eject(get_recipe("scale"), folder)
    copy = get_recipe(str(folder))
    assert copy.own_trainers == folder
    assert copy.parameters == get_recipe("scale").parameters


def test_a_folder_is_a_recipe_and_one_without_a_toml_explains_how_to_make_it(
    mine: Path, tmp_path: Path
) -> None:
    assert get_recipe(str(mine)).path == mine / "ddp.toml"
    assert get_recipe(str(mine / "ddp.toml")).own_trainers == mine
    (mine / "other.toml").write_text((mine / "ddp.toml").read_text())
    with pytest.raises(UserError, match=r"several recipes: ddp.toml, other.toml"):
        get_recipe(str(mine))
    with pytest.raises(UserError, match="no recipe in this folder"):
        get_recipe(str(tmp_path))


def test_the_job_starts_the_user_s_trainer(mine: Path, settings: Settings) -> None:
    (mine / "notes").mkdir()
    (mine / "notes" / "big.bin").write_bytes(b"x" * 100)
    (mine / "ddp.py").write_text("print('mine')\n")
    io = SystemIo(dict(os.environ))
    request = with_defaults(LaunchRequest(str(mine), python=sys.executable), settings)
    plan = plan_for(request, settings, os.environ, io, CLUSTER, 1795271000.0)
    assert (plan.recipe, plan.request.recipe) == ("ddp", str(mine / "ddp.toml"))
    assert '"$CODE/trainers/"ddp.py' in plan.script
    make_ready(plan)
    trainers = Path(plan.code_dir) / "trainers"
    assert (trainers / "ddp.py").read_text() == "print('mine')\n"
    assert (trainers / "common" / "models.py").is_file()
    assert not (trainers / "notes").exists()
    assert plan.run_json["launch"]["recipe"] == str(mine / "ddp.toml")


def test_a_trainer_that_changed_after_the_plan_is_not_launched_unseen(mine: Path, settings: Settings) -> None:
    request = with_defaults(LaunchRequest(str(mine), python=sys.executable), settings)
    plan = plan_for(request, settings, os.environ, SystemIo(dict(os.environ)), CLUSTER, 1795271000.0)
    (mine / "ddp.py").write_text("print('changed')\n")
    with pytest.raises(UserError, match="was changed since the plan was made"):
        make_ready(plan)


def test_the_config_s_recipes_are_listed_last_and_found_by_name(mine: Path, settings: Settings) -> None:
    text = (mine / "ddp.toml").read_text().replace('name = "ddp"', 'name = "mine"')
    (mine / "ddp.toml").rename(mine / "mine.toml")
    (mine / "mine.toml").write_text(text)
    own = replace(settings, recipe_paths=(mine.parent, mine.parent / "gone"))
    recipes, problems = known_recipes(own)
    assert recipes[-1].name == "mine"
    assert find_recipe("mine", own).path == mine / "mine.toml"
    assert [problem.message for problem in problems] == [f"{mine.parent / 'gone'}: No such file or directory"]
    with pytest.raises(UserError, match="unknown recipe 'mine'"):
        find_recipe("mine", settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[training.a]\nscript = 'train.py'\ngpu = 0\n", "coach.toml:3: unknown key training.a.gpu"),
        ("[training.a]\nscript = 'x'\nscript = 'x'\n", "not valid TOML: Cannot overwrite a value"),
        ("[training.a]\nscript = train.py\n", "not valid TOML: Invalid value"),
        ("[training.a]\nscript = 'gone.py'\n", "gone.py: no such file"),
    ],
)
def test_a_training_in_a_faulty_file_is_refused_with_the_file_s_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, text: str, words: str
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "coach.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        launch_name("a", settings)
    assert words in refused.value.message
    assert launch_name("ddp", settings) == "ddp"
    assert launch_name("idle_hands", settings) == "idle_hands"


def test_the_launch_keys_of_the_config_launch_their_recipes(mine: Path, settings: Settings) -> None:
    assert ("1", "baseline") in {key[:2] for key in recipe_keys(settings)}
    own = replace(settings, recipe_keys={"6": "compile", "7": str(mine), "9": "compil"})
    keys = {key: (name, title) for key, name, title in recipe_keys(own)}
    assert keys["6"][0] == "compile"
    assert keys["7"][0] == str(mine / "ddp.toml")
    assert "unknown recipe 'compil'" in keys["9"][1]


def test_a_recipe_without_a_key_comes_behind_those_that_have_one(mine: Path, settings: Settings) -> None:
    own = replace(settings, recipe_keys={"6": "compile"}, recipe_paths=(mine,))
    found = recipe_keys(own)
    keys = [key for key, _, _ in found]
    assert keys[:6] == ["1", "2", "3", "4", "5", "6"]
    assert set(keys[6:]) == {None}
    names = [name for _, name, _ in found]
    assert names[-1] == str(mine / "ddp.toml")
    assert {"tf32", "profile"} <= set(names)
    assert len(names) == len(set(names))


def test_the_commands_of_a_copy_can_be_typed_also_if_its_folder_has_a_blank(mine: Path) -> None:
    readme = (mine / "README.md").read_text()
    (command,) = (line.strip() for line in readme.splitlines() if line.startswith("    coach launch "))
    assert shlex.split(command) == ["coach", "launch", str(mine)]
    setting = readme.partition("`recipes = ")[2].partition("`")[0]
    assert tomllib.loads(f"recipes = {setting}") == {"recipes": [str(mine)]}


def test_recipes_on_the_command_line_eject_show_and_diff(tmp_path: Path) -> None:
    env = {**os.environ, "COACH_HOME": str(tmp_path)}

    def coach(*args: str) -> subprocess.CompletedProcess[str]:
        return typed_coach(args, env)

    folder = tmp_path / "mine"
    assert coach("recipes", "eject", "amp", str(folder)).stdout.splitlines()[0] == str(folder / "amp.py")
    assert coach("recipes", "eject", "amp").returncode == 2
    assert "autocast" in coach("recipes", "amp", "--diff").stdout
    shown = json.loads(coach("recipes", str(folder), "--format", "json").stdout)["recipes"][0]
    assert (shown["name"], shown["is_own"], shown["previous"]) == ("amp", True, "amp")
    scale = json.loads(coach("recipes", "scale", "--format", "json").stdout)["recipes"][0]
    assert scale["sweep"] == {"parameter": "world_size", "values": [1, 2]}
    planned = coach("launch", str(folder), "--backend", "local", "--python", sys.executable, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    code = next(line for line in planned.stdout.splitlines() if line.startswith("CODE="))
    snapshot = Path(code.removeprefix("CODE="))
    assert snapshot.parent == tmp_path / "runs" / runs.CODE_FOLDER
    assert (snapshot / "trainers" / "amp.py").is_file()


def test_a_mistake_in_a_sweep_or_an_expectation_is_named(tmp_path: Path) -> None:
    text = get_recipe("scale").path.read_text()
    path = tmp_path / "scale.toml"
    for old, new, words in (
        ('parameter = "world_size"', 'parameter = "wold_size"', "no such parameter"),
        ("values = [1, 2]", "values = [0]", "must be at least 1"),
        ("values = [1, 2]", "values = []", "expected a list with at least one value"),
        ('devices = "multiple"', 'devices = "single"', "needs devices"),
        ('parameters_of = "ddp"', 'parameters_of = "dpd"', "no such recipe"),
        ('watch = ["GPU003", "GPU005"]', 'watch = ["gpu"]', "expected codes of rules"),
        ("gpu_hours = 0.05", "gpu_hours = -1", "expected a number from 0"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(UserError, match=words):
            read_recipe(path)


def test_every_recipe_names_existing_rules_and_next_steps_and_its_expected_results() -> None:
    recipes, problems = find_recipes()
    assert problems == ()
    names, codes = {recipe.name for recipe in recipes}, {rule.code for rule in rule_classes()}
    for recipe in recipes:
        assert recipe.next is None or recipe.next in names - {recipe.name}, recipe.name
        assert {*recipe.watch, *recipe.expects} <= codes, recipe.name
        assert recipe.teaches, recipe.name
        assert recipe.expect, recipe.name
        assert recipe.duration, recipe.name
        assert lesson_of(recipe), recipe.name
    keys = [recipe.key for recipe in recipes if recipe.key]
    assert len(keys) == len(set(keys))
