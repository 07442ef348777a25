"""A torch without CUDA is named before a job holds GPUs with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.environment_check import warn_of_build
from coach.launch.own_program import own_recipe, read_own_program
from coach.launch.recipe import get_recipe
from coach.node.torch_build import torch_of_command
from tests.launch.test_environment_check import make_prefix, venv

CPU_ONLY = "__version__ = '2.6.0'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
"""As conda-forge builds it: the version does not name the CPU."""


def cpu_prefix(prefix: Path) -> Path:
    packages = make_prefix(prefix, torch=None) / "lib" / "python3.11" / "site-packages"
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text(CPU_ONLY)
    return prefix


def warned(folder: Path, prefix: Path, source: str = "import torch\n", gpus: int = 1) -> tuple[str, ...]:
    (folder / "train.py").write_text(source)
    recipe = own_recipe(read_own_program("train.py", (), folder))
    return warn_of_build(recipe, venv(prefix), str(prefix / "bin/python"), {}, gpus)


def test_a_launch_with_gpus_is_warned_of_a_torch_that_was_built_without_cuda(tmp_path: Path) -> None:
    prefix = cpu_prefix(tmp_path / "venv")
    (line,) = warned(tmp_path, prefix)
    assert line.startswith(f"torch 2.6.0 in environment venv {prefix} was built without CUDA: the training ")
    assert "--gpus 0" in line
    assert not warned(tmp_path, prefix, gpus=0)
    recipe = get_recipe("baseline")
    (line,) = warn_of_build(recipe, venv(prefix), str(prefix / "bin/python"), {}, 2)
    assert "refused on its node" in line


def test_a_wheel_for_the_cpu_is_known_by_its_metadata_alone(tmp_path: Path) -> None:
    packages = make_prefix(tmp_path / "venv", torch=None) / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.6.0+cpu.dist-info").mkdir()
    assert warned(tmp_path, tmp_path / "venv")
    (packages / "torch-2.6.0+cpu.dist-info").rename(packages / "torch-2.6.0.dist-info")
    assert not warned(tmp_path, tmp_path / "venv")


@pytest.mark.parametrize(
    "source",
    [
        "import jax\nimport torch\n",
        "import torch\nimport intel_extension_for_pytorch\n",
        "import tensorflow\n",
        "print('no framework')\n",
    ],
)
def test_a_program_that_may_use_its_gpus_without_torch_is_not_warned_of(tmp_path: Path, source: str) -> None:
    assert not warned(tmp_path, cpu_prefix(tmp_path / "venv"), source)


def test_a_cuda_build_and_an_environment_that_loads_more_are_not_warned_of(tmp_path: Path) -> None:
    assert not warned(tmp_path, make_prefix(tmp_path / "cuda"))
    prefix = cpu_prefix(tmp_path / "venv")
    loads = replace(venv(prefix), setup=("module load pytorch",))
    assert not warn_of_build(get_recipe("baseline"), loads, str(prefix / "bin/python"), {}, 2)


def test_the_node_reads_the_torch_of_the_python_that_it_starts(tmp_path: Path) -> None:
    prefix = cpu_prefix(tmp_path / "venv")
    assert torch_of_command([str(prefix / "bin/python")]) == ("2.6.0", None, False)
    (prefix / "bin" / "train.sh").write_text("#!/bin/sh\n")
    (prefix / "bin" / "train.sh").chmod(0o755)
    assert torch_of_command([str(prefix / "bin/train.sh")]) is None
    assert torch_of_command(["/no/such/python"]) is None
    assert torch_of_command([]) is None
