"""Live data for both front ends: start the sources of a Watch, keep a snapshot, report changes.

A worker thread of the session applies readings and runs the rules. The front end gets finished values, at
most a few times a second, and never touches a source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from coach.config import Settings, load
from coach.config.reload import Follower
from coach.lookback.glance import glance_of
from coach.model.politeness import Attention
from coach.model.reading import Reading
from coach.model.snapshot import Snapshot, SourceStatus, Watch
from coach.monitor.monitor import Monitor
from coach.poller import Poller, SourceFactory
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.rpc_budget import RpcBudget
from coach.sources.runs.run_list import BITE_RUNS, RunListSource
from coach.sources.slurm.overlap_step import StreamSource
from coach.workflows.judging.judge import Context
from coach.workflows.judging.targets import (
    Target,
    known_cluster,
    locate_target,
    run_index,
    target_sources,
)
from coach.workflows.readonly import held_back
from coach.workflows.sharing import Sharer
from coach.workflows.watching.followed_targets import AttachedStreams, FollowedTargets
from coach.workflows.watching.manners import Manners, polite_io
from coach.workflows.watching.queue_facts import QueueFacts
from coach.workflows.watching.settings_source import SettingsSource
from coach.workflows.watching.world import World

if TYPE_CHECKING:
    from coach.lookback.glance import Glance
    from coach.lookback.history import History

STUCK_S = 15.0
"""Seconds. The session's own thread is never busy this long, unless a file system does not answer."""
_STUCK = "session"
UPDATE_INTERVAL_S = 0.25
"""A change is reported at most this often, in seconds."""
AGE_INTERVAL_S = 5.0
"""The snapshot is reported at least this often, in seconds, because some rules wait for a time to pass and
tables show elapsed times. The front end updates ages by itself."""

NODES_LOOK_S = 30.0
"""If own jobs have taken or left nodes, the nodes are read again, but not more often than this, in seconds:
the RPC budget also serves the queue."""
_CLUSTER_SOURCES = frozenset({"jobs", "nodes"})
_SETTLE_S = 0.02
"""Seconds to collect answers that belong into one update."""

OnUpdate = Callable[[Snapshot], None]
OnReading = Callable[[Reading], None]


def live_session(
    settings: Settings,
    backend: str,
    env: Mapping[str, str],
    on_settings: Callable[[Settings], object] = lambda settings: None,
    budget: RpcBudget | None = None,
) -> WatchSession:
    """A session on the real world.

    `on_settings` gets the new settings whenever their files have changed, in a thread of the session.
    `budget` is the RPC budget that the person's own commands also use.
    """
    follower = Follower(settings, env, lambda env: held_back(load(env), env))
    manners, io = polite_io(settings, backend, env, budget or RpcBudget())
    world = World(backend, io, user_name())
    return WatchSession(settings, world, follower=follower, on_settings=on_settings, manners=manners)


class WatchSession:
    """Start it with a callback, give it a Watch, stop it."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        *,
        on_reading: OnReading | None = None,
        follower: Follower | None = None,
        on_settings: Callable[[Settings], object] = lambda settings: None,
        manners: Manners | None = None,
    ) -> None:
        """`on_reading` gets every reading, for a recorder.

        `manners` is None for a recording, where nothing is asked.
        """
        self._settings = settings
        self._world = world
        self._on_reading = on_reading
        self._follower = follower
        self._on_settings = on_settings
        self._manners = manners
        self._sharer = Sharer() if manners is not None else None
        self._queue_facts = QueueFacts(world, settings, self._sharer)
        self._context = Context(settings, world.io, is_alone=world.is_recorded)
        self._monitor = Monitor(world.user, self._context.diagnose, known_cluster(settings))
        self._poller = Poller(
            self._make_sources, pace=manners.pace if manners is not None else None, is_held=self._is_held
        )
        self._targets = FollowedTargets()
        self._streams = AttachedStreams()
        self._lock = threading.Lock()
        self._watch = Watch()
        self._is_watch_new = True
        self._is_judging_new = False
        self._told_problem: str | None = None
        """The problem with the rules that the snapshot shows."""
        self._snapshot = Snapshot(world.io.now())
        self._is_stopping = threading.Event()
        self._alive_s = time.monotonic()
        """Time at which the session's thread last made progress."""
        self._thread: threading.Thread | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    def start(self, on_update: OnUpdate) -> None:
        """Begin. `on_update` is called from the session's own thread, with a finished value."""
        self._thread = threading.Thread(target=self._work, args=(on_update,), name="session", daemon=True)
        self._thread.start()
        threading.Thread(target=self._guard, args=(on_update,), name="guard", daemon=True).start()

    def _guard(self, on_update: OnUpdate) -> None:
        """Report, in place of the session's thread, that it is blocked: the rules read files of earlier
        runs."""
        while not self._is_stopping.wait(AGE_INTERVAL_S):
            if time.monotonic() - self._alive_s > STUCK_S:
                words = "a file system does not answer: no new check runs"
                status = SourceStatus(_STUCK, None, words, self._world.io.now(), 0, None)
                sources = {**self._snapshot.sources, _STUCK: status}
                on_update(replace(self._snapshot, sources=MappingProxyType(sources)))

    def watch(self, watch: Watch) -> None:
        """Follow these from now on. Returns at once."""
        with self._lock:
            is_more_asked = watch.all_jobs and not self._watch.all_jobs
            self._watch, self._is_watch_new = watch, True
        if is_more_asked and self._manners is not None:
            self._manners.hasten()
        self._poller.interrupt()

    def attach(self, target: str, streams: Sequence[StreamSource]) -> None:
        """Follow a target by these streams as well, until they end.

        A target that has streams keeps them. Returns at once.
        """
        self._streams.attach(target, streams)
        with self._lock:
            self._is_watch_new = True
        self._poller.interrupt()

    def use(self, settings: Settings) -> None:
        """Continue with these settings: rules, advice, polling intervals.

        The runs root of a session never changes.
        """
        self._context.use(settings)
        with self._lock:
            self._settings = settings
            self._is_watch_new = self._is_judging_new = True
        self._poller.interrupt()
        self._on_settings(settings)

    def history(self, target: str) -> History:
        """The series of a watched target up to now: a read-only copy, made once after each addition."""
        with self._lock:
            history = self._monitor.history(target)
            return history.derived("copy", history.copy)

    def glance(self, target: str) -> Glance:
        """The summary of a watched target for one row of a list, computed once after each addition, not
        copied."""
        with self._lock:
            return glance_of(self._monitor.history(target))

    def refresh_soon(self, *, is_cluster_only: bool = False) -> None:
        """Read everything again at once: after a launch or a cancel, or when the user asks for it.

        `is_cluster_only`: read only the queue and the nodes.
        """
        if self._manners is not None:
            self._manners.expect_change()
        if is_cluster_only:
            self._poller.refresh_soon(lambda key: key.partition(" ")[0] in _CLUSTER_SOURCES)
        else:
            self._poller.refresh_soon()

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Set how often Slurm is asked, by the time since the last key press and the open screen."""
        if self._manners is None:
            return Attention()  # a recording costs nobody anything
        asleep_s = self._settings.idle_minutes * 60.0
        return self._manners.attend(idle_s, asleep_s, is_focused=is_focused, is_run_open=is_run_open)

    def spared(self, io: Io) -> Io:
        """An Io that asks Slurm nothing while this session knows of an outage."""
        return io if self._manners is None else self._manners.spared(io)

    def stop(self) -> None:
        """End all threads."""
        self._is_stopping.set()
        if self._manners is not None:
            self._manners.close()
        self._poller.stop()
        self._queue_facts.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)

    def _work(self, on_update: OnUpdate) -> None:
        told_s = time.monotonic() - UPDATE_INTERVAL_S
        news_s: float | None = None
        while not self._is_stopping.is_set():
            self._alive_s = time.monotonic()
            self._apply_watch()
            due_s = told_s + AGE_INTERVAL_S
            if news_s is not None:
                due_s = max(told_s + UPDATE_INTERVAL_S, news_s + _SETTLE_S)
            if self._apply(self._poller.readings(due_s - time.monotonic())) and news_s is None:
                news_s = time.monotonic()
                continue
            if time.monotonic() >= due_s and not self._is_stopping.is_set():
                self._snapshot = self._picture()
                if awaited := self._monitor.awaited:
                    self._poller.refresh_soon(awaited.__contains__)
                told_s, news_s = time.monotonic(), None
                if self._sharer is not None and not self._settings.is_readonly:
                    self._sharer.tell(self._snapshot)
                on_update(self._snapshot)

    def _picture(self) -> Snapshot:
        picture = self._monitor.snapshot(self._world.io.now())
        return picture if self._manners is None else self._manners.with_spending(picture)

    def _is_held(self, key: str) -> bool:
        """True for a source whose target has left the screen: it keeps its position, but is not asked."""
        return self._targets.is_lingering(key.partition(":")[2])

    def _apply(self, readings: list[Reading]) -> bool:
        """Take in readings. Returns True if they brought news."""
        is_news = False
        with self._lock:
            for reading in readings:
                is_news = self._monitor.apply(reading) or is_news
        for reading in readings:
            if reading.source == StreamSource.name and reading.error is not None and reading.target:
                self._forget_ended(reading.target)
            if self._on_reading is not None:
                self._on_reading(reading)
            if self._queue_facts.learn(reading) and self._are_nodes_old():
                self._poller.refresh_soon(lambda key: key.partition(" ")[0] == "nodes")
        is_news = self._apply_rules_problem() or is_news
        if is_news:
            self._queue_facts.keep_runs(self._monitor, self._settings)
        return is_news

    def _are_nodes_old(self) -> bool:
        status = self._snapshot.sources.get("nodes")
        if status is None or status.data_time_s is None:
            return False
        return self._world.io.now() - status.data_time_s > NODES_LOOK_S

    def _apply_rules_problem(self) -> bool:
        """Report that the rules cannot be loaded, and when they can be again."""
        if self._context.problem is None and self._told_problem is None:
            return False
        self._told_problem = self._context.problem
        return self._monitor.apply(Reading("rules", self._world.io.now(), 0.0, None, self._told_problem))

    def _forget_ended(self, target: str) -> None:
        """Drop a target's ended streams: they restart only when somebody attaches them."""
        if self._streams.forget_ended(target):
            with self._lock:
                self._is_watch_new = True

    def _apply_watch(self) -> None:
        """Start and stop sources if the watch or the lingering targets have changed."""
        with self._lock:
            if not self._is_watch_new and not self._targets.expire():
                return
            wanted = dict.fromkeys((*self._watch.targets, *self._streams.targets))
            watch, self._is_watch_new = replace(self._watch, targets=tuple(wanted)), False
        known = self._monitor.runs
        self._targets.follow(
            watch.targets, lambda name: locate_target(name, self._settings, self._world.io, known)
        )
        awaited = {
            target.name: [key.partition(":")[0] for key in self._sources_of(target)]
            for target in self._targets
        }
        with self._lock:
            dropped = self._monitor.watch(awaited)
            if self._is_judging_new:
                self._is_judging_new = False
                self._monitor.judge_again()
        self._context.forget(dropped)
        self._poller.watch(watch)

    def _make_sources(self, watch: Watch) -> dict[str, SourceFactory]:
        """The sources of a watch by their keys: settings, cluster, runs, targets, streams."""
        sources: dict[str, SourceFactory] = {}
        if self._follower is not None:
            follower = self._follower
            sources["config"] = lambda: SettingsSource(follower, self._world.io, self.use)
        sources.update(self._world.sources(self._settings, watch))
        if self._manners is not None:
            sources.update(self._manners.sources(self._world.io, self._settings))
        sources["runs"] = self._make_run_list
        for target in self._targets:
            sources.update(self._sources_of(target))
        sources.update(self._streams.sources())
        return sources

    def _make_run_list(self) -> RunListSource:
        bite = BITE_RUNS if self._manners is not None else None
        return RunListSource(
            self._world.io,
            self._settings.runs_root,
            look=self._world.look,
            index=run_index(self._settings, is_live=self._manners is not None),
            bite_runs=bite,
        )

    def _sources_of(self, target: Target) -> Mapping[str, SourceFactory]:
        return target_sources(
            target,
            self._world.io,
            self._context.signatures,
            self._queue_facts.output_paths,
            self._world.look,
            index=run_index(self._settings, is_live=self._manners is not None),
        )
