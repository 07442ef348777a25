"""The table [drill]: it is read strictly and distinguished from recipes, and the shipped drills keep the
contract of a drill."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.parameters import resolve
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import Recipe, find_drills, find_recipes, get_recipe, lesson_of, read_recipe
from coach.model.errors import UserError
from coach.model.launching.launch import AppliedFix, LaunchRequest, Plan
from coach.model.teaching.drill import Need
from coach.sources.runs.run_files import parse_run
from coach.workflows.launching.resubmit import request_again
from tests.installed import REPOSITORY
from tests.launch.examples import MACHINE, PARAMETERS, PATHS, RECIPE, RUN_ID, plan, write_recipe
from tests.launch.relaunches import asked_again

DRILL = """
[drill]
planted = "input_bound"
also = ["cpu_bound"]
choices = ["input_bound", "slow_storage", "memory_pressure", "hang"]
needs = ["two_nodes"]
is_live = false
set = { lr = 1, num_workers = 0 }
options = { nproc_per_node = 2, mem = "600M", time = "00:01:00", env = { A = "b" } }
mend = "take the sleep out"

[drill.twin]
recipe = "baseline"
set = { num_workers = 2 }
options = { num_nodes = 2 }
"""
WHOLE = RECIPE.format(name="tired", devices="multiple") + PARAMETERS + DRILL
DRILLS = find_drills()[0]


def write_drill(data: Path, text: str = WHOLE) -> Path:
    write_recipe(data, "tired", text=text).rename(data / "moved.toml")
    (data / "recipes" / "drills").mkdir()
    return (data / "moved.toml").rename(data / "recipes" / "drills" / "tired.toml")


def test_a_drill_declares_its_fault_its_launch_and_its_twin(tmp_path: Path) -> None:
    drill = read_recipe(write_drill(tmp_path), tmp_path).drill
    assert drill is not None
    assert (drill.planted, drill.also, drill.needs) == ("input_bound", ("cpu_bound",), (Need.TWO_NODES,))
    assert not drill.is_live
    assert drill.set == {"lr": 1.0, "num_workers": 0}
    assert isinstance(drill.set["lr"], float)
    assert drill.options == {"nproc_per_node": 2, "mem": "600M", "time_limit_s": 60, "env": {"A": "b"}}
    assert (drill.twin.recipe, drill.twin.set, drill.twin.options) == (
        "baseline",
        {"num_workers": 2},
        {"num_nodes": 2},
    )


def test_the_order_of_the_short_list_does_not_tell_the_cause() -> None:
    drills = [recipe.drill for recipe in DRILLS if recipe.drill is not None]
    places = [drill.choices.index(drill.planted) for drill in drills]
    assert all(list(drill.choices) == sorted(drill.choices) for drill in drills)
    assert max(map(places.count, places)) < len(drills) / 2


def test_a_drill_is_found_by_its_name_and_not_listed_among_the_recipes(tmp_path: Path) -> None:
    write_drill(tmp_path)
    write_recipe(tmp_path)
    assert get_recipe("tired", tmp_path).drill is not None
    assert [recipe.name for recipe in find_recipes(tmp_path)[0]] == ["ddp"]
    assert [recipe.name for recipe in find_drills(tmp_path)[0]] == ["tired"]


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ('planted = "input_bound"', 'planted = "Input"', "planted", "expected a cause"),
        ('"hang"]', '"input_bound"]', "choices", "4 to 6 causes"),
        ('"input_bound", "slow', '"low_memory", "slow', "choices", "the planted one among them"),
        (
            'needs = ["two_nodes"]',
            'needs = ["luck"]',
            "needs",
            "expected a list of gpu, two_nodes, root, slurm",
        ),
        ("is_live = false", "is_live = 0", "is_live", "expected true or false"),
        ("lr = 1,", "lr = -1,", "set", "must be above 0"),
        ("lr = 1,", "learning_rate = 1,", "set", "unknown key drill.set.learning_rate"),
        ('mem = "600M"', "mem = 600", "options", "expected memory such as"),
        ('mem = "600M"', 'memory = "600M"', "options", "did you mean"),
        ('"00:01:00"', '"soon"', "options", "not a time limit"),
        ("mend =", "mends =", "mends", "unknown key drill.mends"),
        ('recipe = "baseline"', "recipe = 3", "recipe", "expected a recipe's name"),
    ],
)
def test_a_mistake_in_a_drill_s_table_names_file_line_and_correction(
    tmp_path: Path, old: str, new: str, key: str, words: str
) -> None:
    assert old in DRILL
    path = write_drill(tmp_path, WHOLE.replace(DRILL, DRILL.replace(old, new, 1)))
    with pytest.raises(UserError) as caught:
        read_recipe(path, tmp_path)
    told = re.match(rf"{re.escape(str(path))}:(\d+): ", caught.value.message)
    assert told is not None, caught.value.message
    assert path.read_text().splitlines()[int(told[1]) - 1].startswith(f"{key} =")
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_run_json_names_the_drill_and_neither_cause_nor_choices_nor_twin(tmp_path: Path) -> None:
    write_recipe(tmp_path, text=RECIPE.format(name="ddp", devices="multiple") + PARAMETERS + DRILL)
    made = plan_of_drill(tmp_path)
    assert made.run_json["drill"] == "ddp"
    assert not {"planted", "also", "choices", "mend", "twin"} & set(made.run_json)
    assert "input_bound" not in made.script
    assert made.warnings == ()


def plan_of_drill(data: Path, **said: object) -> Plan:
    facts = Facts(PATHS, "anna", 1795271000.0, "0.1.0", None)
    request = LaunchRequest("ddp", set={"lr": 50.0}, **said)  # type: ignore[arg-type]  # a test says any field
    return make_plan(request, read_recipe(data / "recipes" / "ddp.toml", data), MACHINE, facts, RUN_ID)


def test_a_mended_launch_is_a_drill_no_more(tmp_path: Path) -> None:
    write_recipe(tmp_path, text=RECIPE.format(name="ddp", devices="multiple") + PARAMETERS + DRILL)
    fix = AppliedFix("GPU005", "more workers", {"num_workers": 2})
    assert "drill" not in plan_of_drill(tmp_path, parent_run_id="r", fix=fix).run_json
    assert "drill" in plan_of_drill(tmp_path, parent_run_id="r").run_json


def test_a_drill_launched_again_is_a_drill_unless_a_fix_was_applied(tmp_path: Path) -> None:
    write_recipe(tmp_path, text=RECIPE.format(name="ddp", devices="multiple") + PARAMETERS + DRILL)
    fix = AppliedFix("GPU005", "more workers", {"num_workers": 2})
    for said, is_drill in (({"fix": fix}, False), ({}, True)):
        made = plan_of_drill(tmp_path, parent_run_id="r", **said)
        for _ in range(2):
            run = parse_run(dict(made.run_json), f"/runs/{RUN_ID}")
            request = request_again(replace(run, why_not_mine=None))
            facts = Facts(PATHS, "anna", 1795271000.0, "0.1.0", None)
            recipe = read_recipe(tmp_path / "recipes" / "ddp.toml", tmp_path)
            made = make_plan(request, recipe, MACHINE, facts, RUN_ID)
            assert ("drill" in made.run_json) is is_drill


def test_nodes_that_are_played_by_one_machine_are_played_again_by_a_relaunch(tmp_path: Path) -> None:
    made = plan(tmp_path, "ddp", MACHINE, num_nodes=2, has_local_nodes=True)
    assert made.resources.num_nodes == 2
    again = asked_again(made.run_json["launch"], "ddp")
    assert (again.num_nodes, again.has_local_nodes) == (2, True)


@pytest.fixture(params=DRILLS, ids=[recipe.name for recipe in DRILLS])
def shipped(request: pytest.FixtureRequest) -> Recipe:
    recipe: Recipe = request.param
    return recipe


def test_every_shipped_drill_can_be_read() -> None:
    assert find_drills()[1] == ()


def test_a_shipped_drill_plants_and_offers_causes_that_rules_find(shipped: Recipe) -> None:
    rules = "".join(path.read_text() for path in (REPOSITORY / "coach" / "rules").rglob("*.py"))
    assert shipped.drill is not None
    causes = (shipped.drill.planted, *shipped.drill.also, *shipped.drill.choices)
    assert [cause for cause in causes if f'"{cause}"' not in rules] == []


def test_nothing_that_a_learner_sees_before_names_the_cause(shipped: Recipe) -> None:
    assert shipped.drill is not None
    seen = f"{shipped.name} {shipped.title} {shipped.summary} {shipped.trainer}".lower()
    told = [
        cause for cause in (shipped.drill.planted, *shipped.drill.also) if cause in seen.replace(" ", "_")
    ]
    assert told == []


def test_a_shipped_drill_has_a_lesson_and_a_twin_that_can_be_launched(shipped: Recipe) -> None:
    assert shipped.drill is not None
    assert 5 <= len(lesson_of(shipped).splitlines()) <= 60
    twin = get_recipe(shipped.drill.twin.recipe)
    resolve(twin.name, twin.parameters, shipped.drill.twin.set)
    assert shipped.name == shipped.path.stem
