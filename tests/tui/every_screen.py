"""The class of every screen, and values to open it with."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Any

from coach.analysis.explaining.words import Explained
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.job_action import Verb
from coach.tui import screens
from coach.tui.bases.screen import CoachScreen
from coach.tui.screen_specs import HOME
from tests.hostile import poisoned
from tests.tui.fake_session import CHILD_ID, RUN_ID, make_job, make_plan, nan_diagnosis


def screen_classes() -> list[type[CoachScreen]]:
    found = []
    for module in pkgutil.iter_modules(screens.__path__, f"{screens.__name__}."):
        for _, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(cls, CoachScreen) and cls.__module__ == module.name:
                found.append(cls)
    return found


def arguments(cls: type[CoachScreen], text: str) -> dict[str, Any]:
    """The arguments of each screen, by the names of its parameters; add a new name here. A screen without
    `__init__` of its own needs none."""
    if "__init__" not in vars(cls):
        return {}
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "before": RUN_ID,
        "after": CHILD_ID,
        "job_id": "13",
        "past": poisoned(PastJob(make_job("13")), text),
        "group_id": "g",
        "code": f"{text}NUM001",
        "name": f"{text}node1",
        "target": RUN_ID,
        "targets": ("13",),
        "label": f"{text}vasp",
        "verb": Verb.CANCEL,
        "index": 0,
        "of": HOME,
        "crumbs": ("cluster", text),
        "first": (("recipes", "1-2", text, True), ("open", text, text, False)),
        "place": (f"/logs/{text}", 1),
        "plan": poisoned(make_plan(LaunchRequest("ddp")), text),
        "request": poisoned(LaunchRequest("ddp"), text),
        "title": text,
        "values": (Explained(text, text, text, text, text, "jobs"),),
        "finding": poisoned(nan_diagnosis().findings[0], text),
        "draft": poisoned(LaunchRequest("ddp"), text),
    }
    parameters = inspect.signature(cls.__init__).parameters.values()
    names = [
        each.name
        for each in parameters
        if each.name not in ("self", "context") and each.kind is not each.VAR_POSITIONAL
    ]
    return {name: values[name] for name in names}
