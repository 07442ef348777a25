"""Reads one config file key by key: all its values with their lines, and all its errors.

Reading goes on after an error, so `coach config --check` can list them all. Loading the settings stops at the
first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from coach.analysis.spelling.environment import expanded, read_environment
from coach.config.keys import (
    KEYS,
    SITE_ONLY_TABLES,
    Key,
    check_of,
    checked,
    is_lockable,
    text,
    unknown_key,
)
from coach.config.lines import KeyPath, key_lines, line_of
from coach.model import toml_text
from coach.model.errors import UserError
from coach.model.launching.site import Advice, Lock
from coach.trusted import read_text

_SYNTAX_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")


class FileKind(Enum):
    """The file's owner, which decides which keys it may have."""

    SITE = "site"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Said:
    """One value and its origin: `FILE:LINE` or an environment variable."""

    value: Any
    origin: str
    is_site: bool = False


@dataclass(slots=True)
class ConfigFile:
    """The values and errors of one file."""

    path: Path
    values: dict[str, Said] = field(default_factory=dict)
    """Dotted key → value. Each environment and each advice is a single value: `environments.NAME`,
    `advice.CODE`."""
    locks: dict[str, Lock] = field(default_factory=dict)
    problems: list[UserError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Correct entries of the file that have no effect here."""


def read_config(path: Path, owner: int | None) -> str | None:
    """The file's text; None if the file does not exist. Raises UserError if it cannot be read, or belongs to
    another user than `owner` and root: a config file names programs that run. None: to whomever the site
    trusts with its file."""
    try:
        return read_text(path, owner=owner, follows_links=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def absolute(text: str, place: str) -> Path:
    """The path from the root. Raises UserError if it begins with `~NAME` and there is no such user."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise UserError(f"{place} = {text!r}: {text.split('/')[0]} is no user's home here") from None


def parse_toml(path: Path, said: str) -> dict[str, Any]:
    """The file as nested tables. Raises UserError with the line if it is not TOML."""
    try:
        return toml_text.parse_toml(said)
    except ValueError as error:  # also for an integer of 5,000 digits, which raises no TOMLDecodeError
        words = str(error)
        place = _SYNTAX_PLACE.search(words)
        where = f"{path}:{place[1] if place else len(said.splitlines())}"
        raise UserError(f"{where}: not valid TOML: {_SYNTAX_PLACE.sub('', words)}") from None
    except RecursionError:
        raise UserError(f"{path}: not valid TOML: nested too deeply") from None


def read_file(path: Path, said: str, kind: FileKind, env: Mapping[str, str]) -> ConfigFile:
    """Read a file's text. `env` holds the variables for its paths."""
    try:
        table = parse_toml(path, said)
    except UserError as problem:
        return ConfigFile(path, problems=[problem])
    return _Reader(path, said, kind, env).read(table)


class _Reader:
    def __init__(self, path: Path, said: str, kind: FileKind, env: Mapping[str, str]) -> None:
        self._file = ConfigFile(path)
        self._lines = key_lines(said)
        self._is_site = kind is FileKind.SITE
        self._env = env

    def read(self, table: Mapping[str, Any]) -> ConfigFile:
        tables = {
            "rules": self._rules,
            "environments": self._environments,
            "advice": self._advice,
            "locked": self._locked,
        }
        for name, value in table.items():
            if name in SITE_ONLY_TABLES and not self._is_site:
                self._refuse_site_only(name)
            elif name in tables:
                if self._is_table(value, name):
                    tables[name](value)
            elif any(key.startswith(f"{name}.") for key in KEYS):
                if self._is_table(value, name):
                    self._keys(name, value)
            else:
                self._key((name,), value)
        return self._file

    def _keys(self, table: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if (table, name) != ("launch", "sbatch"):
                self._key((table, name), value)
            elif self._is_table(value, table, name):
                for option, said in value.items():
                    self._key((table, name, option), said)

    def _key(self, path: KeyPath, value: Any) -> None:
        name, place = ".".join(path), self._place(*path)
        key = KEYS.get(name)
        check = check_of(name)
        if check is None:
            self._file.problems.append(unknown_key(name, place, self._is_site))
        elif key is not None and key.is_site_only and not self._is_site:
            self._refuse_site_only(*path)
        else:
            try:
                said = checked(name, check, value, place)
                self._file.values[name] = Said(said, place, self._is_site)
                if key is not None and key.is_path:
                    self._place_paths(key, said, place)
            except UserError as problem:
                self._file.problems.append(problem)

    def _place_paths(self, key: Key, said: Any, place: str) -> None:
        """Replace variables in paths. In the site's file a variable may be unset here: that path is ignored,
        without an error."""
        if said == ():
            return  # an empty list stands: it takes the place of the site's
        kept, unset = [], []
        for one in said if isinstance(said, tuple) else (said,):
            try:
                kept.append(
                    absolute(expanded(one, self._env, f"{place}: {key.name}"), f"{place}: {key.name}")
                )
            except UserError as problem:
                if not self._is_site:
                    self._file.problems.append(UserError(str(problem)))
                unset.append(f"{problem}; it is ignored")
        if kept:  # other paths of the list remain, as alternatives
            self._file.values[key.name] = Said(
                tuple(kept) if isinstance(said, tuple) else kept[0], place, self._is_site
            )
        else:
            del self._file.values[key.name]
            self._file.notes += unset

    def _rules(self, table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            if name in ("mute", "files"):
                self._key(("rules", name), value)
            elif self._is_table(value, "rules", name):
                for threshold, number in value.items():
                    self._key(("rules", name, threshold), number)

    def _environments(self, table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            if not self._is_table(value, "environments", name):
                continue

            def place_of(key: str, name: str = name) -> str:
                return self._place("environments", name, key)

            environment, problems = read_environment(name, value, place_of)
            self._file.problems += problems
            self._file.values[f"environments.{name}"] = Said(
                environment, self._place("environments", name), self._is_site
            )

    def _advice(self, table: Mapping[str, Any]) -> None:
        for code, value in table.items():
            if not self._is_table(value, "advice", code):
                continue
            said: dict[str, str] = {}
            for name, words in value.items():
                place, key = self._place("advice", code, name), f"advice.{code}.{name}"
                if name not in ("text", "url"):
                    self._file.problems.append(
                        UserError(
                            f"{place}: unknown key {key}",
                            f"known keys: advice.{code}.text, advice.{code}.url",
                        )
                    )
                    continue
                try:
                    said[name] = checked(key, text, words, place)
                except UserError as problem:
                    self._file.problems.append(problem)
            place = self._place("advice", code)
            if "text" in said:
                self._file.values[f"advice.{code}"] = Said(
                    Advice(said["text"], said.get("url")), place, is_site=True
                )
            elif "text" not in value:
                self._file.problems.append(
                    UserError(
                        f"{place}: advice.{code}: text is missing", 'for example text = "ask the help desk"'
                    )
                )

    def _locked(self, table: Mapping[str, Any]) -> None:
        for path, reason in _leaves(table):
            name = ".".join(path)
            place = self._place("locked", *path)
            try:
                words = checked(f"locked.{name}", text, reason, place)
            except UserError as problem:
                problem.hint = 'the reason, for people: "launch.partition" = "the workshop has this one"'
                self._file.problems.append(problem)
                continue
            if not is_lockable(name):
                self._file.problems.append(unknown_key(name, f"{place}: locked", is_site=True))
            else:
                self._file.locks[name] = Lock(words, place)

    def _is_table(self, value: Any, *path: str) -> bool:
        if isinstance(value, dict):
            return True
        name = ".".join(path)
        self._file.problems.append(
            UserError(f"{self._place(*path)}: {name} = {toml_text.quoted(value)}: expected a table")
        )
        return False

    def _refuse_site_only(self, *path: str) -> None:
        problem = UserError(
            f"{self._place(*path)}: {'.'.join(path)}: only the site's file may set this",
            "leave it out, or ask the site",
        )
        self._file.problems.append(problem)

    def _place(self, *path: str) -> str:
        line = line_of(self._lines, path)
        return str(self._file.path) if line is None else f"{self._file.path}:{line}"


def _leaves(table: Mapping[str, Any], around: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Values with their paths: `launch.partition = "…"` and `"launch.partition" = "…"` mean the same key."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*around, name))
        else:
            yield (*around, name), value
