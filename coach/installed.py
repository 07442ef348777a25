"""Where coach's own files lie, their commit, and the command that starts coach again, for both an installed
package and `coach.pyz`, which is coach in one file.

The one file brings its own importer (single/one_file.py). Paths inside it work only with their own methods,
such as `read_bytes` and `open`; other programs cannot see them. Code that passes a file of coach to another
program must therefore make a code snapshot first.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import coach
from coach.trusted import read_text

_FILE = Path(str(coach.__file__))
_PACKAGE = _FILE.resolve().parent
_ONE_FILE = _FILE.parents[1] if _FILE.parents[1].is_file() else None
"""Looked up once: recipes ask for their place hundreds of times, and each look is five questions to a file
server."""

COMMIT_FILE = "commit.txt"
"""A file beside the package's modules with the commit that coach was built from. A checkout has none."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH = re.compile(r"ref: (refs(?:/[\w+@-][\w.+@-]*)+)")
_SHORT = 7


def package() -> Path:
    """The folder with coach's own modules."""
    if _ONE_FILE is None:
        return _PACKAGE
    from importlib.resources import files  # `coach --version` need not wait for this import

    found = files(coach)
    return found if isinstance(found, Path) else Path(str(found))


def one_file() -> Path | None:
    """The file that this coach was started from; None if coach is installed as a package."""
    return _ONE_FILE


def start_words(module: str = "coach") -> list[str]:
    """The words of a command that starts a module of this coach. Its arguments follow them."""
    file = one_file()
    place = [str(file)] if file is not None else []
    return [sys.executable, *place, "-m", module]


def version() -> str:
    """The version for people: `0.1.0 (abc1234)`, or `0.1.0` if the commit is unknown."""
    found = commit()
    return f"{coach.__version__} ({found[:_SHORT]})" if found else coach.__version__


def commit() -> str | None:
    """The commit of this coach: the one checked out, else the one it was built from."""
    own = package()
    return commit_of_checkout(own.parent) or _first_match(_COMMIT, own / COMMIT_FILE)


def commit_of_checkout(folder: Path) -> str | None:
    """The commit checked out in a folder. It is read from files, because starting git takes longer than
    `coach --version` may. Uncommitted changes are not detected."""
    git = folder / ".git"
    linked = _line(git) if git.is_file() else None  # in a linked work tree it is a file
    if linked is not None:
        git = folder / linked.removeprefix("gitdir: ")
    head = _line(git / "HEAD")
    branch = _BRANCH.fullmatch(head or "")
    if branch is None:
        return head if _COMMIT.fullmatch(head or "") else None
    shared = git / (_line(git / "commondir") or "")
    return _first_match(_COMMIT, shared / branch[1]) or _packed(shared / "packed-refs", branch[1])


def _packed(file: Path, branch: str) -> str | None:
    """The commit of a branch in git's file of packed references."""
    lines = (line.partition(" ") for line in _text(file).splitlines())
    return next((name for name, _, ref in lines if ref == branch and _COMMIT.fullmatch(name)), None)


def _first_match(pattern: re.Pattern[str], file: Path) -> str | None:
    line = _line(file)
    return line if line is not None and pattern.fullmatch(line) else None


def _line(file: Path) -> str | None:
    """The first line of a file; None if it has none."""
    return next(iter(_text(file).splitlines()), None)


def _text(file: Path) -> str:
    """A file's text; empty if it cannot be read."""
    try:
        return read_text(file, owner=None, follows_links=True)
    except OSError:
        return ""
