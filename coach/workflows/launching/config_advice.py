"""Show, as a diff, how a fix would change a config file whose keys coach guesses from their names.

Kept apart from the launch of a fix: a likely key is good enough for advice, but not for a run. Nothing is
written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from coach.launch import batch_file
from coach.launch.own_config import ConfigKey, OwnConfig, changed_text, diff_of, likely_keys, read_config
from coach.launch.own_program import config_of
from coach.launch.record import request_from
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Fix
from coach.model.launching.launch import OwnKind, OwnProgram, Scalar
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule
from coach.rules.engine import Engine

_CONTINUED = re.compile(r"\\\r?\n")


def advise(
    error: UserError,
    run: Run,
    findings: Iterable[Finding],
    seen: tuple[TargetSnapshot, History],
    rules: Iterable[Rule],
) -> UserError:
    """The refusal of a fix that no launch can carry out, with the diff of the config file that would.
    Unchanged if no key has a likely name. `findings` are those whose fix was requested."""
    request = request_from(run)
    lines: tuple[str, ...] = ()
    if request.own is not None:
        try:
            configs = tuple(_configs(request.own, request.set))
            lines = _lines(configs, run, findings, seen, rules)
        except UserError:
            return error  # its program or its config is gone, or has changed
    if not lines:
        return error
    return UserError(error.message, "nothing was written: these lines would do it", error.exit_status, lines)


def _configs(own: OwnProgram, said: Mapping[str, str | Scalar]) -> Iterator[OwnConfig]:
    """The config files of the command, or of each command of a batch file."""
    if own.kind is not OwnKind.BATCH:
        yield config_of(own, said)
        return
    text = batch_file.read(batch_file.file_of(own))
    for line in _CONTINUED.sub(" ", text).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a shell construct, not a plain command
        if len(words) > 1:
            yield read_config(words, (), Path(own.directory), own.parameters)


def _lines(
    configs: Sequence[OwnConfig],
    run: Run,
    findings: Iterable[Finding],
    seen: tuple[TargetSnapshot, History],
    rules: Iterable[Rule],
) -> tuple[str, ...]:
    """The first fix that changes a key of a config file; empty where there is none."""
    keys = {key.parameter.name: key for config in configs for key in config.keys}
    for config in configs:
        keys |= likely_keys(config, run.parameters)
    if not keys:
        return ()
    guessed = {name: key.parameter.default for name, key in keys.items()}
    parameters = MappingProxyType({"gradient_accumulation": 1, **guessed, **run.parameters})
    snapshot, history = seen
    launched = replace(snapshot, run=replace(run, parameters=parameters))
    asked = {(finding.rule, finding.subject) for finding in findings}
    typed = Engine(rules).diagnose(launched, history).findings
    fixes = (fix for each in typed if (each.rule, each.subject) in asked for fix in each.fixes)
    return next((_told(fix, keys) for fix in fixes if keys.keys() & fix.changes.keys()), ())


def _told(fix: Fix, keys: Mapping[str, ConfigKey]) -> tuple[str, ...]:
    """The fix's title, the diff of each file, and the changes that have no key."""
    lines = [fix.title]
    changed = [keys[name] for name in fix.changes if name in keys]
    for file in dict.fromkeys(key.file for key in changed):
        values = {key.value.path: fix.changes[key.parameter.name] for key in changed if key.file == file}
        lines += diff_of(file, changed_text(file, values))
    return (*lines, *(_unsaid(name, fix.changes[name]) for name in fix.changes if name not in keys))


def _unsaid(name: str, value: object) -> str:
    words = f"in the program: {name.replace('_', ' ')} {value}"
    return words + (", if it accumulates nothing yet" if name == "gradient_accumulation" else "")
