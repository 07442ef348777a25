"""The house keeps its own rules: who imports whom, how long a module is, what a start loads, what a wheel holds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.installed import REPOSITORY

MAX_LINES = 400


def sources() -> list[Path]:
    return [path for folder in ("coach", "trainers") for path in (REPOSITORY / folder).rglob("*.py")]


def test_imports_go_downwards_only() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([lint, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout


def test_no_module_is_too_long_to_hold_in_the_head() -> None:
    lengths = {path.relative_to(REPOSITORY): len(path.read_text().splitlines()) for path in sources()}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["launch", "--help"]])
def test_help_and_version_load_neither_textual_nor_torch(arguments: list[str]) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "coach", *arguments]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "coach" in result.stdout
    loaded = {
        line.rsplit("|", 1)[1].strip().partition(".")[0] for line in result.stderr.splitlines() if "|" in line
    }
    assert "argparse" in loaded
    assert loaded.isdisjoint({"textual", "rich", "torch", "torchvision", "deepspeed", "numpy"})


def test_a_wheel_holds_coach_alone_with_trainers_and_recipes_as_its_data(coach_wheel: Path) -> None:
    names = zipfile.ZipFile(coach_wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"coach"}
    for folder, suffix in (("trainers", ".py"), ("recipes", ".toml")):
        in_tree = {
            path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / folder).rglob(f"*{suffix}")
        }
        assert in_tree, f"no {suffix} in {folder}"
        assert {f"coach/data/{path}" for path in in_tree} <= set(names)


def test_no_trainer_has_the_name_of_an_importable_module() -> None:
    """Trainers are started by path, which puts their folder first on sys.path: `profile.py` there would break torch."""
    names = {path.stem for path in (REPOSITORY / "trainers").glob("*.py")} - {"__init__"}
    # A trainer's own folder is not on the path here, so whatever is found is somebody else's.
    script = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, *sorted(names), "profile"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.split() == ["profile"]
