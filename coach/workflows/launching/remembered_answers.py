"""Keep what a launch was answered with, so that the next one need not be asked.

A site that wants an account, a reservation or a typed GPU says so once, by refusing; the answer that it took belongs to that cluster
and to this user, and can be taken back with `coach config --forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.config import Settings
from coach.config.keys import KEYS, LAUNCH_FIELDS, checked
from coach.config.remembered import FILE_NAME, can_be_remembered, read_remembered, remembered_text
from coach.model.errors import UserError

_Answers = dict[str, dict[str, Any]]
_VARIABLE = "environment variable"


def remember(settings: Settings, cluster: str, key: str, value: str | int) -> Settings:
    """Write the answer down, and return the settings with it. Raises UserError when the file cannot be written.

    `cluster` is `settings.cluster`, `key` dotted: `launch.account`. A key that the site locked is not written: the site's value counts.
    """
    if settings.lock_of(key) is not None:
        return settings
    if not can_be_remembered(key):
        raise UserError(
            f"{key} cannot be remembered",
            f"known keys: {', '.join(filter(can_be_remembered, LAUNCH_FIELDS))}",
        )
    said = checked(key, KEYS[key].check, value, "remembered")

    def add(answers: _Answers) -> None:
        answers.setdefault(cluster, {})[key] = said

    _rewrite(settings, add)
    return _with_answer(settings, key, said) if cluster == settings.cluster else settings


def forget(settings: Settings, cluster: str, key: str | None = None) -> tuple[str, ...]:
    """Take back one answer, or all of a cluster. Returns the keys that were forgotten; the next start goes without them."""
    forgotten: list[str] = []

    def remove(answers: _Answers) -> None:
        values = answers.get(cluster, {})
        forgotten.extend(name for name in values if key in (None, name))
        for name in forgotten:
            del values[name]

    _rewrite(settings, remove)
    return tuple(forgotten)


def _rewrite(settings: Settings, change: Callable[[_Answers], None]) -> None:
    """Read, change, replace. Two coaches at once may lose one of two answers, never the file; the lost one is asked again."""
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
    """A variable of the environment stands above what was remembered."""
    if settings.origins.get(key, "").startswith(_VARIABLE):
        return settings
    changed: Mapping[str, Any] = {LAUNCH_FIELDS[key]: value}
    origins = {**settings.origins, key: str(settings.config_dir / FILE_NAME)}
    return replace(settings, launch=replace(settings.launch, **changed), origins=MappingProxyType(origins))
