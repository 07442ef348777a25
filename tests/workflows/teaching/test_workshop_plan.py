"""The plan of a workshop day, with the mistakes that an organizer makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.teaching.rehearsal import WorkshopPlan
from coach.workflows.teaching.workshop_plan import EXAMPLE, MAX_STEPS, read_workshop_plan

HEAD = "learners = 40\nminutes = 180\n"


def read(folder: Path, text: str) -> WorkshopPlan:
    path = folder / "day.toml"
    path.write_text(text)
    settings = Settings(folder / "runs", folder / "cache", folder / "config")
    return read_workshop_plan(path, "auto", settings)


def test_the_example_is_a_plan_also_when_all_that_it_offers_is_taken(tmp_path: Path) -> None:
    day = read(tmp_path, EXAMPLE)
    assert (day.learners, day.minutes, day.max_steps) == (40, 180, MAX_STEPS)
    assert [item.name for item in day.items] == ["baseline", "ddp", "fast"]
    whole = read(tmp_path, re.sub(r"^# (?=\[|\w+ = )", "", EXAMPLE, flags=re.MULTILINE))
    assert [item.name for item in whole.items] == ["baseline", "ddp", "fast", "evening", "figures"]
    *_, evening, figures = [item.request for item in whole.items]
    assert figures.ladder is not None
    assert [rung.name for rung in figures.ladder.rungs] == ["baseline", "ddp", "amp", "combined"]
    assert (evening.recipe, evening.num_nodes, evening.account) == ("ddp", 2, "teaching")
    assert evening.sbatch == {"comment": "workshop"}


def test_a_recipe_s_values_win_over_those_of_the_day(tmp_path: Path) -> None:
    text = (
        f'{HEAD}[launch]\npartition = "gpu"\naccount = "lab"\nsbatch = {{ comment = "a", licenses = "x" }}\n'
        '[recipes.baseline]\naccount = "teaching"\ntime = "10:00"\nsbatch = { comment = "b" }\nminutes = '
        "2.5\n"
        "[recipes.ddp]\ngpus = 2\nset = { lr = 0.1 }\n"
    )
    baseline, ddp = read(tmp_path, text).items
    assert (baseline.request.partition, baseline.request.account) == ("gpu", "teaching")
    assert (baseline.request.time_limit_s, baseline.minutes) == (600, 2.5)
    assert baseline.request.sbatch == {"comment": "b", "licenses": "x"}
    assert (ddp.request.account, ddp.request.gpus_per_node, ddp.minutes) == ("lab", 2, None)
    assert ddp.request.set == {"lr": 0.1}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"{HEAD}learner = 40\n[recipes.ddp]\n", 3, "unknown key learner"),
        ('learners = "all"\nminutes = 1\n[recipes.ddp]\n', 1, "learners = 'all': expected a whole number"),
        (
            "learners = 0\nminutes = 1\n[recipes.ddp]\n",
            1,
            "learners = 0: expected a whole number from 1 to 1000000",
        ),
        ("learners = 40\nminutes = nan\n[recipes.ddp]\n", 2, "minutes = nan: expected a number above 0"),
        (HEAD, None, "recipes is missing"),
        (f"{HEAD}[recipes.dpp]\n", 3, "unknown recipe 'dpp'"),
        (f"{HEAD}[recipes.ddp]\nset = {{ lrr = 1 }}\n", 3, "lrr"),
        (f"{HEAD}[recipes.ddp]\nset = {{ lr = 0 }}\n", 3, "lr = 0"),
        (f"{HEAD}[recipes.ddp]\ngpu = 2\n", 4, "unknown key recipes.ddp.gpu"),
        (f"{HEAD}[recipes.ddp]\ngpus = -1\n", 4, "recipes.ddp.gpus = -1: expected a whole number"),
        (f'{HEAD}[recipes.ddp]\ntime = "soon"\n', 4, "recipes.ddp.time = 'soon': not a time limit"),
        (f"{HEAD}[launch]\nacount = 1\n[recipes.ddp]\n", 4, "unknown key launch.acount"),
        (f'{HEAD}[launch]\nbackend = "local"\n[recipes.ddp]\n', 4, "unknown key launch.backend"),
        (f"{HEAD}[recipes.typo]\n", 3, "is a drill"),
        (f'{HEAD}[recipes.x]\nladder = "demo"\n', 3, "unknown ladder 'demo'"),
        (f'{HEAD}[recipes.x]\nrecipe = "ddp"\nladder = "demos"\n', 5, "both recipe and ladder"),
        (f'{HEAD}[recipes."../x"]\n', None, "expected a name"),
        ("learners = \n", 1, "not valid TOML"),
    ],
)
def test_a_mistake_is_shown_with_its_file_its_line_and_its_key(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)
    place = f"{tmp_path}/day.toml"
    assert refused.value.message.startswith(place if line is None else f"{place}:{line}: ")
    assert words in refused.value.message


def test_a_ladder_beside_the_plan_is_a_step_with_the_step_s_own_values(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'schema = 1\ntitle = "Mine"\n[rungs.one]\nrecipe = "baseline"\n[rungs.two]\nrecipe = "amp"\n'
    )
    text = f'{HEAD}[launch]\naccount = "lab"\n[recipes.x]\nladder = "./mine.toml"\nset = {{ lr = 0.1 }}\n'
    [step] = read(tmp_path, text).items
    assert step.request.ladder is not None
    assert (step.name, step.request.ladder.title) == ("x", "Mine")
    assert (step.request.recipe, step.request.account, step.request.set) == ("baseline", "lab", {"lr": 0.1})


def test_a_missing_plan_leads_to_the_example(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file") as refused:
        read_workshop_plan(tmp_path / "none.toml", "auto", Settings(tmp_path, tmp_path, tmp_path))
    assert "coach workshop example" in (refused.value.hint or "")
