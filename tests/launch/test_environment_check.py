"""Environments seen from the login node: the refusals before a job is queued, and the checks left to the
job."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.environment_check import (
    check_environment,
    missing_modules,
    read_torch_version,
    torch_notes,
)
from coach.launch.recipe import Recipe
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.sources.io import CommandResult, Query, SystemIo
from tests.launch.examples import recipe


def make_prefix(prefix: Path, torch: str | None = "2.3.1+cu121", minor: int = 11) -> Path:
    """A venv's or conda environment's folders, with torch as a wheel installs it."""
    packages = prefix / "lib" / f"python3.{minor}" / "site-packages"
    packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    if torch is not None:
        (packages / "torch").mkdir()
        (packages / "torch" / "version.py").write_text(
            f"from typing import Optional\n\n__version__ = '{torch}'\ncuda: Optional[str] = '12.1'\n"
        )
    return prefix


class AnsweringIo(SystemIo):
    """An interpreter that answers as told."""

    def __init__(self, answer: str, returncode: int = 0) -> None:
        super().__init__({})
        self._answer, self._returncode = answer, returncode

    def run(self, query: Query, timeout_s: float = 12.0) -> CommandResult:
        return CommandResult(query, self._returncode, self._answer.encode(), "", 0.0, 0.0)


def venv(path: Path) -> Environment:
    return Environment(EnvironmentKind.VENV, path=str(path))


def test_the_torch_of_a_venv_is_read_from_its_files_without_starting_anything(tmp_path: Path) -> None:
    assert check_environment(venv(make_prefix(tmp_path / "venv"))).torch == "2.3.1+cu121"


def test_torch_is_found_by_its_metadata_where_its_own_version_file_is_another_s(tmp_path: Path) -> None:
    packages = make_prefix(tmp_path / "env", torch=None) / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.6.0+cpu.dist-info").mkdir()
    (packages / "torchvision-0.21.0.dist-info").mkdir()
    assert read_torch_version(tmp_path / "env") == "2.6.0+cpu"


def test_torch_of_the_base_counts_where_the_venv_may_see_it(tmp_path: Path) -> None:
    make_prefix(tmp_path / "base", "2.7.0")
    own = make_prefix(tmp_path / "venv", torch=None)
    settings = f"home = {tmp_path}/base/bin\ninclude-system-site-packages = false\n"
    (own / "pyvenv.cfg").write_text(settings)
    assert read_torch_version(own) is None
    (own / "pyvenv.cfg").write_text(settings.replace("false", "true"))
    assert read_torch_version(own) == "2.7.0"


def test_a_folder_that_the_file_system_refuses_is_a_problem_or_is_passed_over(tmp_path: Path) -> None:
    refused = tmp_path / ("x" * 300)  # a closed folder of another user raises the same kind of error
    assert str(refused) in str(check_environment(venv(refused)).problem)
    own = make_prefix(tmp_path / "venv")
    (own / "lib" / "python3.11" / "site-packages" / "other.pth").write_text(f"{refused}\n")
    assert missing_modules(["absent"], venv(own), str(own / "bin" / "python")) == ()


def test_torch_in_a_folder_that_a_pth_file_names_counts(tmp_path: Path) -> None:
    own = make_prefix(tmp_path / "venv", torch=None)
    shared = make_prefix(tmp_path / "shared", "2.8.0") / "lib" / "python3.11" / "site-packages"
    (own / "lib" / "python3.11" / "site-packages" / "shared.pth").write_text(f"import os\n# x\n{shared}\n")
    assert read_torch_version(own) == "2.8.0"


def test_a_conda_environment_is_found_by_its_name_in_conda_s_own_list(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path / "envs" / "torch-2.3", minor=10)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{tmp_path}/miniconda\n{prefix}\n")
    environment = Environment(EnvironmentKind.CONDA, path="torch-2.3")
    assert check_environment(environment, "python", {"HOME": str(tmp_path)}).torch == "2.3.1+cu121"
    unknown = check_environment(replace(environment, path="elsewhere"), "python", {"HOME": str(tmp_path)})
    assert (unknown.torch, unknown.problem) == (None, None)
    assert "not checked until the job starts" in (unknown.unknown or "")


def test_an_interpreter_is_started_only_if_its_files_do_not_give_the_answer(tmp_path: Path) -> None:
    environment = venv(make_prefix(tmp_path / "venv", torch=None))
    assert check_environment(environment, io=AnsweringIo("2.9.1\n")).torch == "2.9.1"
    missing = check_environment(environment, io=AnsweringIo("none\n"))
    assert missing.problem == f"torch is not installed in {tmp_path}/venv/bin/python"
    broken = check_environment(environment, io=AnsweringIo("Segmentation fault", 139))
    assert broken.problem is None
    assert "did not report its torch version" in (broken.unknown or "")


def test_an_environment_whose_setup_may_bring_torch_is_not_refused(tmp_path: Path) -> None:
    environment = replace(venv(make_prefix(tmp_path / "venv", torch=None)), setup=("module load torch",))
    check = check_environment(environment, io=AnsweringIo("none\n"))
    assert check.problem is None
    assert "setup has to bring it" in (check.unknown or "")


def test_a_python_that_is_there_and_cannot_be_started_is_not_called_missing(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path / "venv", torch=None)
    python = prefix / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.unlink(missing_ok=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o644)
    assert check_environment(venv(prefix)).problem == f"{python}: not executable"
    python.unlink()
    python.symlink_to(python)  # a loop stands for a link that cannot be followed
    problem = check_environment(venv(prefix)).problem or ""
    assert problem.startswith(f"{python}: a link to {python}: ")
    assert "no such program" not in problem


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Environment(EnvironmentKind.VENV, path="/no/such/venv"), "/no/such/venv: no such folder"),
        (Environment(EnvironmentKind.VENV, path="/usr/share"), "/usr/share/bin/python: no such program"),
        (Environment(EnvironmentKind.CONDA, path="/no/such/env"), "/no/such/env: no such folder"),
        (Environment(EnvironmentKind.APPTAINER, image="/no/such.sif"), "/no/such.sif: no such image"),
        (Environment(EnvironmentKind.PYXIS, image="/no/such.sqsh"), "/no/such.sqsh: no such image"),
    ],
)
def test_a_missing_environment_is_refused_before_the_job_is_queued(
    tmp_path: Path, environment: Environment, words: str
) -> None:
    check = check_environment(environment)
    assert check.problem == words
    with pytest.raises(UserError, match=words):
        torch_notes(environment, "python3", check, recipe(tmp_path), ())


@pytest.mark.parametrize(
    "environment",
    [
        Environment(EnvironmentKind.MODULES, modules=("pytorch/2.6",)),
        Environment(EnvironmentKind.APPTAINER, image="/dev/null"),
        Environment(EnvironmentKind.PYXIS, image="nvcr.io#nvidia/pytorch:25.02-py3"),
    ],
)
def test_a_module_or_an_image_is_taken_at_its_description_s_word_and_never_guessed(
    environment: Environment,
) -> None:
    check = check_environment(environment)
    assert check.torch is None
    assert "not checked until the job starts" in (check.unknown or "")
    assert check_environment(replace(environment, torch="2.6.0")).torch == "2.6.0"


def needing(data: Path, name: str, torch: str | None) -> Recipe:
    return replace(recipe(data, "ddp"), name=name, torch=torch)


def test_the_plan_names_the_recipes_that_run_on_an_older_torch(tmp_path: Path) -> None:
    baseline, ddp = needing(tmp_path, "baseline", ">=2.1"), needing(tmp_path, "ddp", None)
    fsdp = needing(tmp_path, "fsdp", ">=2.6")
    recipes = (baseline, ddp, fsdp)
    environment = Environment(
        EnvironmentKind.MODULES, name="pytorch", modules=("cuda/12.1", "pytorch/2.3"), torch="2.3.1"
    )
    check = check_environment(environment)
    assert torch_notes(environment, "python3", check, ddp, recipes) == (
        (
            "environment pytorch (modules cuda/12.1 pytorch/2.3): torch 2.3.1: baseline, ddp yes; fsdp needs "
            ">=2.6"
        ),
    )
    with pytest.raises(UserError) as caught:
        torch_notes(environment, "python3", check, fsdp, recipes)
    assert caught.value.message == (
        "recipe fsdp needs torch >=2.6: environment pytorch (modules cuda/12.1 pytorch/2.3) has 2.3.1"
    )
    new = replace(environment, torch="2.6.0")
    assert torch_notes(new, "python3", check_environment(new), fsdp, recipes) == (
        "environment pytorch (modules cuda/12.1 pytorch/2.3): torch 2.6.0",
    )


@pytest.mark.parametrize(
    ("version", "requirement", "is_enough"),
    [
        ("2.6.0", ">=2.6", True),
        ("2.6.0+cu124", ">=2.6", True),
        ("2.10.0", ">=2.6", True),
        ("2.5.1", ">=2.6", False),
        ("2.3.1+cpu", ">=2.6,<3", False),
        ("3.0", ">=2.6,<3", False),
        ("2.13.0", ">= 2.6 , <3", True),
        ("2.7.0a0+ecf3bae40a.nv25.02", ">=2.7", True),
        ("2.6", "==2.6.0", True),
        ("2.6.1", "!=2.6.1", False),
        ("2.6.1", ">2.6.1", False),
        ("2.6.1", "<=2.6.1", True),
        ("unknown", ">=2.6", None),
    ],
)
def test_a_torch_is_enough_by_its_release_and_one_that_cannot_be_compared_is_not_refused(
    tmp_path: Path, version: str, requirement: str, is_enough: bool | None
) -> None:
    environment = Environment(EnvironmentKind.MODULES, modules=("pytorch",), torch=version)
    ddp = needing(tmp_path, "ddp", requirement)
    if is_enough is False:
        with pytest.raises(UserError, match="recipe ddp needs torch"):
            torch_notes(environment, "python3", check_environment(environment), ddp, (ddp,))
    else:
        (note,) = torch_notes(environment, "python3", check_environment(environment), ddp, (ddp,))
        assert note.endswith(f": torch {version}")
