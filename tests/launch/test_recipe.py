"""Recipes are read strictly, and every mistake is named with its file, line, key, and correction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import Recipe, find_recipes, get_recipe, read_recipe, resolve_parameters
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.sources.runs.run_files import parse_run
from tests.launch.examples import MACHINE, PARAMETERS, PATHS, RECIPE, RUN_ID, recipe, write_recipe

WHOLE = RECIPE.format(name="ddp", devices="multiple") + PARAMETERS


def test_a_recipe_is_read_with_its_parameters_and_their_limits(tmp_path: Path) -> None:
    ddp = recipe(tmp_path)
    assert (ddp.name, ddp.devices, ddp.key, ddp.time_limit_s) == ("ddp", "multiple", "2", 1800)
    assert ddp.parameters["lr"].above == 0
    assert ddp.parameters["lr"].usual == (1e-4, 1.0)
    assert ddp.parameters["optimizer"].limits() == "one of sgd, adamw"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("schema = 1", "schema = 2", 1, "reads schema 1"),
        ('title = "ddp: a title"', "", None, "key title is missing"),
        ('title = "ddp: a title"', "title = 3", 3, "title = 3: expected text"),
        ('trainer = "ddp.py"', 'trainer = "../../etc/passwd"', 5, "expected a file of trainers/"),
        ('trainer = "ddp.py"', 'trainer = "dpp.py"', 5, "no such file in"),
        (
            'devices = "multiple"',
            'devices = "many"',
            6,
            'expected one of "single", "multiple", "one process"',
        ),
        ('key = "2"', 'keys = "2"', 7, "unknown key keys"),
        ('time = "00:30:00"', 'time = "soon"', 8, "not a time limit"),
        ("above = 0", "abov = 0", 13, "unknown key parameters.lr.abov"),
        ("default = 0.05", 'default = "0.05"', 12, "without quotes"),
        ("default = 0.05", "default = -1.0", 12, "must be above 0"),
        ("default = 64", "default = 6.5", 19, "expected a whole number"),
        (
            "default = 64",
            "",
            17,
            "the key parameters.batch_size.default is missing: expected a value of its type",
        ),
        ('type = "int"', 'type = "integer"', 18, "expected one of int, float, str, bool"),
        ("usual = [1e-4, 1.0]", "usual = [1.0, 1e-4]", 14, "expected [LOW, HIGH]"),
        ('default = "sgd"', 'default = "adam"', 31, "one of sgd, adamw"),
    ],
)
def test_a_mistake_in_a_recipe_names_file_line_and_correction(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    path = write_recipe(tmp_path, text=WHOLE.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_recipe(path, tmp_path)
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_broken_toml_is_one_line(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, text='name = "ddp\n')
    with pytest.raises(UserError, match=r"ddp.toml:1: not valid TOML: "):
        read_recipe(path, tmp_path)


def test_a_binary_file_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8 text"):
        get_recipe(str(path), tmp_path)


def test_an_unknown_recipe_is_answered_with_the_nearest_names(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    with pytest.raises(UserError) as caught:
        get_recipe("dpp", tmp_path)
    assert caught.value.hint == "did you mean ddp?"


def test_a_broken_recipe_does_not_hide_the_others(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    write_recipe(tmp_path, "other", text="schema = 1")
    recipes, problems = find_recipes(tmp_path)
    assert [each.name for each in recipes] == ["ddp"]
    assert len(problems) == 1
    assert "other.toml" in problems[0].message


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"lr": "1e-3"}, 0.001),
        ({"batch_size": "128"}, 128),
        ({"batch_size": 32.0}, 32),
        ({"log_metrics": "false"}, False),
        ({"log_metrics": "No"}, False),
        ({"log_metrics": "0"}, False),
        ({"log_metrics": " yes "}, True),
        ({"log_metrics": "1"}, True),
        ({"optimizer": "adamw"}, "adamw"),
    ],
)
def test_texts_become_values_of_the_parameter_s_type(
    tmp_path: Path, said: dict[str, object], value: object
) -> None:
    values, warnings = resolve_parameters(recipe(tmp_path), said)
    assert values[next(iter(said))] == value
    assert type(values[next(iter(said))]) is type(value)
    assert warnings == ()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"lr": "0"}, "must be above 0"),
        ({"lr": "nan"}, "expected a number"),
        ({"lr": "inf"}, "expected a number"),
        ({"lr": "fast"}, "expected a number"),
        ({"batch_size": "1.5"}, "expected a whole number"),
        ({"batch_size": "9" * 5000}, "expected a whole number"),
        ({"batch_size": True}, "expected a whole number"),
        ({"num_workers": "65"}, "at least 0 and at most 64"),
        ({"log_metrics": "maybe"}, "expected true or false"),
        ({"optimizer": "lion"}, "one of sgd, adamw"),
    ],
)
def test_a_wrong_value_is_refused_with_the_right_form(
    tmp_path: Path, said: dict[str, object], words: str
) -> None:
    with pytest.raises(UserError) as caught:
        resolve_parameters(recipe(tmp_path), said)
    assert words in caught.value.message
    assert len(caught.value.message) < 200


def test_an_unknown_parameter_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve_parameters(recipe(tmp_path), {"batchsize": "3"})
    assert caught.value.hint == "did you mean batch_size?"


def test_a_parameter_is_found_by_the_words_of_its_description() -> None:
    with pytest.raises(UserError) as caught:
        resolve_parameters(get_recipe("baseline"), {"learning_rate": "3"})
    assert caught.value.hint == "did you mean lr?"
    with pytest.raises(UserError) as caught:
        resolve_parameters(get_recipe("baseline"), {"zzz": "3"})
    assert "`coach recipes baseline` lists its" in (caught.value.hint or "")


def test_a_drill_is_no_near_name_of_a_recipe() -> None:
    with pytest.raises(UserError) as caught:
        get_recipe("basline")
    assert caught.value.hint == "did you mean baseline?"


def test_an_unusual_value_is_allowed_with_a_warning(tmp_path: Path) -> None:
    values, warnings = resolve_parameters(recipe(tmp_path), {"lr": "1e20"})
    assert values["lr"] == 1e20
    assert warnings == ("lr = 1e+20 is unusual: 0.0001 to 1 is the usual range",)


def test_a_recipe_states_the_torch_it_needs_and_may_bring_its_environment(tmp_path: Path) -> None:
    head = RECIPE.format(name="ddp", devices="multiple")
    table = '[environment]\nkind = "modules"\nmodules = ["pytorch/2.6"]\n'
    path = write_recipe(tmp_path, text=f'{head}torch = ">=2.6"\n{table}{PARAMETERS}')
    read = read_recipe(path, tmp_path)
    assert read.torch == ">=2.6"
    assert read.environment is not None
    assert read.environment.modules == ("pytorch/2.6",)
    assert read_recipe(write_recipe(tmp_path, "other"), tmp_path).torch is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('torch = "2.6"\n', 9, "torch = '2.6': expected a requirement such as"),
        ('torch = "about 2.6"\n', 9, "expected a requirement such as"),
        ("torch = 2.6\n", 9, "torch = 2.6: expected a requirement"),
        ('[environment]\nkind = "venv"\n', 10, "kind venv needs path"),
        (
            '[environment]\nkind = "venv"\npath = "/x"\nmodule = "y"\n',
            12,
            "unknown key environment.module",
        ),
    ],
)
def test_a_mistake_in_the_remedies_is_shown_with_file_and_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = write_recipe(tmp_path, text=RECIPE.format(name="ddp", devices="multiple") + text)
    with pytest.raises(UserError) as caught:
        read_recipe(path, tmp_path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert words in caught.value.message


DECLARED = """
uneven_by_design = true
remedies = { shard = { batch_size = 32 }, rank_per_device = { recipe = "ddp" } }
"""


def declaring(tmp_path: Path, text: str = DECLARED, name: str = "own") -> Recipe:
    whole = RECIPE.format(name=name, devices="multiple") + text + PARAMETERS
    return read_recipe(write_recipe(tmp_path, name, text=whole), tmp_path)


def test_a_recipe_declares_uneven_ranks_and_its_remedies_and_run_json_has_them(tmp_path: Path) -> None:
    declared = declaring(tmp_path)
    remedies = {"shard": {"batch_size": 32}, "rank_per_device": {"recipe": "ddp"}}
    assert (declared.uneven_by_design, declared.remedies) == (True, remedies)
    facts = Facts(PATHS, "anna", 1795271000.0, "0.1.0", None)
    made = make_plan(LaunchRequest("own"), declared, MACHINE, facts, RUN_ID).run_json
    read = parse_run(made, "/runs/own")
    assert (read.is_uneven_by_design, read.remedies) == (True, remedies)
    silent = parse_run({}, "/runs/old")
    assert (silent.is_uneven_by_design, silent.remedies) == (None, {})


def test_remedies_are_taken_over_with_the_parameters_they_change(tmp_path: Path) -> None:
    declaring(tmp_path)
    heir = RECIPE.format(name="heir", devices="multiple") + 'parameters_of = "own"\n'
    assert read_recipe(write_recipe(tmp_path, "heir", text=heir), tmp_path).remedies["shard"] == {
        "batch_size": 32
    }
    without = read_recipe(write_recipe(tmp_path, "heir", text=f"{heir}remedies = {{}}\n"), tmp_path)
    assert (without.remedies, without.uneven_by_design) == ({}, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uneven_by_design = 1", "expected true or false"),
        ('remedies = { shards = { recipe = "a" } }', "unknown key remedies.shards"),
        ('remedies = { shard = "fsdp" }', "expected a table of changes"),
        ("remedies = { shard = {} }", "another recipe alone, or values of parameters"),
        ('remedies = { shard = { recipe = "../x" } }', "expected a recipe's name"),
        ('remedies = { shard = { recipe = "fsdp", lr = 1 } }', "another recipe alone"),
        ("remedies = { shard = { stage = 3 } }", "unknown key remedies.shard.stage"),
        ("remedies = { shard = { batch_size = 0 } }", "must be at least 1"),
    ],
)
def test_a_wrong_declaration_is_refused_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        declaring(tmp_path, f"{text}\n")
    assert re.match(r".*/own\.toml:9: ", caught.value.message), caught.value.message
    assert words in caught.value.message


def test_a_recipe_shows_its_lesson_and_the_next_recipe(tmp_path: Path) -> None:
    told = """teaches = "averaging"
expect = "the same loss"
duration = "3 min"
watch = ["GPU005"]
next = "fsdp"
"""
    text = RECIPE.format(name="ddp", devices="multiple") + told + PARAMETERS
    ddp = read_recipe(write_recipe(tmp_path, text=text), tmp_path)
    assert (ddp.teaches, ddp.expect, ddp.duration) == ("averaging", "the same loss", "3 min")
    assert (ddp.watch, ddp.next) == (("GPU005",), "fsdp")


def test_parameters_come_through_a_chain_of_recipes(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    folder = tmp_path / "recipes"
    for name, lender, own in (("b", "ddp", "[parameters.lr]\ndefault = 0.3\n"), ("a", "b", "")):
        text = RECIPE.format(name="ddp", devices="multiple").replace('"ddp"', f'"{name}"', 1)
        (folder / f"{name}.toml").write_text(f'{text}parameters_of = "{lender}"\n{own}')
    read = read_recipe(folder / "a.toml", tmp_path)
    assert (read.parameters["lr"].default, read.parameters["batch_size"].default) == (0.3, 64)


@pytest.mark.parametrize(
    ("lender", "words"),
    [("[[parameters]]\nlr = 1\n", "parameters is no table"), ('parameters_of = "a"\n', "no such recipe")],
)
def test_a_recipe_that_cannot_lend_its_parameters_is_named(tmp_path: Path, lender: str, words: str) -> None:
    text = RECIPE.format(name="ddp", devices="multiple")
    write_recipe(tmp_path)
    (tmp_path / "recipes" / "b.toml").write_text(text + lender)
    (tmp_path / "recipes" / "a.toml").write_text(text + 'parameters_of = "b"\n')
    with pytest.raises(UserError, match=words):
        read_recipe(tmp_path / "recipes" / "a.toml", tmp_path)
