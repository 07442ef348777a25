"""The code keeps its own rules: imports between rooms, complexity and width, the modules that a start loads,
the content of a wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.measures import GUARDS, files, tree
from tests.house.ratchet import EXCEPTIONS, complaints, read_exceptions
from tests.installed import REPOSITORY

pytestmark = pytest.mark.xdist_group("house")  # one process parses the code once for all guards


def test_imports_go_downwards_only() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([lint, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", GUARDS)
def test_no_place_is_worse_than_the_list_of_exceptions_says_and_the_list_only_shrinks(name: str) -> None:
    guard = GUARDS[name]
    listed = read_exceptions(EXCEPTIONS.read_text(encoding="utf-8")).get(name, {})
    said = complaints(guard, guard.measure(None), listed)
    assert not said, "\n".join([f"{name}, {EXCEPTIONS.name}:", *said])


def test_programs_that_no_test_starts_import_only_existing_names() -> None:
    """Tests and helpers fail when they are imported; captures, benchmarks and makers of pages do not."""
    missing = [
        f"{path.relative_to(REPOSITORY)}: {node.module}.{alias.name}"
        for path in files("tests", "benchmarks", "docs")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("coach.", "tests."))
        for alias in node.names
        if not _is_there(node.module or "", alias.name)
    ]
    assert missing == []


def _is_there(module: str, name: str) -> bool:
    """True if the module is a file of the repository that has the name, or a package with a module of it."""
    path = REPOSITORY.joinpath(*module.split("."))
    if path.is_dir():
        if (path / name).is_dir() or (path / f"{name}.py").exists():
            return True
        path = path / "__init__"
    source = path.with_suffix(".py")
    return source.exists() and re.search(rf"\b{name}\b", source.read_text()) is not None


def test_every_list_of_exceptions_belongs_to_a_guard() -> None:
    assert read_exceptions(EXCEPTIONS.read_text(encoding="utf-8")).keys() <= GUARDS.keys()


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
    """Trainers are started by path, which puts their folder first on sys.path: `profile.py` there would break
    torch."""
    names = {path.stem for path in (REPOSITORY / "trainers").glob("*.py")} - {"__init__"}
    # A trainer's own folder is not on the path here, so a module that is found belongs to another package.
    script = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, *sorted(names), "profile"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.split() == ["profile"]


@pytest.mark.parametrize("path", [path for path in files("coach") if "late import late" in path.read_text()])
def test_the_import_contracts_see_late_imports(path: Path) -> None:
    """`late` takes names as text; import-linter and mypy read the imports beside it, which must name the
    same."""
    for_types, late = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for imported in filter(lambda each: isinstance(each, ast.ImportFrom), node.body):
                    for_types |= {f"{imported.module}.{alias.name}" for alias in imported.names}
            case ast.Assign(
                targets=[target], value=ast.Call(func=ast.Name(id="late"), args=[package, *names])
            ):
                words = [ast.literal_eval(name) for name in names]
                assert ast.unparse(target).strip("()").split(", ") == words
                late |= {f"{ast.literal_eval(package)}.{word}" for word in words}
    assert late
    assert late <= for_types
