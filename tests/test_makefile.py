"""`make run` chooses what to install by what the machine is, finds an interpreter, and does it once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import REPOSITORY

TOOLS = ("sh", "make", "cat", "cksum", "cut", "rm", "touch", "mkdir", "chmod", "dirname", "cp")

FAKE_PYTHON = """#!/bin/sh
# Stands for an interpreter: says its version, makes a venv that holds itself, and notes what is asked of it.
case "$*" in
  *platform*) echo {version} ;;
  *"version_info < (3, 11)"*) exit {is_old} ;;
  *"import ensurepip"*) exit {has_no_venv} ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "venv by $0" >> made.txt ;;
  *"pip install"*) echo "$*" >> made.txt ;;
  "-m coach"*) echo "coach opened with: $*" ;;
esac
"""


class Machine:
    """A checkout on a machine that has the programs in `bin`, and no others."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(REPOSITORY / name, self.checkout)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)

    def add(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def add_python(
        self, name: str = "python3", version: str = "3.11.2", *, is_old: bool = False, has_venv: bool = True
    ) -> None:
        self.add(name, FAKE_PYTHON.format(version=version, is_old=int(is_old), has_no_venv=int(not has_venv)))

    def make(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "SLURM_CONFS=", *words],
            cwd=self.checkout,
            env={"PATH": str(self.bin), "HOME": os.devnull, **env},
            capture_output=True,
            text=True,
            timeout=30,
        )

    def installed(self) -> list[str]:
        """What pip was asked to install, in order."""
        made = self.checkout / "made.txt"
        lines = made.read_text().splitlines() if made.exists() else []
        return [line.rpartition("-e ")[2] for line in lines if "pip install" in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_slurm_the_training_extra_is_installed_and_coach_opens(machine: Machine) -> None:
    machine.add_python()
    result = machine.make("run", "ARGS=launch baseline --wait")
    assert result.returncode == 0, result.stderr
    assert machine.installed() == [".[train]"]
    assert result.stdout == "coach opened with: -m coach launch baseline --wait\n"
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("client", ["sbatch", "squeue"])
def test_with_a_slurm_client_the_core_is_enough(machine: Machine, client: str) -> None:
    machine.add_python()
    machine.add(client)
    machine.make("run")
    assert machine.installed() == ["."]


def test_with_a_slurm_configuration_named_by_the_environment_the_core_is_enough(machine: Machine) -> None:
    machine.add_python()
    machine.make("run", SLURM_CONF="/somewhere/slurm.conf")
    assert machine.installed() == ["."]


def test_with_a_slurm_configuration_in_its_usual_place_the_core_is_enough(
    machine: Machine, tmp_path: Path
) -> None:
    machine.add_python()
    (tmp_path / "slurm.conf").touch()
    machine.make("run", f"SLURM_CONFS={tmp_path / 'slurm.conf'}")
    assert machine.installed() == ["."]


def test_the_choice_can_be_overridden_both_ways(machine: Machine) -> None:
    machine.add_python()
    machine.make("run", "EXTRAS=")
    machine.add("sbatch")
    machine.make("run", "EXTRAS=train")
    assert machine.installed() == [".", ".[train]"]


def test_the_second_time_installs_nothing_and_says_nothing_of_it(machine: Machine) -> None:
    machine.add_python()
    machine.make("run")
    again = machine.make("run")
    assert again.stderr == ""
    assert len(machine.installed()) == 1
    machine.make("run", "EXTRAS=")  # the core is there already
    assert len(machine.installed()) == 1


def test_a_changed_requirement_is_installed(machine: Machine) -> None:
    machine.add_python()
    machine.make("run")
    with (machine.checkout / "constraints.txt").open("a") as constraints:
        constraints.write("another==1.0\n")
    machine.make("run")
    assert machine.installed() == [".[train]", ".[train]"]


def test_a_failed_install_is_tried_again(machine: Machine) -> None:
    machine.add_python()
    broken = FAKE_PYTHON.replace('echo "$*" >> made.txt', "exit 1")
    machine.add("python3", broken.format(version="3.11.2", is_old=0, has_no_venv=0))
    assert machine.make("run").returncode != 0
    shutil.rmtree(machine.checkout / ".venv")
    machine.add_python()
    assert machine.make("run").returncode == 0
    assert machine.installed() == [".[train]"]


def test_the_newest_interpreter_that_works_is_taken(machine: Machine) -> None:
    machine.add_python("python3", "3.11.2")
    machine.add_python("python3.12", "3.12.1")
    machine.add("python3.13", "#!/bin/sh\nexit 127\n")  # a shim of a version manager without that version
    machine.make("run")
    assert f"venv by {machine.bin}/python3.12" in (machine.checkout / "made.txt").read_text()


def test_an_interpreter_can_be_chosen(machine: Machine) -> None:
    machine.add_python("python3.12", "3.12.1")
    machine.add_python("mine", "3.11.9")
    machine.make("run", f"PYTHON={machine.bin}/mine")
    assert f"venv by {machine.bin}/mine" in (machine.checkout / "made.txt").read_text()


def test_an_old_python_is_named_in_one_line(machine: Machine) -> None:
    machine.add_python("python3", "3.9.2", is_old=True)
    result = machine.make("run")
    assert result.returncode != 0
    assert result.stderr.splitlines()[0] == (
        "coach needs Python 3.11 or newer; found 3.9.2; set PYTHON=/path/to/python3"
    )


def test_a_python_without_venv_says_what_to_install(machine: Machine) -> None:
    machine.add_python("python3", "3.11.2", has_venv=False)
    assert "apt install python3-venv" in machine.make("run").stderr.splitlines()[0]


def test_no_python_at_all_is_said(machine: Machine) -> None:
    assert "found none" in machine.make("run").stderr.splitlines()[0]


def test_tests_need_the_dev_and_train_extras(machine: Machine) -> None:
    dry = machine.make("--dry-run", "test")
    assert '-e ".[dev,train]"' in dry.stdout
    order = [
        dry.stdout.index(step)
        for step in ("ruff format --check", "ruff check", "mypy", "lint-imports", "pytest")
    ]
    assert order == sorted(order)
