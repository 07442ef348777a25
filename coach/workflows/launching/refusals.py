"""After a refused submission, list the values that Slurm offers; after an accepted launch, remember its
answers.

It stands between the pure parser of Slurm's messages and the front ends, because both front ends look at the
cluster in the same way. A site that demands a field of one launch demands it of every launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.config import Settings
from coach.config.keys import KEYS, LAUNCH_FIELDS
from coach.config.remembered import FILE_NAME, can_be_remembered, read_remembered, remembered_text
from coach.launch.batch_file import faulty_line
from coach.launch.refusal import Refused, explain, fields_in_question, option_of
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from coach.model.toml_schema import checked
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.slurm.allowed_choices import read_allowed

ASKED_FILE = "asked.json"
"""File beside the config: cluster → fields that its Slurm asked for and that no accepted launch has set."""

REMEMBERED = ("account", "qos", "partition", "reservation", "gpu_type", "gpu_request")
"""Fields that a site demands of every launch. Sizes and times belong to one launch and are not remembered."""


def explained(refused: Refused, plan: Plan, io: Io) -> Refused:
    """The refusal with the line of the batch file that it is about; or with the field to set, and the values
    that Slurm offers for it."""
    line = faulty_line(plan.request.own, " ".join(refused.lines))
    if line is not None:
        return Refused(refused.lines, hint=line)
    fields = fields_in_question(refused.lines, plan)
    field = next((name for name in fields if name not in plan.locked), None)
    allowed = read_allowed(io, field, user_name()) if field is not None else ()
    return explain(refused.lines, plan, fields, {field: allowed} if field and allowed else {})


def keep_question(refused: Refused, settings: Settings) -> None:
    """Keep the fields that the site asked for until a launch is accepted. If the file cannot be written, the
    answer will not be remembered."""
    asked = {refused.field, *(name for choice in refused.choices for name in choice.changes)}
    if kept := [name for name in REMEMBERED if name in asked]:
        with contextlib.suppress(OSError, runs.RunFileError):
            settings.config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = _asked(settings)
            runs.write_json(_file(settings), {**before, settings.cluster: [*_here(before, settings), *kept]})


def remember_answers(plan: Plan, settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """After an accepted launch, keep its values of the fields that the site had asked for. Returns the
    settings with them, and lines to show.

    An answer that cannot be written is no error: the job is already in the queue.
    """
    questions = _asked(settings)
    asked = _here(questions, settings)
    if plan.backend != "slurm" or not asked:
        return settings, ()
    told = []
    try:
        for name in REMEMBERED:
            value = getattr(plan.request, name)
            if name in asked and value is not None and name not in plan.request.defaulted:
                settings = _kept(settings, name, value)
                told.append(f"{option_of(name)}={value or 'none'}")
        rest = {cluster: names for cluster, names in questions.items() if cluster != settings.cluster}
        runs.write_json(_file(settings), rest)
    except (UserError, OSError, runs.RunFileError) as error:
        return settings, (f"not remembered for the next launch: {error}",)
    return settings, ((f"remembered for {settings.cluster}: {' '.join(told)}",) if told else ())


def _kept(settings: Settings, name: str, value: str) -> Settings:
    if value:
        return remember(settings, settings.cluster, f"launch.{name}", value)
    _rewrite(settings, lambda answers: answers.get(settings.cluster, {}).pop(f"launch.{name}", None))
    nothing: dict[str, Any] = {name: None}
    return replace(settings, launch=replace(settings.launch, **nothing))


def _file(settings: Settings) -> Path:
    return settings.config_dir / ASKED_FILE


def _asked(settings: Settings) -> dict[str, Any]:
    """Cluster → fields. A missing or damaged file counts as empty."""
    return runs.read_json_if_any(_file(settings))


def _here(asked: Mapping[str, Any], settings: Settings) -> list[str]:
    names = asked.get(settings.cluster)
    return [name for name in names if name in REMEMBERED] if isinstance(names, list) else []


# The file of remembered answers.

_Answers = dict[str, dict[str, Any]]
_VARIABLE = "environment variable"


def remember(settings: Settings, cluster: str, key: str, value: str | int) -> Settings:
    """Write the answer down, and return the settings with it. Raises UserError when the file cannot be
    written.

    `cluster` is `settings.cluster`, `key` dotted: `launch.account`. A key that the site locked is not
    written: the site's value counts.
    """
    if settings.lock_of(key) is not None:
        return settings
    if not can_be_remembered(key):
        raise UserError(
            f"{key} cannot be remembered",
            f"known keys: {', '.join(filter(can_be_remembered, LAUNCH_FIELDS))}",
        )
    said = checked(key, KEYS[key].kind, value, "remembered")

    def add(answers: _Answers) -> None:
        answers.setdefault(cluster, {})[key] = said

    _rewrite(settings, add)
    return _with_answer(settings, key, said) if cluster == settings.cluster else settings


def _rewrite(settings: Settings, change: Callable[[_Answers], object]) -> None:
    """Read, change, replace. When two coaches write at once, one answer may be lost and is asked again; the
    file is never damaged."""
    file = settings.config_dir / FILE_NAME
    found, _ = read_remembered(file)
    before = {cluster: {key: said.value for key, said in values.items()} for cluster, values in found.items()}
    after = {cluster: dict(values) for cluster, values in before.items()}
    change(after)
    if after == before:
        return
    try:
        settings.config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        runs.write_atomic(file, remembered_text(after))
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None


def _with_answer(settings: Settings, key: str, value: Any) -> Settings:
    """Add the answer, unless an environment variable sets the key: the variable takes precedence."""
    if settings.origins.get(key, "").startswith(_VARIABLE):
        return settings
    changed: Mapping[str, Any] = {LAUNCH_FIELDS[key]: value}
    origins = {**settings.origins, key: str(settings.config_dir / FILE_NAME)}
    return replace(settings, launch=replace(settings.launch, **changed), origins=MappingProxyType(origins))
