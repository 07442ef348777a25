"""Finds all errors in one config file, including conflicts with the rules and with the other files.

The author of a site's file can check it before users start with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.analysis.spelling.environment import spelt_environment
from coach.config.file import ConfigFile, FileKind
from coach.config.keys import unknown_name
from coach.config.load import SITE_VARIABLE, USER_FILE, read_if_there, site_file_candidates
from coach.config.remembered import FILE_NAME as REMEMBERED
from coach.config.remembered import read_remembered
from coach.model.errors import UserError
from coach.rules.registry import rule_classes
from coach.rules.thresholds import check_codes, check_threshold
from coach.runs import default_config_dir

_PLACE = re.compile(r"(?P<file>.*?)(?::(?P<line>\d+))?: (?P<words>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, and the correction."""

    file: str
    line: int | None
    words: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class FileReport:
    """The result for one file."""

    path: Path
    whose: str
    """`site`, `user` or `remembered`."""
    num_keys: int
    num_locks: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def files_in_force(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The config files that exist and count for this user. The site's file is included even if it is named
    but missing."""
    candidates = site_file_candidates(env)
    site = [path for path in candidates if env.get(SITE_VARIABLE) or path.exists()][:1]
    config_dir = default_config_dir(env)
    return (*site, *(path for name in (USER_FILE, REMEMBERED) if (path := config_dir / name).exists()))


def check_file(
    path: Path, env: Mapping[str, str], more: Callable[[ConfigFile], Iterable[UserError]] = lambda _: ()
) -> FileReport:
    """Check one file. `more` finds errors that this room cannot see. Raises UserError if the file does not
    exist."""
    path = path.absolute()
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if path.name == REMEMBERED:
        answers, problems = read_remembered(path)
        told = tuple(_problem(UserError(words)) for words in problems)
        return FileReport(path, "remembered", sum(map(len, answers.values())), 0, told, ())
    kind = (
        FileKind.USER if path.name == USER_FILE and path not in site_file_candidates(env) else FileKind.SITE
    )
    found = read_if_there(path, kind, env) or ConfigFile(path)
    wrong = [*found.problems, *_rule_problems(found), *_environment_problems(found, kind, env), *more(found)]
    return FileReport(
        path,
        kind.value,
        len(found.values),
        len(found.locks),
        tuple(map(_problem, wrong)),
        tuple(found.notes),
    )


def _rule_problems(found: ConfigFile) -> Iterator[UserError]:
    """Errors for rules and thresholds that do not exist."""
    rules = {rule.code: rule for rule in rule_classes()}
    for key, said in found.values.items():
        table, _, rest = key.partition(".")
        code, _, name = rest.partition(".")
        if table not in ("rules", "advice") or key == "rules.files":
            continue
        codes = sorted(said.value) if key == "rules.mute" else [code]
        for one in codes:
            try:
                check_codes([one], rules, key if key == "rules.mute" else f"{table}.{one}", said.origin)
                if name:
                    check_threshold(rules[one], name, said.value, said.origin)
            except UserError as problem:
                yield problem


def _environment_problems(found: ConfigFile, kind: FileKind, env: Mapping[str, str]) -> Iterator[UserError]:
    """Errors for an environment that is chosen but described in no file."""
    said = found.values.get("launch.environment")
    if said is None or spelt_environment(said.value) is not None:
        return
    known = [key.partition(".")[2] for key in found.values if key.startswith("environments.")]
    if kind is FileKind.USER:
        for path in site_file_candidates(env):
            site = read_if_there(path, FileKind.SITE, env)
            if site is not None:
                known += [key.partition(".")[2] for key in site.values if key.startswith("environments.")]
                break
    if said.value not in known:
        yield unknown_name(f"{said.origin}: launch.environment", said.value, known, "environments")


def _problem(error: UserError) -> Problem:
    match = _PLACE.fullmatch(error.message)
    if match is None:
        return Problem("", None, error.message, error.hint)
    line = match["line"]
    return Problem(match["file"], int(line) if line else None, match["words"], error.hint)
