"""Decide whether coach may change anything here, and why not, in one line.

A slip of root's affects everybody's jobs, so root is read-only unless `--as-root` is given. Every front end
and workflow asks this module, so screen and command line give the same reason.
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
    """The settings, read-only for root without `--as-root`. `uid` is the effective user; None: this
    process's."""
    is_root = (os.geteuid() if uid is None else uid) == 0
    if not is_root or settings.is_readonly or env.get(AS_ROOT_VARIABLE) == "1":
        return settings
    origins = MappingProxyType({**settings.origins, _KEY: ROOT_REASON})
    return replace(settings, is_readonly=True, origins=origins)


def is_held_back(settings: Settings) -> bool:
    """True if coach is read-only because root started it, not because of a setting."""
    return settings.is_readonly and settings.origins.get(_KEY) == ROOT_REASON


def why_readonly(settings: Settings) -> tuple[str, str] | None:
    """Why nothing may be changed, and how to allow it; None if changes are allowed."""
    if not settings.is_readonly:
        return None
    if is_held_back(settings):
        return ROOT_REASON, _ROOT_HINT
    lock = settings.lock_of(_KEY)
    if lock is not None:
        return lock.words, "ask the site"
    return f"{_KEY} = true in {settings.origins.get(_KEY, 'config.toml')}", f"set {_KEY} = false there"


def refuse_if_readonly(settings: Settings, what: str, *switches: Switch) -> None:
    """Raise UserError if nothing may be changed, or if the site has switched one of these off. `what`
    completes the message: "launches nothing"."""
    why = why_readonly(settings)
    if why is not None:
        reason, hint = why
        raise UserError(f"coach is read-only and {what}: {reason}", hint)
    for switch in switches:
        off = settings.why_off(switch)
        if off is not None:
            raise UserError(f"coach {what}: {off}", "ask the site")
