"""A ladder is read from its file, planned within the site's limits, and launched as one group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.analysis.comparing.ladder_table import ladder_table
from coach.config import Limits, Settings
from coach.launch.recipe import LADDERS, data_dir, find_recipes, shipped_recipes
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.launching.ladder import Ladder
from coach.model.launching.launch import LaunchRequest, Plan
from coach.sources.runs.run_files import read_run
from coach.workflows.launching.ladders import find_ladders, get_ladder, ladder_with, request_of_ladder
from coach.workflows.launching.sweep import read_members, submit
from tests.launch.examples import CLUSTER, MACHINE
from tests.workflows.launching.test_sweep import plan
from tests.workflows.launching.test_sweep import world as world  # a fixture
from tests.workflows.test_launching import World

SHIPPED = sorted(path.stem for path in (data_dir() / "recipes" / LADDERS).glob("*.toml"))
TEXT = """schema = 1
title = "Mine"

[set]
max_steps = 20

[rungs.one]
recipe = "baseline"
samples_per_s = [1000, 1200]
source = "my notes"

[rungs.many]
recipe = "ddp"
ranks = 8
min_ranks = 2
ratio = [6, 7]
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = tmp_path / "mine" / LADDERS
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(TEXT)
    return Settings(
        tmp_path / "runs", tmp_path / "cache", tmp_path / "config", recipe_paths=(tmp_path / "mine",)
    )


def climb(world: World, ladder: Ladder, site: Site = CLUSTER, **request: object) -> Plan:
    asked = request_of_ladder(ladder, LaunchRequest(""))
    return plan(world, asked.recipe, site, ladder=asked.ladder, **request)


def names(planned: Plan) -> list[str]:
    points = [each.request.sweep_point for each in (planned, *planned.others)]
    return [str(point.value) for point in points if point is not None]


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_ladder_is_read_and_says_what_its_rungs_show(name: str, settings: Settings) -> None:
    ladder = get_ladder(name, settings)
    assert (ladder.name, len(ladder.rungs) > 2) == (name, True)
    assert all(rung.shows for rung in ladder.rungs)
    assert all(rung.source for rung in ladder.rungs if rung.ratio or rung.samples_per_s)


def test_a_user_s_ladder_lies_beside_their_recipes_and_is_no_recipe(settings: Settings) -> None:
    ladders, problems = find_ladders(settings)
    assert (ladders[-1].name, problems) == ("mine", ())
    assert get_ladder("mine", settings).rungs[0].set == {"max_steps": 20}
    recipes, more = find_recipes(more=settings.recipe_paths)
    assert (len(recipes), more) == (len(shipped_recipes()), ())
    assert ladder_with("tf32", settings).name == "precision"
    with pytest.raises(UserError, match="no ladder has gpt as a rung"):
        ladder_with("gpt", settings)
    with pytest.raises(UserError, match="unknown ladder 'mine2'") as error:
        get_ladder("mine2", settings)
    assert error.value.hint == "did you mean mine?"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'recipe = "ddp"',
            'recipe = "dpp"',
            ":13: rungs.many.recipe: unknown recipe 'dpp' | did you mean ddp",
        ),
        (
            "ratio = [6, 7]",
            "ratio = [7, 6]",
            ":16: rungs.many.ratio = [7, 6]: expected the least and the most",
        ),
        ("ratio = [6, 7]", "ratio = 6", ":16: rungs.many.ratio = 6: expected the least and the most"),
        ("ratio = [6, 7]", "ratio = [6, inf]", ":16: rungs.many.ratio = [6, inf]: expected the least"),
        ("ratio =", "ration =", ":16: unknown key rungs.many.ration | did you mean ratio?"),
        ("ranks = 8", "ranks = 1", ":15: rungs.many.min_ranks: expected at most its ranks"),
        ('recipe = "ddp"', 'recipe = "scale"', ":13: rungs.many.recipe = 'scale': it is a sweep"),
        ("max_steps = 20", "max_step = 20", ":5: set.max_step: no rung has this parameter"),
        (
            "max_steps = 20",
            'max_steps = "x"',
            ":4: set: --set max_steps = 'x': expected a whole number",
        ),
        ("source =", "ratio = [1, 2]\nsource =", ":10: rungs.one: both ratio and samples_per_s"),
        ("[rungs.one]", '[rungs."o ne"]', "rungs.o ne: expected a name of letters, digits, _ and -"),
        ('title = "Mine"', "", "the key title is missing: expected text"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(
    settings: Settings, tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "bad.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        get_ladder(str(path), settings)
    message, _, hint = words.partition(" | ")
    assert str(error.value).startswith(str(path))
    assert message in error.value.message
    assert hint in (error.value.hint or "")
    assert "\n" not in error.value.message


def test_the_rungs_are_one_group_of_runs_of_several_recipes(world: World, settings: Settings) -> None:
    planned = climb(world, get_ladder("scaling", settings), partition="gpu")
    runs = (planned, *planned.others)
    assert [each.resources.world_size for each in runs] == [1, 2, 4, 8]
    assert {each.run_json["sweep"]["group_id"] for each in runs} == {planned.run_id}
    mixed = climb(world, get_ladder("mine", settings), partition="gpu")
    assert [(each.recipe, each.resources.world_size) for each in (mixed, *mixed.others)] == [
        ("baseline", 1),
        ("ddp", 8),
    ]
    assert [each.run_id.split("-")[2] for each in (mixed, *mixed.others)] == ["baseline", "ddp"]
    assert "2 runs, one after the other: rung = one; many" in mixed.notes[0]


def test_a_rung_that_cannot_run_here_is_not_launched_and_the_plan_says_so(
    world: World, settings: Settings
) -> None:
    planned = climb(world, get_ladder("scaling", settings), MACHINE)
    assert names(planned) == ["ranks_1", "ranks_2"]
    assert "ranks_8 cannot be tested here: asks 8 ranks, this machine has 2 CPUs per node" in planned.notes
    world.settings = replace(world.settings, limits=Limits(max_gpus=2))
    capped = climb(world, get_ladder("scaling", settings), partition="gpu")
    assert names(capped) == ["ranks_1", "ranks_2"]
    (note,) = [note for note in capped.notes if note.startswith("ranks_4")]
    assert "asks 4 GPUs, the site allows at most 2 GPUs in one launch" in note


def test_a_rung_with_fewest_ranks_runs_on_those_that_there_are(world: World, settings: Settings) -> None:
    planned = climb(world, get_ladder("mine", settings), MACHINE)
    assert [each.resources.world_size for each in (planned, *planned.others)] == [1, 2]
    assert "many runs on fewer ranks: asks 8 ranks, this machine has 2 CPUs per node" in planned.notes
    why = planned.run_json["ladder"]["rungs"][1]["why_not"]
    assert why == "asks 8 ranks, this machine has 2 CPUs per node"
    few = climb(world, get_ladder("mine", settings), partition="gpu", set={"world_size": "4"})
    assert few.others[0].resources.world_size == 4
    assert few.run_json["ladder"]["rungs"][1]["why_not"] == "asks 8 ranks, at most 4 ranks were asked for"


def test_a_launch_chooses_rungs_repeats_and_parameters(world: World, settings: Settings) -> None:
    ladder = get_ladder("scaling", settings)
    chosen = climb(world, ladder, MACHINE, set={"rung": "ranks_1", "repeats": "3", "width": "8"})
    assert names(chosen) == ["ranks_1"] * 3
    assert len({each.run_id for each in (chosen, *chosen.others)}) == 3
    assert {each.parameters["width"] for each in (chosen, *chosen.others)} == {8}
    alone = climb(world, ladder, MACHINE, set={"rung": "ranks_2"})
    assert names(alone) == ["ranks_2"]
    rungs = alone.run_json["ladder"]["rungs"]
    assert [(rung["name"], rung["why_not"]) for rung in rungs] == [
        ("ranks_1", "--set rung leaves it out"),
        ("ranks_2", None),
    ]
    for said, words in (
        ({"widht": "8"}, "no rung of the ladder has this parameter"),
        ({"rung": "ranks_3"}, "scaling: no such rung: ranks_3"),
        ({"rung": "ranks_1,rank_2"}, "scaling: no such rung: rank_2"),
        ({"repeats": "20"}, "scaling: 40 runs: at most 32 runs in one group"),
        ({"repeats": "many"}, "--set repeats = 'many': expected a whole number"),
        ({"rung": "ranks_8"}, "asks 8 ranks, this machine has 2 CPUs per node"),
    ):
        with pytest.raises(UserError, match=words):
            climb(world, ladder, MACHINE, set=said)


def test_the_table_is_read_from_the_runs_alone(world: World, settings: Settings) -> None:
    planned = climb(world, get_ladder("mine", settings), partition="gpu", gpus_per_node=0)
    done = submit(planned, world.settings, world.env, world.io)
    rows = (world.root / "sbatch.all").read_text().splitlines()
    assert [row.split()[:-1] for row in rows] == [["--parsable"], ["--parsable", "--dependency=afterany:17"]]
    run = read_run(world.io, Path(done[1].run_dir))
    assert run.ladder == get_ladder("mine", settings)
    assert "ladder" not in run.launch
    group_id, read = read_members(done[1].run_id, world.settings, world.io, "slurm")
    assert group_id == done[0].run_id
    assert [(row.rung.name, row.state, row.verdict) for row in ladder_table(run.ladder, read)] == [
        ("one", "PENDING", "pending"),
        ("many", "PENDING", "pending"),
    ]
