"""Whether coach may change anything here, and why not: asked once, told in one line.

Root's slip reaches everybody's jobs, so root only looks unless it was said otherwise. Every front end and
workflow asks here, so that the reason is the same words on the screen and on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from coach.config import Settings, Switch
from coach.model.errors import UserError

AS_ROOT_VARIABLE = "COACH_AS_ROOT"
ROOT_REASON = "you are root"
_ROOT_HINT = f"--as-root or {AS_ROOT_VARIABLE}=1 allows it; an ordinary user needs neither"
_KEY = "readonly"


def held_back(settings: Settings, env: Mapping[str, str], uid: int | None = None) -> Settings:
    """The settings, read-only when root has not said that it is meant. `uid` is the effective user; None:
    this process's."""
    is_root = (os.geteuid() if uid is None else uid) == 0
    if not is_root or settings.is_readonly or env.get(AS_ROOT_VARIABLE) == "1":
        return settings
    origins = MappingProxyType({**settings.origins, _KEY: ROOT_REASON})
    return replace(settings, is_readonly=True, origins=origins)


def is_held_back(settings: Settings) -> bool:
    """Whether it is read-only because of who started it, and not because somebody wanted it so."""
    return settings.is_readonly and settings.origins.get(_KEY) == ROOT_REASON


def why_readonly(settings: Settings) -> tuple[str, str] | None:
    """Why nothing may be changed, and what allows it; None when it may be."""
    if not settings.is_readonly:
        return None
    if is_held_back(settings):
        return ROOT_REASON, _ROOT_HINT
    lock = settings.lock_of(_KEY)
    if lock is not None:
        return lock.words, "ask the site"
    return f"{_KEY} = true in {settings.origins.get(_KEY, 'config.toml')}", f"set {_KEY} = false there"


def refuse_if_readonly(settings: Settings, what: str, *switches: Switch) -> None:
    """Raise UserError when nothing may be changed, or when the site has switched one of these off. `what` is
    what coach will not do: "launches nothing"."""
    why = why_readonly(settings)
    if why is not None:
        reason, hint = why
        raise UserError(f"coach is read-only and {what}: {reason}", hint)
    for switch in switches:
        off = settings.why_off(switch)
        if off is not None:
            raise UserError(f"coach {what}: {off}", "ask the site")
