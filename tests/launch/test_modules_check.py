"""Modules that a recipe needs beside torch: refused with the reason where they are known to be missing, and
left to the job elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.environment_check import check_modules, missing_modules
from coach.launch.recipe import get_recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from tests.launch.test_environment_check import make_prefix, venv


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
    recipe = get_recipe(name)
    with pytest.raises(UserError) as refused:
        check_modules(recipe, venv(prefix), python_of(prefix))
    assert str(refused.value).startswith(f"recipe {name} needs {recipe.requires[0]}: not found in ")
    assert reason in (refused.value.hint or "")


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
