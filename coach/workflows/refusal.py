"""After a refused submission: what Slurm says there is to choose from; after its answer was taken: remember it.

Between the pure reading of Slurm's words and the front ends: both need the same look at the cluster, and what a site demands once it
demands of every launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.config import Settings
from coach.launch.refusal import Refused, explain, fields_in_question
from coach.model.errors import UserError
from coach.model.launch import Plan
from coach.sources.allowed import read_allowed
from coach.sources.io import Io
from coach.sources.user import user_name
from coach.workflows.remember import forget, remember

REMEMBERED = ("account", "qos", "partition", "reservation", "gpu_type", "gpu_request")
"""What a site demands of every launch. Sizes and times belong to one launch and are not remembered."""


def explained(refused: Refused, plan: Plan, io: Io) -> Refused:
    """The refusal with the field to set, and what Slurm says there is to choose from."""
    fields = fields_in_question(refused.lines, plan)
    field = next((name for name in fields if name not in plan.locked), None)
    allowed = read_allowed(io, field, user_name()) if field is not None else ()
    return explain(refused.lines, plan, fields, {field: allowed} if field and allowed else {})


def remember_answers(answers: Mapping[str, str], settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Keep what a refusal had asked for, now that it was taken: the settings with it, and a line to tell.

    The job is in the queue: an answer that cannot be written is no reason to fail.
    """
    kept = {name: answers[name] for name in REMEMBERED if name in answers}
    told = []
    for name, value in kept.items():
        try:
            settings = _kept(settings, name, value)
        except UserError as error:
            return settings, (f"not remembered for the next launch: {error.message}",)
        told.append(f"{name} {value or 'none'}")
    return settings, ((f"remembered for {settings.cluster}: {', '.join(told)}",) if told else ())


def _kept(settings: Settings, name: str, value: str) -> Settings:
    if value:
        return remember(settings, settings.cluster, f"launch.{name}", value)
    forget(settings, settings.cluster, f"launch.{name}")
    nothing: dict[str, Any] = {name: None}
    return replace(settings, launch=replace(settings.launch, **nothing))
