"""Record a session, and open a recording as a session: the same sources, the same screens, another Io."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coach.config import DEFAULT_CLUSTER, Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import GpuCount, Node, is_final
from coach.model.snapshot import Snapshot, Watch
from coach.recorder import (
    Header,
    Names,
    RecordingIo,
    ReplayIo,
    anonymize,
    demo_path,
    open_recording,
)
from coach.sources.io import Io, SystemIo, scrubbed_environment
from coach.sources.machine.local_cluster import LocalClusterSource
from coach.sources.machine.this_machine import read_machine
from coach.sources.machine.user import user_name
from coach.sources.rpc_budget import RpcBudget
from coach.sources.runs.local_process import as_recorded
from coach.sources.slurm.configuration import RateLimitSource
from coach.workflows.judging.targets import SourceFactory, TargetKind, resolve_target
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.world import World, slurm_sources

REPLAY_INTERVAL_S = 1.0
"""Seconds. Reading a recording costs no controller anything: it is read as often as the screens are drawn."""
MAX_FOLLOWED_RUNS = 8


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of a recording."""

    num_entries: int
    num_bytes: int
    size_bytes: int
    followed: tuple[str, ...]


def demo_recording() -> Path:
    """The recording that comes with coach."""
    return demo_path()


def header_of(path: Path) -> Header:
    """The header of a recording: its site and user. Raises UserError if the file is not one."""
    return open_recording(path).header


def open_replay(
    path: Path, settings: Settings, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
) -> WatchSession:
    """A session that plays a recording. Raises UserError if the file is not one."""
    recording = open_recording(path)
    header = recording.header
    machine = _parse_machine(header.machine, path) if header.machine is not None else None

    def local_replay(io: Io, settings: Settings, user: str, watch: Watch) -> Mapping[str, SourceFactory]:
        def make() -> LocalClusterSource:
            return LocalClusterSource(
                io,
                settings.runs_root,
                user,
                REPLAY_INTERVAL_S,
                read_node=lambda: machine or Node("local", "unknown", None, (), None, None, None, None, ()),
                # Only the recorded files say which processes lived, and where.
                look=as_recorded,
            )

        return {"jobs": make}

    replayed = replace(
        settings,
        runs_root=Path(header.runs_root),
        cluster=DEFAULT_CLUSTER,
        jobs_interval_s=REPLAY_INTERVAL_S,
        nodes_interval_s=REPLAY_INTERVAL_S,
        is_readonly=True,
    )
    return WatchSession(
        replayed,
        World(
            header.backend,
            ReplayIo(recording, clock, speed),
            header.user,
            cluster_sources=slurm_sources if header.backend == "slurm" else local_replay,
            look=as_recorded,
            is_recorded=True,
        ),
    )


def record(
    file: Path,
    settings: Settings,
    backend: str,
    env: Mapping[str, str],
    *,
    run_ids: Sequence[str] = (),
    is_anonymized: bool = False,
    duration_s: float | None = None,
    wait: Callable[[float | None], object],
) -> Kept:
    """Record until `wait` returns; it gets the time after which it should. `run_ids` are runs as the user
    named them; without them, active runs are followed as they appear. Raises UserError if the file cannot be
    created or a run is unknown.
    """
    budget, user = RpcBudget(), user_name()
    system = SystemIo(
        scrubbed_environment(env), timeout_s=settings.slurm_timeout_s, before_command=budget.acquire
    )
    if backend == "slurm":
        list(RateLimitSource(system, budget.limit_by_site).poll())
    named = (_run_named(text, settings, system, backend, user) for text in run_ids)
    run_ids = tuple(dict.fromkeys(named))
    # If names are to be struck, the raw file is written first, under a hidden name.
    raw = file.with_name(f".{file.name}.{secrets.token_hex(4)}") if is_anonymized else file
    header = Header(
        time_s=system.now(),
        backend=backend,
        user=user,
        runs_root=str(settings.runs_root),
        machine=asdict(read_machine()) if backend == "local" else None,
        targets=run_ids,
    )
    io = _create(file, raw, system, header)
    names = _names_of(user, env)
    session = WatchSession(settings, World(backend, io, user), on_reading=names.add_reading)
    followed = _Followed(session, [*run_ids], takes_more=not run_ids)
    session.start(followed.add_active)
    try:
        wait(duration_s)
    finally:
        budget.close()
        session.stop()
        io.close()
        if is_anonymized:
            _strike(raw, file, names)
    return Kept(io.num_entries, io.num_bytes, file.stat().st_size, tuple(followed.targets))


def _run_named(text: str, settings: Settings, io: Io, backend: str, user: str) -> str:
    """The id of the run that the user named; its path if it lies outside the runs root. Raises UserError."""
    target = resolve_target(text, settings, io, backend, user)
    if target.kind is not TargetKind.RUN or target.path is None:
        raise UserError(f"{text}: not a run", "`coach runs` lists the runs")
    return target.path.name if target.path.parent == settings.runs_root else str(target.path)


def _names_of(user: str, env: Mapping[str, str]) -> Names:
    names = Names()
    names.users.add(user)
    names.add_path(env.get("HOME", ""))
    return names


def _create(file: Path, raw: Path, system: Io, header: Header) -> RecordingIo:
    """Begin to write `raw`, from which `file` is made at the end. Raises UserError."""
    try:
        if os.path.lexists(file):
            raise UserError(f"{file}: exists already", "choose another name, or remove it first")
        return RecordingIo(system, raw, header)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from None


class _Followed:
    """The targets that a session follows. With `takes_more`, active runs are added as they appear."""

    def __init__(self, session: WatchSession, targets: list[str], *, takes_more: bool) -> None:
        self.targets = targets
        self._session = session
        self._takes_more = takes_more
        self._watch()

    def add_active(self, snapshot: Snapshot) -> None:
        active = [run.run_id for run in snapshot.runs if not is_final(run.state)]
        fresh = [run_id for run_id in active if run_id not in self.targets]
        room = MAX_FOLLOWED_RUNS - len(self.targets)
        if self._takes_more and fresh and room > 0:
            self.targets.extend(fresh[:room])
            self._watch()

    def _watch(self) -> None:
        self._session.watch(Watch(targets=tuple(self.targets)))


def _strike(raw: Path, file: Path, names: Names) -> None:
    try:
        recording = open_recording(raw)
        if recording.header.machine is not None:
            names.hosts.add(str(recording.header.machine["name"]))
        anonymize(recording, names, file)
    finally:
        raw.unlink(missing_ok=True)


def _parse_machine(value: Mapping[str, Any], path: Path) -> Node:
    try:
        gpus = tuple(GpuCount(**gpu) for gpu in value["gpus"])
        return Node(**{**value, "partitions": tuple(value["partitions"]), "gpus": gpus})
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: the recording's header is damaged: {error}") from None
