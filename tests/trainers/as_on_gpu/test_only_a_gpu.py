"""The list of results that only a GPU can show contains every trainer and every test that needs one."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.trainers.conftest import TRAINERS

TESTS = Path(__file__).parents[2]
LISTED = tomllib.loads(Path(__file__).with_name("only_a_gpu.toml").read_text(encoding="utf-8"))


def marks_in(path: Path) -> Iterator[tuple[str, str]]:
    """Each test of a module and its marks, as text."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    of_module = [ast.unparse(node) for node in tree.body if ast.unparse(node).startswith("pytestmark")]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, " ".join([*of_module, *map(ast.unparse, node.decorator_list)])


def test_every_trainer_lists_the_results_that_only_a_gpu_can_show() -> None:
    trainers = {path.stem for path in TRAINERS.glob("*.py") if not path.stem.startswith("drill_")}
    assert trainers == set(LISTED["trainers"]) - {"all"}


def test_every_test_that_needs_a_gpu_has_a_stand_in_that_runs_without_one() -> None:
    marks = {
        name: text
        for path in TESTS.rglob("test_*.py")
        if "mark.gpu" in path.read_text(encoding="utf-8") and path != Path(__file__)
        for name, text in marks_in(path)
    }
    needs_one = {name for name, text in marks.items() if "mark.gpu" in text}
    assert needs_one == {*LISTED["stand_ins"], *LISTED["no_stand_in"]}
    for name, stand_in in LISTED["stand_ins"].items():
        if stand_in == "itself":  # the mark is that of some of its parameters
            assert "pytest.param" in marks[name]
            assert not marks[name].startswith("pytest.mark.gpu")
        else:
            assert stand_in in marks
            assert "mark.gpu" not in marks[stand_in]
