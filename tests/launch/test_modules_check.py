"""Modules that a recipe needs beside torch: refused with the reason where they are known to be missing, and
left to the job elsewhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.environment_check import (
    EXTRAS,
    check_environment,
    missing_modules,
    modules_of,
    own_warnings,
    torch_notes,
)
from coach.launch.own_program import imported_modules
from coach.launch.recipe import data_dir, get_recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import OwnKind, OwnProgram
from tests.launch.test_environment_check import AnsweringIo, make_prefix, venv


def packages_of(prefix: Path) -> Path:
    return prefix / "lib" / "python3.11" / "site-packages"


def python_of(prefix: Path) -> str:
    return str(prefix / "bin" / "python")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dali", "nvidia-dali-cuda120 or nvidia-dali-cuda130"),
        (
            "horovod_cnn",
            "does not build against torch 2.1 and newer unless it is patched; recipe ddp does the same",
        ),
        ("mpi_allreduce", "pip install mpi4py mpich"),
        ("lightning_cnn", "pip install pytorch-lightning"),
    ],
)
def test_a_recipe_whose_framework_is_missing_is_refused_with_the_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
    prefix = make_prefix(tmp_path / "venv", "2.13.0+cpu")
    for package in ("numpy", "PIL", "torchvision"):
        (packages_of(prefix) / package).mkdir()
    recipe = get_recipe(name)
    check = check_environment(venv(prefix), modules=modules_of(recipe))
    with pytest.raises(UserError) as refused:
        torch_notes(venv(prefix), python_of(prefix), check, recipe, [])
    assert str(refused.value).startswith(f"recipe {name} needs {recipe.requires[0]}: not found in ")
    assert reason in (refused.value.hint or "")


def test_a_recipe_needs_all_that_its_trainer_imports_at_its_start() -> None:
    assert set(modules_of(get_recipe("baseline"))) == {"torch", "numpy", "PIL", "torchvision"}
    assert set(modules_of(get_recipe("comm_bench"))) == {"torch", "numpy"}
    assert "tokenizers" in modules_of(get_recipe("lora"))
    assert "my_augmentations" not in modules_of(get_recipe("missing_piece"))


def test_each_module_with_an_extra_is_brought_by_that_extra_of_the_project() -> None:
    project = tomllib.loads((data_dir() / "pyproject.toml").read_text())["project"]
    extras = {
        name: " ".join(re.split(r"[<>=; ]", each)[0] for each in packages)
        for name, packages in project["optional-dependencies"].items()
    }
    brought = {"PIL": "torchvision"}  # it depends on pillow
    for module, extra in EXTRAS.items():
        assert brought.get(module, module).replace("_", "-") in extras[extra].split()


def as_folder(packages: Path) -> None:
    (packages / "nvidia" / "dali").mkdir(parents=True)


def as_file(packages: Path) -> None:
    (packages / "nvidia").mkdir()
    (packages / "nvidia" / "dali.py").write_text("")


def as_compiled(packages: Path) -> None:
    (packages / "nvidia").mkdir()
    (packages / "nvidia" / "dali.cpython-311-x86_64-linux-gnu.so").write_text("")


def as_link(packages: Path) -> None:
    (packages / "__editable___nvidia_dali_2_4_0_finder.py").write_text("")


def beside(packages: Path) -> None:
    elsewhere = packages.parents[3] / "sources"
    (elsewhere / "nvidia" / "dali").mkdir(parents=True)
    (packages / "sources.pth").write_text(f"{elsewhere}\n")


@pytest.mark.parametrize("install", [as_folder, as_file, as_compiled, as_link, beside])
def test_a_module_is_found_after_every_kind_of_installation(
    tmp_path: Path, install: Callable[[Path], None]
) -> None:
    prefix = make_prefix(tmp_path / "venv")
    assert missing_modules(["nvidia.dali"], venv(prefix), python_of(prefix)) == ("nvidia.dali",)
    install(packages_of(prefix))
    assert missing_modules(["nvidia.dali"], venv(prefix), python_of(prefix)) == ()


def test_a_package_of_the_same_vendor_is_not_the_module(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path / "venv")
    (packages_of(prefix) / "nvidia" / "cublas").mkdir(parents=True)
    assert missing_modules(["nvidia.dali"], venv(prefix), python_of(prefix)) == ("nvidia.dali",)


def test_an_environment_that_is_not_known_from_here_is_left_to_the_job(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path / "venv")
    without_torch = make_prefix(tmp_path / "bare", torch=None)
    unknown = [
        (Environment(EnvironmentKind.MODULES, modules=("PyTorch/2.3",)), "python"),
        (Environment(), "python3"),
        (Environment(EnvironmentKind.CONDA, path="of-another-machine"), "python"),
        (replace(venv(prefix), setup=("source more.sh",)), python_of(prefix)),
        (replace(venv(prefix), variables={"PYTHONPATH": "/more"}), python_of(prefix)),
        (venv(without_torch), python_of(without_torch)),
    ]
    for environment, python in unknown:
        assert missing_modules(["mpi4py"], environment, python) == ()
    plain = Environment(), python_of(prefix)
    assert missing_modules(["mpi4py"], *plain) == ("mpi4py",)
    assert missing_modules([], *plain) == ()


def test_a_module_of_pip_install_user_counts_but_not_in_a_venv(tmp_path: Path) -> None:
    prefix, home = make_prefix(tmp_path / "conda"), {"HOME": str(tmp_path)}
    conda = Environment(EnvironmentKind.CONDA, path=str(prefix))
    assert missing_modules(["wandb"], conda, python_of(prefix), home) == ("wandb",)
    (tmp_path / ".local" / "lib" / "python3.11" / "site-packages" / "wandb").mkdir(parents=True)
    assert missing_modules(["wandb"], conda, python_of(prefix), home) == ()
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert missing_modules(["wandb"], conda, python_of(prefix), home) == ("wandb",)


SCRIPT = """
import os, torch.nn as nn, wandb
from transformers.models import bert
from models import Net
from . import nothing
try:
    import apex
except ImportError:
    apex = None
if os.name == "nt":
    import pywin
"""


@pytest.fixture
def own(tmp_path: Path) -> OwnProgram:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "models.py").write_text("class Net: ...\n")
    return OwnProgram(OwnKind.SCRIPT, (str(tmp_path / "train.py"), "--lr", "1"), str(tmp_path))


def test_the_modules_of_a_script_are_those_that_it_always_imports(tmp_path: Path, own: OwnProgram) -> None:
    assert imported_modules(own) == ("torch", "wandb", "transformers")
    (tmp_path / "train.py").write_text("import torch\nprint 'old'\n")
    assert imported_modules(own) == ()
    (tmp_path / "train.py").unlink()
    assert imported_modules(own) == ()


def test_a_script_whose_environment_lacks_its_modules_is_planned_with_a_warning(
    tmp_path: Path, own: OwnProgram
) -> None:
    prefix, io = make_prefix(tmp_path / "venv"), AnsweringIo("none\n")
    (packages_of(prefix) / "transformers").mkdir()
    assert own_warnings(own, venv(prefix), python_of(prefix), {}, io) == (
        f"train.py imports wandb: not found in environment venv {prefix}",
    )
    (packages_of(prefix) / "wandb").mkdir()
    assert own_warnings(own, venv(prefix), python_of(prefix), {}, io) == ()
    bare = make_prefix(tmp_path / "bare", torch=None)
    assert own_warnings(own, Environment(), python_of(bare), {}, io) == (
        f"train.py imports torch, and torch is not installed in {python_of(bare)}: "
        "name an environment that has torch with --env",
    )
    gone = Environment(EnvironmentKind.VENV, path="/no/such/venv")
    assert own_warnings(own, gone, "/no/such/venv/bin/python", {}, io) == (
        "environment venv /no/such/venv: /no/such/venv: no such folder",
    )
    command = replace(own, kind=OwnKind.COMMAND)
    assert own_warnings(command, gone, "/no/such/venv/bin/python", {}, io) == ()
