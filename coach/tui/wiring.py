"""Opens the data sources of the app: a live cluster, this machine, or a recording."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coach.config import DEFAULT_THEME, NoticeSettings, Settings, Switch
from coach.late import late
from coach.sources.machine import malloc, terminal, user
from coach.sources.rpc_budget import RpcBudget
from coach.sources.slurm.conf_file import cluster_name
from coach.tui.keys import KeysInForce, keys_in_force
from coach.tui.live_ports import Ports, Reach
from coach.tui.mode import Mode
from coach.tui.ports import Session
from coach.workflows.backend import resolve_backend
from coach.workflows.readonly import is_held_back, why_readonly
from coach.workflows.watching.live_session import live_session
from coach.workflows.watching.table_views import ViewStore

if TYPE_CHECKING:
    from coach.workflows.watching import recording, story
    from coach.workflows.watching.story import Story
else:
    recording, story = late("coach.workflows.watching", "recording", "story")

_OFFERED = "notices-offered"
_STARTED = "first-start"
Standing = tuple[Mode, str | None, Mapping[Switch, str]]
"""The mode, the reason if nothing may be changed, and the functions that the site has switched off, with its
reasons."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The data and settings that the app is opened with."""

    session: Session
    ports: Ports
    mode: Mode
    user: str
    place: str
    backend: str
    standing: Callable[[], Standing] | None = None
    """Reads the standing from the settings in force; None if the mode cannot change."""
    views: ViewStore | None = None
    """Where the views of the tables are saved; None if they are not saved."""
    keys: KeysInForce = field(default_factory=KeysInForce)
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    offered: Path | None = None
    """The file that records that notices were offered; None: coach never offers them."""
    theme: str = DEFAULT_THEME
    is_ascii: bool = False
    """True if the terminal shows only ASCII."""
    story: Story | None = None
    """The captions of the demo."""
    first_start: Path | None = None
    """The file that records that coach was opened before; None: it is not checked."""
    settings: Settings | None = None
    """The settings that coach was opened with; None if the first start looks for nothing."""


def open_live(settings: Settings, backend: str, is_readonly: bool) -> Opening:
    """Open the cluster, or this machine."""
    keys = keys_in_force(settings)
    malloc.bound_arenas()
    env = dict(os.environ)
    resolved = resolve_backend(backend, env)
    name = cluster_name(env) if resolved == "slurm" else socket.gethostname()
    budget = RpcBudget()
    reach = Reach(settings, env, budget)
    # The session's automatic actions are also off in read-only mode, even after the config is read again.
    of_session = replace(settings, is_readonly=True) if is_readonly else settings
    read_as = {**env, "COACH_READONLY": "1"} if is_readonly else env
    session = live_session(of_session, resolved, read_as, reach.use, budget)
    reach.spare = session.spared
    return Opening(
        session,
        Ports(reach, resolved, resolved),
        _standing(settings, is_readonly)[0],
        user.user_name(),
        f"{resolved} · {name}" if name else resolved,
        resolved,
        lambda: _standing(reach.settings, is_readonly),
        ViewStore(settings.cache_dir, settings.config_dir),
        keys,
        settings.notices,
        settings.cache_dir / _OFFERED,
        settings.theme,
        _is_ascii(settings),
        first_start=settings.cache_dir / _STARTED,
        settings=settings,
    )


def _standing(settings: Settings, is_readonly: bool) -> Standing:
    off = {switch: words for switch in Switch if (words := settings.why_off(switch)) is not None}
    if is_held_back(settings):
        return Mode.ROOT, None, off
    if is_readonly:
        return Mode.READONLY, None, off
    why = why_readonly(settings)
    return (Mode.LIVE, None, off) if why is None else (Mode.READONLY, f"coach is read-only: {why[0]}", off)


def open_recorded(settings: Settings, file: Path, mode: Mode) -> Opening:
    """Open a recording. Raises UserError if the file is not a recording."""
    keys = keys_in_force(settings)
    header = recording.header_of(file)
    session, told = story.open_story(file, settings)
    return Opening(
        session,
        Ports(Reach(settings, dict(os.environ)), header.backend, "auto"),
        mode,
        header.user,
        header.backend,
        header.backend,
        keys=keys,
        theme=settings.theme,
        story=told if mode is Mode.DEMO else None,
        is_ascii=_is_ascii(settings),
    )


def _is_ascii(settings: Settings) -> bool:
    """True if the screens use only ASCII: by the settings, else by the locale."""
    if settings.is_ascii is not None:
        return settings.is_ascii
    return terminal.locale_encoding(terminal.started_environment(os.environ)) != "UTF-8"


def demo_recording_path() -> Path:
    """The recording that comes with coach."""
    found: Path = recording.demo_recording()
    return found
