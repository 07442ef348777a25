"""`make new-rule` and the others: the new part passes the checks and its own tests, and bad input changes
nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import pages
from tests.house import new
from tests.installed import REPOSITORY

TREE = ("coach", "recipes", "trainers", "docs", "tests")
TYPED = re.compile(r"make new-(\w+)[^`\n]*?((?:\b(?:CODE|NAME|FROM)=\w+ ?)+)")
"""A command of a page that makes a part, with its variables."""
HEAVY = ("__pycache__", "recordings", "fixtures", "screens", "same_output", "*.svg", "measured", "made")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that the skeletons need, without recordings and pictures."""
    for folder in TREE:
        keep = shutil.ignore_patterns(*(HEAVY if folder in ("docs", "tests") else HEAVY[:1]))
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=keep)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    monkeypatch.setattr(new, "REPOSITORY", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def make(monkeypatch: pytest.MonkeyPatch, part: str, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["new", part, *words])
    return new.main()


def contents(tree: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in tree.rglob("*") if "__pycache__" not in path.parts}


def test_each_skeleton_passes_lint_and_its_own_tests(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tree)
    for part, words in {
        "rule": ("--code", "ENV997", "--name", "gone_away"),
        "recipe": ("--name", "my_ddp", "--from", "baseline"),
        "screen": ("--name", "tide_table"),
        "command": ("--name", "places"),
    }.items():
        assert make(monkeypatch, part, *words) == 0, capsys.readouterr().err
        assert "next: " in capsys.readouterr().out
    made = [str(path) for path, changed in contents(tree).items() if before.get(path) != changed]
    modules = [path for path in made if path.endswith(".py")]
    causes = re.findall(r'^ +"(\w+)": "', (tree / "coach/rules/causes.py").read_text(), re.MULTILINE)
    assert causes[causes.index("gone_away") + 1] > "gone_away"
    recipe = tomllib.loads((tree / "recipes/my_ddp.toml").read_text())
    assert (recipe["devices"], recipe["parameters_of"]) == ("single", "baseline")
    ruff = Path(sys.executable).parent / "ruff"
    tests = [path for path in modules if Path(path).name.startswith("test_") and path not in map(str, before)]
    assert len(tests) == 3
    matching = f"{tree}/tests/trainers/test_recipes_match.py"
    pytest_words = ("-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider")
    for argv in (
        [ruff, "check", "--no-cache", *modules],
        [ruff, "format", "--check", "--no-cache", *modules],
        [
            sys.executable,
            *pytest_words,
            *tests,
            matching,
            "-k",
            "my_ddp or env997 or tide_table or places or gone",
        ],
    ):
        done = subprocess.run(list(map(str, argv)), cwd=tree, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("rule", "--code", "ENV017", "--name", "x"),
            "ENV017: is a rule already: the next free code is ENV",
        ),
        (
            ("rule", "--code", "env24", "--name", "x"),
            "'env24': a code is three capital letters, with or without three digits: CODE=ENV",
        ),
        (
            ("rule", "--code", "XYZ001", "--name", "x"),
            "XYZ001: no family of rules has codes that begin with XYZ",
        ),
        (("rule", "--code", "ENV997"), "a rule has a code and the name of its cause: CODE=ENV NAME=my_cause"),
        (("rule", "--code", "ENV997", "--name", "stale_nfs"), "stale_nfs: is a cause already; take another"),
        (("recipe", "--name", "x", "--from", "ddpp"), "FROM=ddpp: recipes/ has no such recipe"),
        (("recipe", "--name", "x", "--from", "elastic"), "FROM=elastic: its parameters are those of 'ddp': "),
        (("screen", "--name", "x", "--from", "ddp"), "FROM=ddp: a recipe alone builds on another"),
        (("recipe", "--name", "ddp"), "recipes/ddp.toml: is there already; take another name"),
        (("screen", "--name", "../x"), "'../x': a name is small letters, digits and _: NAME=my_screen"),
        (("command", "--name", ""), "'': a name is small letters, digits and _: NAME=my_command"),
        (("command", "--name", "much_too_long"), "'much_too_long': `coach --help` has room for 10 letters"),
    ],
)
def test_bad_input_is_one_clear_line_and_makes_nothing(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "write_text", None)  # every write fails
    assert make(monkeypatch, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"new-{words[0]}: {said}")


def test_a_family_alone_gives_the_next_free_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts: dict[str, str] = {}
    monkeypatch.setattr(new.Change, "write", lambda change: texts.update(made=change.made[0]))
    monkeypatch.setattr(new, "_run", lambda program: None)
    assert make(monkeypatch, "rule", "--code", "JOB", "--name", "my_cause") == 0
    made = re.search(r"/job(\d{3})_my_cause\.py$", texts["made"])
    known = (REPOSITORY / "coach/rules/causes.py").read_text() + " ".join(
        path.stem.upper() for path in (REPOSITORY / "coach/rules").glob("*/job*.py")
    )
    assert made is not None
    assert int(made[1]) == 1 + max(map(int, re.findall(r"\bJOB(\d{3})", known)))
    assert f"tests.rules.proofs JOB{made[1]}`" in capsys.readouterr().out


def test_the_commands_of_the_pages_that_make_a_part_are_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new.Change, "write", lambda change: None)
    monkeypatch.setattr(new, "_run", lambda program: None)
    rooms = sorted((REPOSITORY / "coach").rglob("README.md"))
    texts = [path.read_text() for path in (*pages(), *rooms, *REPOSITORY.glob("*/README.md"))]
    texts.append((REPOSITORY / "Makefile").read_text())
    typed = {(match[1], match[2]) for text in texts for match in TYPED.finditer(text)}
    assert {part for part, _ in typed} == set(new.PARTS)
    for part, variables in typed:
        words = [word for each in variables.split() for word in each.split("=")]
        words[::2] = [f"--{name.lower()}" for name in words[::2]]
        assert make(monkeypatch, part, *words) == 0, capsys.readouterr().err
