"""Reads one config file key by key: all its values with their lines, and all its errors.

Reading goes on after an error, so `coach config --check` can list them all. Loading the settings stops at the
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from coach.analysis.spelling.environment import expanded, read_environment
from coach.config.keys import (
    KEYS,
    SITE_ONLY_TABLES,
    TEXT,
    Key,
    is_lockable,
    kind_of,
    unknown_key,
)
from coach.model.errors import UserError
from coach.model.launching.site import Advice, Lock
from coach.model.toml_schema import TABLE, Schema, TomlFile, fulfilling
from coach.model.toml_schema import Key as SchemaKey
from coach.trusted import read_text

_ADVICE: Schema = {
    "text": SchemaKey(
        fulfilling(TEXT, bool, 'text, for example "ask the help desk"'),
        "What the site adds to a finding.",
        is_needed=True,
    ),
    "url": SchemaKey(TEXT, "Where to read more."),
}


class FileKind(Enum):
    """The file's owner, which decides which keys it may have."""

    SITE = "site"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and its origin: `FILE:LINE` or an environment variable."""

    value: Any
    origin: str
    is_site: bool = False


@dataclass(slots=True)
class ConfigFile:
    """The values and errors of one file."""

    path: Path
    values: dict[str, Setting] = field(default_factory=dict)
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


def read_file(path: Path, text: str, kind: FileKind, env: Mapping[str, str]) -> ConfigFile:
    """Read a file's text. `env` holds the variables for its paths."""
    try:
        file = TomlFile(path, text)
    except UserError as problem:
        return ConfigFile(path, problems=[problem])
    return _Reader(file, kind, env).read(file.table)


class _Reader:
    def __init__(self, toml: TomlFile, kind: FileKind, env: Mapping[str, str]) -> None:
        self._file = ConfigFile(toml.path)
        self._toml = toml
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
                for option, each in value.items():
                    self._key((table, name, option), each)

    def _key(self, path: tuple[str, ...], value: Any) -> None:
        name, place = ".".join(path), self._place(*path)
        key = KEYS.get(name)
        kind = kind_of(name)
        if kind is None:
            self._file.problems.append(unknown_key(name, place, self._is_site))
        elif key is not None and key.is_site_only and not self._is_site:
            self._refuse_site_only(*path)
        else:
            try:
                found = self._toml.check(name, kind, value)
                self._file.values[name] = Setting(found, place, self._is_site)
                if key is not None and key.is_path:
                    self._place_paths(key, found, place)
            except UserError as problem:
                self._file.problems.append(problem)

    def _place_paths(self, key: Key, value: Any, place: str) -> None:
        """Replace variables in paths. In the site's file a variable may be unset here: that path is ignored,
        without an error."""
        if value == ():
            return  # an empty list stands: it takes the place of the site's
        kept, unset = [], []
        for one in value if isinstance(value, tuple) else (value,):
            try:
                kept.append(
                    absolute(expanded(one, self._env, f"{place}: {key.name}"), f"{place}: {key.name}")
                )
            except UserError as problem:
                if not self._is_site:
                    self._file.problems.append(UserError(str(problem)))
                unset.append(f"{problem}; it is ignored")
        if kept:  # other paths of the list remain, as alternatives
            self._file.values[key.name] = Setting(
                tuple(kept) if isinstance(value, tuple) else kept[0], place, self._is_site
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

            environment, problems = read_environment(self._toml, name, value)
            self._file.problems += problems
            self._file.values[f"environments.{name}"] = Setting(
                environment, self._place("environments", name), self._is_site
            )

    def _advice(self, table: Mapping[str, Any]) -> None:
        for code, value in table.items():
            if not self._is_table(value, "advice", code):
                continue
            where = f"advice.{code}"
            words, problems = self._toml.read(where, value, _ADVICE)
            self._file.problems += problems
            if "text" in words:
                advice = Advice(words["text"], words.get("url"))
                self._file.values[where] = Setting(advice, self._toml.at(where), is_site=True)

    def _locked(self, table: Mapping[str, Any]) -> None:
        for path, reason in _leaves(table):
            name = ".".join(path)
            place = self._place("locked", *path)
            try:
                words = self._toml.check(f"locked.{name}", TEXT, reason)
            except UserError as problem:
                problem.hint = 'the reason, for people: "launch.partition" = "the workshop has this one"'
                self._file.problems.append(problem)
                continue
            if not is_lockable(name):
                self._file.problems.append(unknown_key(name, f"{place}: locked", is_site=True))
            else:
                self._file.locks[name] = Lock(words, place)

    def _is_table(self, value: Any, *path: str) -> bool:
        try:
            self._toml.check(".".join(path), TABLE, value)
        except UserError as problem:
            self._file.problems.append(problem)
            return False
        return True

    def _refuse_site_only(self, *path: str) -> None:
        problem = UserError(
            f"{self._place(*path)}: {'.'.join(path)}: only the site's file may set this",
            "leave it out, or ask the site",
        )
        self._file.problems.append(problem)

    def _place(self, *path: str) -> str:
        return self._toml.at(".".join(path))


def _leaves(table: Mapping[str, Any], around: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values with their paths: `launch.partition = "…"` and `"launch.partition" = "…"` mean the same key."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*around, name))
        else:
            yield (*around, name), value
