"""Writes docs/licences.md: each package that coach needs, with its extras, and the licence that it names.

    python docs/make_licences.py

It reads the metadata of the installed packages; a package that is not installed is listed as not read. Run it
where `make test-long` has installed everything.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("licences.md")
_NAME = re.compile(r"[\w.-]+")
_SHORT = 100
_UNREAD = "not read: not installed where this page was made"
_HEAD = """# Licences

Made by `docs/make_licences.py`, of what each installed package says of itself. coach is under the MIT licence
([`LICENSE`](../LICENSE)). None of these travels in its wheel; `coach.pyz` holds the packages of the core that
are pure Python, each with its licence.
"""


def needed() -> dict[str, list[str]]:
    """Package → the extras that ask for it; the core's come first."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = {}
    for extra, lines in {"core": project["dependencies"], **project["optional-dependencies"]}.items():
        for line in lines:
            match = _NAME.match(line)
            assert match is not None, line
            found.setdefault(match[0], []).append(extra)
    for package in through(project["dependencies"]):
        found.setdefault(package, []).append("core, through others")
    return found


def through(lines: list[str]) -> list[str]:
    """The installed packages that the core's packages need. Textual asks for one extra, markdown-it-py's,
    which finds links."""
    waiting, seen = list(lines), dict[str, str]()
    while waiting:
        match = _NAME.match(waiting.pop())
        assert match is not None
        key = match[0].lower().replace("_", "-")
        try:
            asked = [] if key in seen else metadata(key).get_all("Requires-Dist") or []
        except PackageNotFoundError:
            continue  # another system or another Python needs it
        seen.setdefault(key, match[0])
        waiting += [line for line in asked if "extra ==" not in line or "linkify" in line]
    own = {name[0].lower().replace("_", "-") for name in map(_NAME.match, lines) if name}
    return sorted(name for key, name in seen.items() if key not in own)


def licence_of(package: str) -> tuple[str, str]:
    """The version that was read, and the licence in a few words."""
    try:
        said = metadata(package)
    except PackageNotFoundError:
        return "–", _UNREAD
    lines = [line for line in said.get_all("Classifier") or () if "License ::" in line]
    classified = ", ".join(line.rpartition(" :: ")[2] for line in lines)
    told = said.get("License-Expression") or classified or (said.get("License") or "").partition("\n")[0]
    told = told.strip().replace("|", "\\|") or "it names none"
    return said["Version"], told if len(told) <= _SHORT else f"{told[:_SHORT]}…"


def page() -> str:
    """The text of the page."""
    rows = ["| package | needed by | version | licence |", "|---|---|---|---|"]
    for package, extras in needed().items():
        version, licence = licence_of(package)
        rows.append(f"| {package} | {', '.join(extras)} | {version} | {licence} |")
    return "\n".join([_HEAD, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
