"""The environment of a launch: the recipe's, overridden by site and user, then by the launch's own
options."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch import interpreter
from coach.launch.interpreter import choose_environment, choose_python, describe, python_of_own
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import OwnKind, OwnProgram
from tests.launch.examples import recipe

SITE = {
    "pytorch": Environment(EnvironmentKind.MODULES, name="pytorch", modules=("pytorch/2.6",)),
    "image": Environment(EnvironmentKind.APPTAINER, name="image", image="$SCRATCH/torch.sif"),
}
ENV = {"SCRATCH": "/scratch/anna", "HOME": "/home/anna"}


def choose(data: Path, said: str | None, own: Environment | None = None) -> tuple[Environment, str | None]:
    return choose_environment(said, replace(recipe(data), environment=own), SITE, ENV, "/home/ada/here")


def test_a_recipe_s_own_environment_counts_until_somebody_names_another(tmp_path: Path) -> None:
    own = Environment(EnvironmentKind.VENV, path="/sw/recipe")
    assert choose(tmp_path, None) == (Environment(), None)
    assert choose(tmp_path, None, own) == (own, None)
    assert choose(tmp_path, "pytorch", own) == (SITE["pytorch"], "pytorch")
    assert choose(tmp_path, "none", own) == (Environment(), "none")


def test_a_path_is_the_same_from_wherever_a_relaunch_is_started(tmp_path: Path) -> None:
    environment, spelling = choose(tmp_path, "venv=../torch")
    assert environment.path == "/home/ada/torch"
    assert spelling == "venv=/home/ada/torch"
    assert choose(tmp_path, spelling) == (environment, spelling)
    modules, spelling = choose(tmp_path, "modules=cuda/12.4,pytorch/2.6")
    assert modules.modules == ("cuda/12.4", "pytorch/2.6")
    assert spelling == "modules=cuda/12.4,pytorch/2.6"
    assert choose(tmp_path, "image")[0].image == "/scratch/anna/torch.sif"


def test_a_misspelt_environment_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no environment of this name") as caught:
        choose(tmp_path, "pytorhc")
    assert caught.value.hint == "did you mean pytorch?"
    with pytest.raises(UserError) as caught:
        choose(tmp_path, "zzz")
    assert caught.value.hint == (
        "known: pytorch, image; or a spelling such as venv=/path or modules=NAME/1.2"
    )


@pytest.mark.parametrize(
    ("environment", "python"),
    [
        (Environment(EnvironmentKind.VENV, path="/sw/torch"), "/sw/torch/bin/python"),
        (Environment(EnvironmentKind.CONDA, path="/sw/conda/torch"), "/sw/conda/torch/bin/python"),
        (Environment(EnvironmentKind.CONDA, path="torch"), "python"),
        (Environment(EnvironmentKind.MODULES, modules=("a/1",)), "python3"),
        (Environment(EnvironmentKind.APPTAINER, image="/x.sif"), "python3"),
        (Environment(EnvironmentKind.PYXIS, image="/x.sqsh", python="/opt/py"), "/opt/py"),
        (Environment(EnvironmentKind.MODULES, modules=("a/1",), python="python3.12"), "python3.12"),
    ],
)
def test_each_kind_has_its_own_interpreter_and_python_wins_over_it(
    environment: Environment, python: str
) -> None:
    assert choose_python(None, environment, "slurm", ENV) == (python, None)
    assert choose_python("/bin/sh", environment, "slurm", ENV) == ("/bin/sh", None)


def test_a_missing_interpreter_is_refused_except_inside_an_image() -> None:
    with pytest.raises(UserError, match="--python /no/python: no such file"):
        choose_python("/no/python", Environment(), "slurm", ENV)
    with pytest.raises(UserError, match="the environment's python /no/python: no such file"):
        choose_python(None, Environment(EnvironmentKind.VENV, path="/x", python="/no/python"), "slurm", ENV)
    image = Environment(EnvironmentKind.APPTAINER, image="/x.sif")
    assert choose_python("/no/python", image, "slurm", ENV) == ("/no/python", None)


def test_pyxis_is_refused_without_slurm() -> None:
    with pytest.raises(UserError, match="plugin of Slurm"):
        choose_python(None, Environment(EnvironmentKind.PYXIS, image="/x.sqsh"), "local", ENV)


def test_an_environment_is_described_by_its_name_and_kind() -> None:
    assert describe(SITE["pytorch"], "python3") == "environment pytorch (modules pytorch/2.6)"
    assert describe(Environment(EnvironmentKind.VENV, path="/x"), "/x/bin/python") == "environment venv /x"
    assert describe(Environment(), "/x/bin/python") == "environment /x/bin/python"


def test_a_script_runs_by_the_python_that_its_author_would_get_by_typing_it(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    script = OwnProgram(OwnKind.SCRIPT, ("train.py",), "/home/ada")
    env = {"PATH": str(python.parent)}
    chosen, note = python_of_own(script, None, Environment(), "slurm", env)
    assert chosen == str(python)
    assert "the python of your PATH" in (note or "")
    chosen, note = python_of_own(script, None, Environment(), "slurm", {"PATH": str(tmp_path)})
    assert (chosen, "no python on your PATH" in (note or "")) == ("python3", True)
    command = OwnProgram(OwnKind.COMMAND, ("srun", "x"), "/home/ada")
    assert python_of_own(command, None, Environment(), "slurm", env) == ("python3", None)
    venv = Environment(EnvironmentKind.VENV, path="/sw/torch")
    assert python_of_own(script, None, venv, "slurm", env) == ("/sw/torch/bin/python", None)


def test_a_plan_names_the_python_without_torch_and_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "find_spec", lambda name: None)
    python, note = choose_python(None, Environment(), "slurm", ENV)
    assert python == "python3"
    assert note == (
        f"it runs with the first python3 on the job's PATH, because coach's own Python ({sys.executable}) "
        "has no torch; to use another, set --env"
    )
