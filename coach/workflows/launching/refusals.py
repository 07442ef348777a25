"""After a refused submission: what Slurm says there is to choose from; after its answer was taken: remember it.

Between the pure reading of Slurm's words and the front ends: both need the same look at the cluster, and what a site demands once it
demands of every launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.config import Settings
from coach.launch.refusal import Refused, explain, fields_in_question, option_of
from coach.model.errors import UserError
from coach.model.launching.launch import Plan
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.slurm.allowed_choices import read_allowed
from coach.workflows.launching.remembered_answers import forget, remember

ASKED_FILE = "asked.json"
"""Beside the config: cluster → fields that its Slurm has asked for and no launch has answered yet."""

REMEMBERED = ("account", "qos", "partition", "reservation", "gpu_type", "gpu_request")
"""What a site demands of every launch. Sizes and times belong to one launch and are not remembered."""


def explained(refused: Refused, plan: Plan, io: Io) -> Refused:
    """The refusal with the field to set, and what Slurm says there is to choose from."""
    fields = fields_in_question(refused.lines, plan)
    field = next((name for name in fields if name not in plan.locked), None)
    allowed = read_allowed(io, field, user_name()) if field is not None else ()
    return explain(refused.lines, plan, fields, {field: allowed} if field and allowed else {})


def keep_question(refused: Refused, settings: Settings) -> None:
    """Keep what the site has asked for until a launch is taken. Where that cannot be written, the answer is not remembered."""
    asked = {refused.field, *(name for choice in refused.choices for name in choice.changes)}
    if kept := [name for name in REMEMBERED if name in asked]:
        with contextlib.suppress(OSError, runs.RunFileError):
            settings.config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = _asked(settings)
            runs.write_json(_file(settings), {**before, settings.cluster: [*_here(before, settings), *kept]})


def remember_answers(plan: Plan, settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """After a launch was taken: keep what was said in it of what the site had asked for. The settings with it, and a line to tell.

    The job is in the queue: an answer that cannot be written is no reason to fail.
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
    forget(settings, settings.cluster, f"launch.{name}")
    nothing: dict[str, Any] = {name: None}
    return replace(settings, launch=replace(settings.launch, **nothing))


def _file(settings: Settings) -> Path:
    return settings.config_dir / ASKED_FILE


def _asked(settings: Settings) -> dict[str, Any]:
    """Cluster → fields. A file that is missing or spoilt asks nothing."""
    try:
        return dict(runs.read_json(_file(settings)))
    except runs.RunFileError:
        return {}


def _here(asked: Mapping[str, Any], settings: Settings) -> list[str]:
    names = asked.get(settings.cluster)
    return [name for name in names if name in REMEMBERED] if isinstance(names, list) else []
