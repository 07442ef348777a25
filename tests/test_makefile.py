"""`make run` chooses the packages by the machine, finds an interpreter, and installs once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.installed import REPOSITORY
from tests.ordinary_user import NOBODY

TOOLS = ("sh", "make", "cat", "cksum", "cut", "rm", "touch", "mkdir", "chmod", "dirname", "cp", "mv")

FAKE_PYTHON = """#!/bin/sh
# Stands for an interpreter: says its version, makes a venv that holds itself, and notes what is asked of it.
case "$*" in
  *platform*) echo {version} ;;
  *"version_info < (3, 11)"*) exit {is_old} ;;
  *"import ensurepip"*) exit {has_no_venv} ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "venv by $0" >> made.txt ;;
  *"pip install"*) echo "$*" >> made.txt ;;
  *"pip wheel"*) for last in "$@"; do case $previous in -w) mkdir -p "$last"; esac; previous=$last; done; echo "$*" >> made.txt ;;
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

    def make(self, *words: str, before: Sequence[str] = (), **env: str) -> subprocess.CompletedProcess[str]:
        """`before` is put before the command, to run it as another user."""
        return subprocess.run(
            [*before, "make", "SLURM_CONFS=", *words],
            cwd=self.checkout,
            env={"PATH": str(self.bin), "HOME": os.devnull, **env},
            capture_output=True,
            text=True,
            timeout=30,
        )

    def installed(self) -> list[str]:
        """The packages that pip was asked to install, in order."""
        made = self.checkout / "made.txt"
        lines = made.read_text().splitlines() if made.exists() else []
        return [line.rpartition("-e ")[2] for line in lines if "pip install" in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_site_is_asked_for_its_prefix_before_anything_is_made(machine: Machine) -> None:
    machine.add_python()
    done = machine.make("site")
    assert done.returncode != 0
    assert "make site PREFIX=" in done.stderr
    assert machine.installed() == []


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
    assert not (machine.checkout / ".venv").exists()
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
        "coach needs Python 3.11 or newer; found 3.9.2; ways out: PYTHON=/path/to/python3, "
        "a newer python3 on the PATH (module load python), or uv, which brings one"
    )
    assert not (machine.checkout / ".venv").exists()


FAKE_UV = """#!/bin/sh
# Stands for uv: makes a venv of its own Python, noting how it was asked.
echo "uv $*" >> made.txt
[ "{has_python}" = 1 ] || {{ echo "error: No interpreter found" >&2; exit 2; }}
for folder in "$@"; do :; done
mkdir -p "$folder/bin"
cp "{python}" "$folder/bin/python"
"""


@pytest.fixture
def machine_with_uv(machine: Machine) -> Machine:
    """Its system Python is too old; uv has a newer one."""
    machine.add_python("python3", "3.6.8", is_old=True)
    own = machine.checkout.parent / "python-of-uv"
    own.write_text(FAKE_PYTHON.format(version="3.13.1", is_old=0, has_no_venv=0))
    own.chmod(0o755)
    machine.add("uv", FAKE_UV.format(python=own, has_python=1))
    return machine


def test_where_the_system_s_python_is_too_old_uv_brings_one(machine_with_uv: Machine) -> None:
    result = machine_with_uv.make("run", "EXTRAS=")
    assert result.returncode == 0, result.stderr
    assert (machine_with_uv.checkout / "made.txt").read_text().splitlines()[0] == (
        "uv venv -q --seed --python >=3.11 .venv"
    )
    assert machine_with_uv.installed() == ["."]


def test_a_newer_python_on_the_path_comes_before_uv(machine_with_uv: Machine) -> None:
    machine_with_uv.add_python("python3.12", "3.12.1")
    machine_with_uv.make("run")
    assert "uv" not in (machine_with_uv.checkout / "made.txt").read_text().splitlines()[0].split()


def test_a_chosen_interpreter_is_not_replaced_by_uv(machine_with_uv: Machine) -> None:
    result = machine_with_uv.make("run", "PYTHON=python3")
    assert "found 3.6.8; ways out" in result.stderr.splitlines()[0]


def test_uv_without_a_python_and_without_internet_is_one_line(machine_with_uv: Machine) -> None:
    machine_with_uv.add("uv", FAKE_UV.format(python="", has_python=0))
    result = machine_with_uv.make("run")
    assert result.returncode != 0
    assert result.stderr.startswith("coach needs Python 3.11 or newer; found 3.6.8, uv without any; ways out")
    assert not (machine_with_uv.checkout / ".venv").exists()


def test_an_interrupted_installation_leaves_no_half_made_venv(machine: Machine) -> None:
    machine.add_python()
    interrupted = FAKE_PYTHON.replace('echo "$*" >> made.txt', "kill -INT $PPID; exit 0")
    machine.add("python3", interrupted.format(version="3.11.2", is_old=0, has_no_venv=0))
    assert machine.make("run").returncode != 0
    assert not (machine.checkout / ".venv").exists()


def test_a_venv_that_was_there_before_survives_a_failed_upgrade(machine: Machine) -> None:
    machine.add_python()
    machine.make("run")
    broken = FAKE_PYTHON.replace('echo "$*" >> made.txt', "exit 1")
    python = machine.checkout / ".venv" / "bin" / "python"
    python.write_text(broken.format(version="3.11.2", is_old=0, has_no_venv=0))
    with (machine.checkout / "constraints.txt").open("a") as constraints:
        constraints.write("another==1.0\n")
    assert machine.make("run").returncode != 0
    assert python.exists()


def test_on_a_cluster_the_core_is_not_cached_in_a_home_with_a_quota(machine: Machine) -> None:
    machine.add_python()
    machine.make("run", "EXTRAS=")
    machine.add("sbatch")
    machine.make("run", "VENV=other")
    machine.make("run", "VENV=third", "EXTRAS=train")
    made = (machine.checkout / "made.txt").read_text().splitlines()
    asked = ["--no-cache-dir" in line for line in made if "pip install" in line]
    assert asked == [False, True, False]


def test_a_wheelhouse_holds_the_core_and_its_build_tools_and_torch_only_when_asked(machine: Machine) -> None:
    machine.add_python()
    result = machine.make("wheelhouse")
    assert result.returncode == 0, result.stderr
    assert (machine.checkout / "wheelhouse").is_dir()
    made = (machine.checkout / "made.txt").read_text().splitlines()
    assert made[-1].endswith("-w wheelhouse.new . pip hatchling editables")
    machine.make("wheelhouse", "EXTRAS=train")
    assert ".[train] pip hatchling editables" in (machine.checkout / "made.txt").read_text()
    assert not (machine.checkout / "wheelhouse.new").exists()


def test_a_wheelhouse_beside_the_checkout_is_used_without_the_network(machine: Machine) -> None:
    machine.add_python()
    (machine.checkout / "wheelhouse").mkdir()
    machine.make("run", "EXTRAS=")
    assert "--no-index --find-links wheelhouse " in (machine.checkout / "made.txt").read_text()


def test_the_source_of_the_wheels_can_be_set(machine: Machine) -> None:
    machine.add_python()
    (machine.checkout / "wheelhouse").mkdir()
    machine.make("run", "EXTRAS=", "WHEELHOUSE=")
    assert "--no-index" not in (machine.checkout / "made.txt").read_text()
    machine.make("run", "EXTRAS=", "WHEELHOUSE=/sw/wheels", "VENV=other")
    assert "--find-links /sw/wheels " in (machine.checkout / "made.txt").read_text()


def test_a_wheelhouse_that_lacks_something_says_so(machine: Machine) -> None:
    (machine.checkout / "wheelhouse").mkdir()
    broken = FAKE_PYTHON.replace('echo "$*" >> made.txt', "exit 1")
    machine.add("python3", broken.format(version="3.11.2", is_old=0, has_no_venv=0))
    result = machine.make("run", "EXTRAS=train")
    assert "wheelhouse does not have it all: it needs EXTRAS='train'" in result.stderr


@pytest.mark.root
def test_another_user_s_checkout_is_used_unchanged(open_directory: Path) -> None:
    folder = open_directory / "shared"
    folder.mkdir()
    machine = Machine(folder)
    machine.add_python()
    drop = [shutil.which("setpriv") or "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    machine.make("run", "EXTRAS=")
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    for extras in ("EXTRAS=", "EXTRAS=train"):
        result = machine.make("run", extras, before=drop)
        assert result.stdout == "coach opened with: -m coach\n", result.stderr
        assert result.stderr == ""
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    with (machine.checkout / "constraints.txt").open("a") as constraints:
        constraints.write("another==1.0\n")
    stale = machine.make("run", "EXTRAS=", before=drop)
    assert stale.returncode != 0
    assert "is not yours: ask its owner to run make, or make your own with VENV=DIR" in stale.stderr


def test_a_python_without_venv_names_the_package_to_install(machine: Machine) -> None:
    machine.add_python("python3", "3.11.2", has_venv=False)
    assert "apt install python3-venv" in machine.make("run").stderr.splitlines()[0]


def test_a_missing_python_is_named(machine: Machine) -> None:
    assert "found none" in machine.make("run").stderr.splitlines()[0]


def test_both_suites_install_the_test_tools_and_lint_only_the_linters(machine: Machine) -> None:
    for target in ("test", "test-real"):
        dry = machine.make("--dry-run", target).stdout
        assert '-e ".[dev,train,frameworks,language,kernels]"' in dry
        assert "pytest" in dry
        assert "mypy" not in dry
    dry = machine.make("--dry-run", "lint").stdout
    assert '-e ".[dev]"' in dry
    order = [dry.index(step) for step in ("ruff format --check", "ruff check", "mypy", "lint-imports")]
    assert order == sorted(order)
