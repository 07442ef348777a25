"""`make new-rule CODE=ENV NAME=my_cause`, `new-recipe`, `new-screen`, `new-command` (NAME=…): make a working
part with its tests, in its right place. A code without a number gets the next free one of its family.

The new part passes the checks and its own tests. The last printed lines list the next steps for a person. Of
the existing files only the lists of all parts change, by one line each. Bad input changes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SKELETONS = Path(__file__).with_name("skeletons")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_CODE = re.compile(r"([A-Z]{3})(\d{3})?")
_OF_PARENT = ("requires", "ranks", "uneven_by_design", "max_restarts")
"""What a recipe has from its trainer: a recipe of the same trainer needs it too."""


class Refused(Exception):
    """Bad input, in one line."""


class Change:
    """New files, and lines in lists: checked first, then written all together."""

    def __init__(self) -> None:
        self._texts: dict[Path, str] = {}
        self.made: list[str] = []

    def file(self, path: str, skeleton: str, words: Mapping[str, str]) -> None:
        """A new file of a skeleton; `@word@` in it is replaced."""
        if (REPOSITORY / path).exists():
            raise Refused(f"{path}: is there already; take another name")
        text = (SKELETONS / skeleton).read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        self._texts[REPOSITORY / path] = text
        self.made.append(path)

    def line(self, path: str, before: str, new: str) -> None:
        """A line in a list, above the line that begins with `before`."""
        text = self._texts.get(REPOSITORY / path) or (REPOSITORY / path).read_text(encoding="utf-8")
        if text.count(f"\n{before}") != 1:
            raise Refused(f"{path}: no single line begins with {before.strip()!r}: adapt tests/house/new.py")
        self._texts[REPOSITORY / path] = text.replace(f"\n{before}", f"\n{new}\n{before}")
        self.made.append(f"{path} (one line)")

    def entry(self, path: str, table: str, key: str, new: str) -> None:
        """A line in a dictionary of strings that begins with `table`: above the first key that follows it in
        the alphabet. Where a neighbour stands out of order, it is the nearest place above it."""
        text = self._texts.get(REPOSITORY / path) or (REPOSITORY / path).read_text(encoding="utf-8")
        before, found, body = text.partition(f"\n{table}")
        keys = re.findall(r'^ +"(\w+)":', body.partition("\n}")[0].partition("\n)")[0], re.MULTILINE)
        after = next((each for each in keys if each > key), None)
        if not found or after is None:
            raise Refused(f"{path}: no place for {key!r} below {table!r}: adapt tests/house/new.py")
        place = re.compile(rf'^ +"{after}":', re.MULTILINE)
        self._texts[REPOSITORY / path] = before + found + place.sub(rf"{new}\n\g<0>", body, count=1)
        self.made.append(f"{path} (one line)")

    def write(self) -> None:
        """Write it."""
        for path, text in self._texts.items():
            path.write_text(text, encoding="utf-8")


def new_rule(code: str, name: str) -> list[str]:
    """A rule that reads the job's own message and has no wording yet, because no log with the error is
    known."""
    match = _CODE.fullmatch(code)
    if match is None:
        raise Refused(f"{code!r}: a code is three capital letters, with or without three digits: CODE=ENV")
    of_family = sorted((REPOSITORY / "coach" / "rules").glob(f"*/{match[1].lower()}[0-9]*.py"))
    if not of_family:
        raise Refused(f"{code}: no family of rules has codes that begin with {match[1]}")
    register = (REPOSITORY / "coach" / "rules" / "causes.py").read_text(encoding="utf-8")
    free = _free(match[1], of_family, register)
    code = code if match[2] else free
    if any(path.stem.startswith(f"{code.lower()}_") for path in of_family):
        raise Refused(f"{code}: is a rule already: the next free code is {free}")
    if re.search(rf"\b{code}\b", register):
        raise Refused(f"{code}: was used before, and a code is never reused: the next free code is {free}")
    if re.search(rf'^ +"{name}":', register, re.MULTILINE):
        raise Refused(f"{name}: is a cause already; take another name")
    words = {"CODE": code, "name": name.replace("_", "-"), "cause": name, "Class": _class(name)}
    family = of_family[0].parent.name
    change = Change()
    change.file(f"coach/rules/{family}/{code.lower()}_{name}.py", "rule.txt", words)
    change.file(f"tests/rules/test_{code.lower()}.py", "test_rule.txt", words)
    causes = "coach/rules/causes.py"
    change.line(causes, '    end="COD002', f'    Code("{code}", status=Status.UNPROVEN),')
    sentence = f"The job says that it refuses to start: {name.replace('_', ' ')} ({code})."
    change.entry(causes, "_CAUSES:", name, f'        "{name}": "{sentence}",')
    change.write()
    return [
        *change.made,
        f"next: what logs say goes to coach/rules/wordings/{family}.toml, with seen or source",
        "next: a program that fails so goes to tests/recordings/failing_programs.py; run it by its name",
        f"next: `python -m tests.rules.proofs {code}` writes the proof that test_proofs.py asks for",
        f"next: in causes.py: {code} no longer UNPROVEN, its edges; a sentence for {name!r}",
        f"next: read its page by `coach explain {code}`",
    ]


def _free(prefix: str, of_family: list[Path], register: str) -> str:
    """The code above the highest of the family, the retired codes included."""
    used = [int(path.stem[3:6]) for path in of_family]
    used += [int(number) for number in re.findall(rf"\b{prefix}(\d{{3}})\b", register)]
    return f"{prefix}{max(used) + 1:03d}"


def new_recipe(_: str, name: str, parent: str = "") -> list[str]:
    """A recipe that launches its parent's trainer under a name of its own: DDP on two ranks by default."""
    parent = parent or "ddp"
    source = REPOSITORY / "recipes" / f"{parent}.toml"
    if not _NAME.fullmatch(parent) or not source.exists():
        raise Refused(f"FROM={parent}: recipes/ has no such recipe")
    of_parent = tomllib.loads(source.read_text(encoding="utf-8"))
    above = of_parent.get("parameters_of", "")
    if not above.endswith(".py"):
        raise Refused(f"FROM={parent}: its parameters are those of {above!r}: build on that one")
    change = Change()
    words = {
        "name": name,
        "Title": _title(name),
        "parent": parent,
        **{key: str(of_parent[key]) for key in ("trainer", "devices", "time", "gpu_hours")},
        "next": str(of_parent.get("next", parent)),
        "more": "".join(f"{key} = {json.dumps(of_parent[key])}\n" for key in _OF_PARENT if key in of_parent),
    }
    change.file(f"recipes/{name}.toml", "recipe.txt", words)
    change.file(f"recipes/{name}.md", "lesson.txt", words)
    change.write()
    return [
        *change.made,
        "its tests are there: tests/trainers/test_recipes_match.py reads every recipe",
        f"next: say what it changes of {parent} (FROM=RECIPE names another parent): [parameters.NAME] with a "
        "default, or a trainer of its own",
        f"next: try it by `coach launch {name} --backend local`, measure, then write expect and duration",
    ]


def new_screen(_: str, name: str) -> list[str]:
    """A screen with its renderer; the palette opens it."""
    change = Change()
    words = {
        "name": name,
        "title": name.replace("_", " "),
        "Class": _class(name),
    }
    change.file(f"coach/tui/screens/{name}.py", "screen.txt", words)
    change.file(f"coach/tui/render/{name}.py", "render.txt", words)
    change.file(f"tests/tui/test_{name}_screen.py", "test_screen.txt", words)
    title = f', title="{words["title"]}"' if "_" in name else ""
    line = f'    _spec("{name}", "{name}:{_class(name)}Screen", SHOWS, Follows.BEFORE{title}),'
    change.line("coach/tui/screen_specs.py", '    _spec("doctor",', line)
    change.line("coach/tui/palette.py", '        "cohort",', f'        "{name}",')
    change.write()
    return [
        *change.made,
        "next: a key that opens it goes to coach/tui/keys.py, its id to SCREEN_KEYS of "
        "coach/config/keys.py, and the way to it to `path` of tests/tui/test_app.py",
        "next: its lines are made in its renderer, of values alone",
        "next: `:` opens it, by _ABOUT_EVERYTHING of coach/tui/palette.py: strike it if it is of one job",
        "next: `python docs/make_reference.py` after a new key",
    ]


def new_command(_: str, name: str) -> list[str]:
    """A command that prints one list, as text and as JSON."""
    if len(name) > 10:
        raise Refused(f"{name!r}: `coach --help` has room for 10 letters")
    change = Change()
    words = {"name": name, "title": name.replace("_", " ")}
    change.file(f"coach/cli/{name}.py", "command.txt", words)
    change.file(f"tests/cli/test_{name}.py", "test_command.txt", words)
    change.file(f"tests/json_examples/{name}.json", "json_example.txt", words)
    summary = f'        "{name}": "show where coach keeps its runs ({name})",'
    change.line("coach/cli/__init__.py", '        "sample": "', summary)
    line = f'    "{name}": [[], ["--format", "json"]],'
    change.line("tests/test_hostile_text.py", '    "sample": [["--once"]],', line)
    line = f'    "{name}": "coach {name}",'
    change.line("docs/reference_pages/commands.py", '    "sample": "coach sample', line)
    change.write()
    _run("docs/make_reference.py")
    return [
        *change.made,
        "docs/reference (made anew)",
        f"next: its JSON in tests/json_examples/{name}.json, its example in docs/reference_pages/commands.py",
        "next: it stands under `set up`: move its line in COMMANDS_BY_TASK of coach/cli/__init__.py to the "
        "task that it serves, with a summary of its own",
        "next: what adds up or judges goes to coach/analysis, I/O in several steps to coach/workflows",
        "next: a line in tests/test_bad_input.py if it asks Slurm; its line in the docs",
    ]


def _class(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / program], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"{program}: {done.stderr.strip().splitlines()[-1]}")


PARTS: Mapping[str, Callable[..., list[str]]] = {
    "rule": new_rule,
    "recipe": new_recipe,
    "screen": new_screen,
    "command": new_command,
}


def main() -> int:
    """Exit status: 0 made, 2 with one line that names the mistake."""
    parser = argparse.ArgumentParser(prog="make new-…", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--code", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--from", dest="parent", default="", help="the recipe that a recipe builds on")
    args = parser.parse_args()
    try:
        if args.part == "rule" and not args.name:
            raise Refused("a rule has a code and the name of its cause: CODE=ENV NAME=my_cause")
        if not _NAME.fullmatch(args.name):
            raise Refused(f"{args.name!r}: a name is small letters, digits and _: NAME=my_{args.part}")
        if args.parent and args.part != "recipe":
            raise Refused(f"FROM={args.parent}: a recipe alone builds on another")
        more = [args.parent] if args.part == "recipe" else []
        said = PARTS[args.part](args.code, args.name, *more)
    except (Refused, OSError) as error:
        sys.stderr.write(f"new-{args.part}: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
