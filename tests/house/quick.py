"""`make quick`: the tests that belong to the files that are changed.

It picks by name and by import, so it is a first look and no proof: `make test` runs all. It lists the tests
that it leaves out. `FILES="coach/…"` names files instead of asking git, `BASE=…` another commit to compare
with.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_BY_IMPORT = 5
"""A module that everybody imports has a hundred test files: the smallest of them are run."""
NOT_HERE = (
    "long gpu cluster site other_slurm scale terminal train frameworks language kernels proof environments "
    "modules"
)
"""Markers of tests that wait for a cluster, a terminal or a training."""
GUARDS = {
    "tests/test_house.py": "size, imports and start of every module",
    "tests/test_readmes.py": "the page of every room",
}
_LEFT_OUT_OF_GUARDS = ("a_wheel_holds", "programs_that_no_test_starts")
"""Tests of the guards that build a wheel or read the whole tree."""
ROOMS: Mapping[str, tuple[str, ...]] = {
    "coach/rules": (
        "tests/rules/test_registry.py",
        "tests/rules/test_pages.py",
    ),
    "coach/rules/wordings": ("tests/rules/wordings", "tests/rules/test_pages.py"),
    "coach/cli": ("tests/test_help.py", "tests/test_bad_input.py"),
    "coach/tui": ("tests/tui/test_screen_specs.py", "tests/tui/test_keys.py"),
    "recipes": ("tests/trainers/test_recipes_match.py",),
    "recipes/drills": ("tests/launch/test_drill_table.py",),
    "trainers": ("tests/trainers/test_recipes_match.py", "tests/trainers/test_diff_budgets.py"),
    "site": ("tests/site/test_pages.py", "tests/site/test_template.py", "tests/site/test_reference.py"),
    "single": ("tests/single/test_stand_ins.py",),
    "docs": ("tests/site/test_pages.py", "tests/rules/test_pages.py"),
    "Makefile": ("tests/test_makefile.py",),
    "pyproject.toml": ("tests/test_makefile.py",),
}
"""What a room's tests are beside those of the changed file: checked for each file of the room."""


@dataclass(slots=True)
class Picks:
    """The tests to run, each with its reason, and the tests left out."""

    run: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, test: str, why: str) -> None:
        """The first reason stays."""
        self.run.setdefault(test, why)


def pick(changed: Iterable[str], tests: Mapping[str, str]) -> Picks:
    """The tests for changed files. `tests` has the text of each module below tests/, by its path."""
    picks = Picks()
    for path in changed:
        _pick_for(path, tests, picks)
    for test, why in GUARDS.items():
        picks.add(test, why)
    return picks


def _pick_for(path: str, tests: Mapping[str, str], picks: Picks) -> None:
    before = len(picks.run)
    if is_test(path):
        if path in tests:
            picks.add(path, "is changed")
        return
    own = [test for test in named_after(path) if test in tests]
    for test in own:
        picks.add(test, f"is named after {path}")
    by_import = [test for test in sorted(tests, key=lambda test: len(tests[test])) if is_test(test)]
    by_import = [test for test in by_import if test not in own and mentions(tests[test], path)]
    for test in by_import[:MAX_BY_IMPORT]:
        picks.add(test, f"uses {path}")
    others = by_import[MAX_BY_IMPORT:]
    if others:
        picks.left_out.append(f"{len(others)} more test files use {path}: {', '.join(others)}")
    for room, more in ROOMS.items():
        if path == room or path.startswith(f"{room}/"):
            for test in more:
                picks.add(test, f"guards {room}")
    if len(picks.run) == before and not picks.run:
        picks.left_out.append(f"{path}: no test is named after it or imports it")


def is_test(path: str) -> bool:
    """True for a file that pytest collects."""
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def named_after(path: str) -> list[str]:
    """The folder of a module's tests: the mirror of its folder, or the mirror of its room."""
    inside = Path(path.removeprefix("coach/"))
    name = f"test_{inside.stem}.py"
    folders = [inside.parent, *inside.parent.parents]
    return [Path("tests", folder, name).as_posix() for folder in folders]


def mentions(text: str, path: str) -> bool:
    """True if a test imports the module of a path, or names the code of its rule or the file itself."""
    place = Path(path)
    if place.suffix != ".py":
        if place.name == "README.md":
            return False  # every room has one: the guards read them all
        return re.search(rf"[\"'/]{re.escape(place.name)}\b", text) is not None
    code = re.match(r"([a-z]{3}\d{3})_", place.name)
    if code and path.startswith("coach/rules/"):
        return re.search(rf"\b{code[1].upper()}\b", text) is not None
    if place.stem == "__init__":
        place = place.parent
    package = ".".join(place.parent.parts)
    imported = rf"^(?:from|import) {re.escape(package)}\.{re.escape(place.stem)}\b"
    listed = rf"^from {re.escape(package)} import (?:[^(\n]*|\([^)]*)\b{re.escape(place.stem)}\b"
    return re.search(f"{imported}|{listed}", text, re.MULTILINE) is not None


def changed_files(base: str | None) -> list[str]:
    """The files that differ from a commit, by git. Without a commit: from the point where this branch left
    main, else from HEAD."""
    if base is None:
        left = _git("merge-base", "HEAD", "main")
        base = left[0] if left else "HEAD"
    listed = _git("diff", "--name-only", "--diff-filter=d", base)
    if listed is None:
        raise SystemExit(f"quick: git does not know {base!r}: BASE=COMMIT names one, FILES='A B' names files")
    return sorted({*listed, *(_git("ls-files", "--others", "--exclude-standard") or ())})


def _git(*words: str) -> list[str] | None:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def texts_of_tests() -> dict[str, str]:
    """Path → text of each module below tests/."""
    return {
        path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
        for path in (REPOSITORY / "tests").rglob("*.py")
    }


def command(picks: Picks, arguments: Iterable[str]) -> list[str]:
    """How pytest is called."""
    markers = " or ".join(NOT_HERE.split())
    names = " and ".join(f"not {name}" for name in _LEFT_OUT_OF_GUARDS)
    return [
        *(sys.executable, "-m", "pytest", "-n", "2", "-q", "-m", f"not ({markers})", "-k", names),
        *picks.run,
        *arguments,
    ]


def main() -> int:
    """Print the picked tests with the reasons, and run them. The exit status is pytest's."""
    parser = argparse.ArgumentParser(prog="make quick", description=__doc__)
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--files", nargs="*", default=[], help="the changed files, instead of asking git")
    parser.add_argument("--list", action="store_true", help="say what is picked, run nothing")
    parser.add_argument("arguments", nargs="*", help="behind --: what pytest is given")
    args = parser.parse_args()
    arguments = args.arguments
    changed = args.files or changed_files(args.base or None)
    missing = [name for name in args.files if not (REPOSITORY / name).exists()]
    if missing:
        raise SystemExit(f"quick: {missing[0]}: no such file in this checkout")
    picks = pick(changed, texts_of_tests())
    told = [f"{len(changed)} files are changed; picked:"]
    told += [f"  {test}: {why}" for test, why in picks.run.items()]
    told += [f"left out: {line}" for line in picks.left_out]
    told.append(f"left out: tests marked {NOT_HERE}; `make test` runs them")
    sys.stdout.write("\n".join(told) + "\n")
    sys.stdout.flush()
    return (
        0 if args.list else subprocess.run(command(picks, arguments), cwd=REPOSITORY, check=False).returncode
    )


if __name__ == "__main__":
    sys.exit(main())
