"""The parameters of a recipe are read from its trainer: declared there once, changed in the TOML, and every
mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.parameters import Parameter
from coach.launch.recipe import Recipe, find_recipes, read_recipe
from coach.launch.trainer_arguments import TrainerArguments
from coach.model.errors import UserError
from tests.launch.examples import RECIPE

SHARED = '''
SHARED: Dict[str, Dict[str, Any]] = {
    "lr": {"type": float, "default": 0.01, "above": 0, "usual": (1e-4, 0.5), "help": "Learning "
        "rate"},
    "epochs": {"type": int, "default": 3, "min": 1, "unit": "epochs"},
    "model": {"default": "cnn", "choices": ("cnn", "gpt")},
}
"""Texts may stand between."""

USUAL: Tuple[str, ...] = ("lr", "epochs", "model")

CHANGES = {"text": {"model": {"default": "gpt", "choices": ("gpt",)}, "epochs": {"default": 1}}}
'''

TRAINER = '''"""Train."""

import torch

def parse_arguments() -> argparse.Namespace:
    parser = TrainerParser(__doc__)
    parser.add_shared("lr", "epochs", "model")
    parser.change_shared("text")
    parser.change("lr", default=0.1)
    parser.add_argument("--tp", type=int, default=2, min=1, usual=(1, 8), unit="ranks", help="Ranks")
    parser.add_argument("--is_fast", type=bool, default=False)
    parser.add_places()
    parser.change("run_dir", help="here")
    return parser.parse_args()


def main() -> None:
    raise SystemExit("it was run")


raise SystemExit("it was imported")
'''


def write(data: Path, trainer: str = TRAINER, toml: str = 'parameters_of = "ddp.py"\n') -> Path:
    """A recipe in `data` with this trainer, and the shared options beside it."""
    for folder in ("trainers/common", "recipes"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    (data / "trainers" / "common" / "arguments.py").write_text(SHARED)
    (data / "trainers" / "ddp.py").write_text(trainer)
    path = data / "recipes" / "ddp.toml"
    path.write_text(RECIPE.format(name="ddp", devices="multiple") + toml)
    return path


def read(data: Path, trainer: str = TRAINER, toml: str = 'parameters_of = "ddp.py"\n') -> Recipe:
    return read_recipe(write(data, trainer, toml), data)


def test_a_recipe_inherits_its_trainer_s_parameters_in_the_trainer_s_order(tmp_path: Path) -> None:
    assert list(read(tmp_path).parameters.values()) == [
        Parameter("lr", "float", 0.1, "Learning rate", above=0, usual=(1e-4, 0.5)),
        Parameter("epochs", "int", 1, "", min=1, unit="epochs"),
        Parameter("model", "str", "gpt", "", choices=("gpt",)),
        Parameter("tp", "int", 2, "Ranks", min=1, usual=(1, 8), unit="ranks"),
        Parameter("is_fast", "bool", False, ""),
    ]


def test_a_recipe_s_own_parameters_win_key_by_key_and_may_add_new_ones(tmp_path: Path) -> None:
    toml = (
        'parameters_of = "ddp.py"\n[parameters.tp]\ndefault = 4\n[parameters.own]\ntype = "int"\ndefault = '
        "1\n"
    )
    found = read(tmp_path, toml=toml).parameters
    assert found["tp"] == Parameter("tp", "int", 4, "Ranks", min=1, usual=(1, 8), unit="ranks")
    assert [*found][-1] == "own"


def test_the_common_options_are_declared_once_and_a_trainer_names_those_it_leaves_out(tmp_path: Path) -> None:
    usual = TRAINER.replace('add_shared("lr", "epochs", "model")', 'add_usual(without=["model"])')
    usual = usual.replace('    parser.change_shared("text")\n', "")
    assert [*read(tmp_path, usual).parameters] == ["lr", "epochs", "tp", "is_fast"]
    with pytest.raises(UserError, match=r"ddp\.py:7: no option 'modle' to share or to change") as caught:
        read(tmp_path, usual.replace('without=["model"]', 'without=["modle"]'))
    assert caught.value.hint == "did you mean model?"


def test_a_recipe_of_another_recipe_gets_its_trainer_s_parameters_too(tmp_path: Path) -> None:
    base = write(tmp_path, toml='parameters_of = "ddp.py"\n[parameters.lr]\ndefault = 0.2\n')
    heir = base.with_name("heir.toml")
    heir.write_text(RECIPE.format(name="ddp", devices="multiple") + 'parameters_of = "ddp"\n')
    assert read_recipe(heir, tmp_path).parameters == read_recipe(base, tmp_path).parameters


def test_an_own_trainer_beside_the_recipe_may_use_plain_argparse(tmp_path: Path) -> None:
    write(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text(
        "def parse_arguments():\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument(\n        '-b', '--batch_size', type=int, default=8,\n    )\n"
        "    parser.add_argument('--run_dir', default=new_folder())\n"
        "    parser.add_argument('--text', default='', help='''\nat the left margin''')\n"
    )
    text = RECIPE.format(name="train", devices="single") + 'parameters_of = "train.py"\n'
    (mine / "train.toml").write_text(text)
    found = read_recipe(mine / "train.toml", tmp_path).parameters
    assert [*found] == ["batch_size", "text"]
    assert (found["batch_size"].type, found["batch_size"].default) == ("int", 8)


def test_a_script_without_declarations_in_the_place_of_a_copied_trainer_gets_its_options(
    tmp_path: Path,
) -> None:
    copied = tmp_path / "mine" / "ddp.toml"
    copied.parent.mkdir()
    copied.write_text(write(tmp_path).read_text())
    (copied.parent / "ddp.py").write_text("print('mine')\n")
    assert [*read_recipe(copied, tmp_path).parameters] == ["lr", "epochs", "model", "tp", "is_fast"]
    (copied.parent / "ddp.py").write_text(TRAINER.replace("--tp", "--own"))  # without common/ beside it
    assert [*read_recipe(copied, tmp_path).parameters] == ["lr", "epochs", "model", "own", "is_fast"]


def test_text_that_looks_like_the_declaration_is_passed_over(tmp_path: Path) -> None:
    text = TRAINER.replace("Train.", "Train.\n\ndef parse_arguments is below. \u2028 \f")
    found = read(tmp_path, text.replace('help="Ranks"', 'help="Ranks\u2028"')).parameters
    assert [*found] == ["lr", "epochs", "model", "tp", "is_fast"]
    assert found["tp"].help == "Ranks\u2028"
    with pytest.raises(UserError, match=r"ddp\.py:12: parameters\.tp\.default"):
        read(tmp_path, text.replace("default=2", "default=0"))


def test_one_broken_trainer_hides_no_other_recipe(tmp_path: Path) -> None:
    path = write(tmp_path, trainer="def parse_arguments(:\n")
    path.with_name("other.toml").write_text(RECIPE.format(name="ddp", devices="single"))
    recipes, problems = find_recipes(tmp_path)
    assert ([each.path.stem for each in recipes], len(problems)) == (["other"], 1)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"--tp", type=int', '"--tp", type=open', 10, "--tp: type: expected values that are written out"),
        ("default=2, min", "default=two(), min", 10, "--tp: default: expected values that are written out"),
        ("default=2, min", "default=0, min", 10, "parameters.tp.default = 0: must be at least 1"),
        ("usual=(1, 8)", "usual=8", 10, "parameters.tp.usual = 8: expected [LOW, HIGH]"),
        ('unit="ranks"', 'nargs="*"', 10, "unknown key parameters.tp.nargs"),
        ('unit="ranks"', "**more", 10, "--tp: **: expected values that are written out"),
        ("default=2, ", "", 10, "the key parameters.tp.default is missing"),
        ('"--tp"', '"tp"', 10, "add_argument: expected an option such as --lr"),
        ('"--tp"', '"--tensor-parallel"', 10, "small letters, digits and _"),
        ('"--tp"', "name", 10, "add_argument: expected values that are written out"),
        ('"--tp"', "2", 10, "add_argument: expected names"),
        ('add_shared("lr"', 'add_shared("lrr"', 7, "no option 'lrr' to share or to change"),
        ('change("lr"', 'change("width"', 9, "no option 'width' to share or to change"),
        ('change_shared("text")', 'change_shared("images")', 8, "no option 'images'"),
        ('change("lr", default=0.1)', 'change("lr", default=0)', 9, "must be above 0"),
        ("def parse_arguments", "def arguments", None, "def parse_arguments is missing"),
        ("type=int,", "type=int;", 10, "not valid Python"),
        ("default=2,", f"default={'[' * 9999},", None, "not valid Python"),
        ("default=2,", f"default={'-' * 3000}2,", None, ""),
    ],
)
def test_a_mistake_in_a_trainer_s_declaration_names_file_and_line(
    tmp_path: Path, old: str, new: str, line: int | None, words: str
) -> None:
    assert old in TRAINER
    with pytest.raises(UserError) as caught:
        read(tmp_path, TRAINER.replace(old, new, 1))
    path = tmp_path / "trainers" / "ddp.py"
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}:")
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("toml", "line", "words"),
    [
        ('parameters_of = "other.py"\n', 9, "parameters_of = 'other.py': no such trainer"),
        ('parameters_of = "ddp.py"\n[parameters]\nlr = 3\n', 11, "expected a table"),
        ('parameters_of = "ddp.py"\n[parameters.lr]\ndefault = 0\n', 11, "must be above 0"),
        (
            'parameters_of = "ddp.py"\n[parameters.lrr]\ndefault = 1\n',
            10,
            "the key parameters.lrr.type is missing",
        ),
    ],
)
def test_a_mistake_in_the_recipe_is_shown_with_the_recipe_s_line(
    tmp_path: Path, toml: str, line: int, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, toml=toml)
    assert caught.value.message.startswith(f"{tmp_path / 'recipes' / 'ddp.toml'}:{line}: ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        ("", "SHARED is missing"),
        ("SHARED = options()", "arguments.py:1: SHARED: expected values that are written out"),
        ("SHARED = [1]", "arguments.py:1: SHARED: expected a table of tables"),
        ("SHARED = {'lr': 1}", "arguments.py:1: SHARED: expected a table of tables"),
    ],
)
def test_a_mistake_in_the_trainers_shared_file_names_that_file(
    tmp_path: Path, shared: str, words: str
) -> None:
    write(tmp_path)
    (tmp_path / "trainers" / "common" / "arguments.py").write_text(shared)
    with pytest.raises(UserError) as caught:
        TrainerArguments(tmp_path / "trainers").of(tmp_path / "trainers" / "ddp.py")
    assert words in caught.value.message
