"""Live data for both front ends: start the sources that a Watch asks for, keep the picture, say when it changed.

One worker thread of the session's own applies readings and asks the rules; whoever shows the picture gets finished values, at most a
few times a second, and never touches a source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from coach.config import Settings, load
from coach.config.reload import Follower
from coach.lookback.history import History
from coach.model.politeness import ACTIVE_S, Attention
from coach.model.reading import JobList, Reading
from coach.model.snapshot import Snapshot, Watch
from coach.monitor.monitor import Monitor
from coach.poller import Poller
from coach.poller import SourceFactory as AnySource
from coach.sources.io import Io, scrubbed_environment
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.machine.local_cluster import LocalClusterSource
from coach.sources.machine.user import user_name
from coach.sources.polite.patient_io import PatientIo
from coach.sources.polite.polling import Pace
from coach.sources.polite.shared_cache import SharedIo, shared_folder
from coach.sources.rpc_budget import RpcBudget
from coach.sources.runs.local_process import Look, look
from coach.sources.runs.run_index import RunIndex
from coach.sources.runs.run_list import BITE_RUNS, RunListSource
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.sources.slurm.client import CLUSTER_INTERVAL_S, JobsSource, NodesSource
from coach.sources.slurm.conf_file import keep_message_timeout
from coach.sources.slurm.configuration import RateLimitSource
from coach.sources.slurm.overlap_step import RecordedStream, StreamSource
from coach.workflows.judging.lazy_engine import LazyEngine
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import (
    SourceFactory,
    Target,
    known_cluster,
    locate_target,
    output_paths_of,
    resolve_target,
    target_sources,
)
from coach.workflows.readonly import held_back
from coach.workflows.sharing import Sharer
from coach.workflows.watching.queue_facts import RunRecords
from coach.workflows.watching.settings_source import SettingsSource

__all__ = ["OnUpdate", "Target", "WatchSession", "live_session", "read_once", "resolve_target"]

UPDATE_INTERVAL_S = 0.25
"""At most this often is a change told."""
AGE_INTERVAL_S = 1.0
"""At least this often is something told, so that ages go on."""
LINGER_S = 300.0
MAX_LINGERING = 3
"""Targets that were watched lately keep their place in every file a while: coming back should not read everything again."""

_SETTLE_S = 0.02
"""Answers that belong together arrive in one update."""

OnUpdate = Callable[[Snapshot], None]
OnReading = Callable[[Reading], None]
_Stream = StreamSource | RecordedStream
ClusterSources = Callable[[Io, Settings, str, Watch], Mapping[str, SourceFactory]]


def slurm_sources(io: Io, settings: Settings, user: str, watch: Watch) -> Mapping[str, SourceFactory]:
    """The cluster as Slurm tells it."""
    scope = "all" if watch.all_jobs else "own"
    nodes_s = max(settings.nodes_interval_s, CLUSTER_INTERVAL_S)
    jobs_s, least_s = settings.jobs_interval_s, settings.least_jobs_interval_s
    return {
        f"jobs {scope} {jobs_s:g} {least_s:g} {nodes_s:g}": lambda: JobsSource(
            io, user, jobs_s, is_all=watch.all_jobs, cluster_interval_s=nodes_s, least_interval_s=least_s
        ),
        f"nodes {nodes_s:g}": lambda: NodesSource(io, nodes_s),
    }


def local_sources(io: Io, settings: Settings, user: str, watch: Watch) -> Mapping[str, SourceFactory]:
    """This machine as a cluster of one node; all its jobs are one's own."""
    return {"jobs": lambda: LocalClusterSource(io, settings.runs_root, user)}


@dataclass(frozen=True, slots=True)
class Manners:
    """What makes a live session polite: it is told who looks, what Slurm is asked, and what other coaches were told."""

    pace: Pace
    budget: RpcBudget | None = None
    """None: Slurm is not asked."""
    shared: SharedIo | None = None
    patient: PatientIo | None = None


def live_session(
    settings: Settings,
    backend: str,
    env: Mapping[str, str],
    on_settings: Callable[[Settings], object] = lambda settings: None,
    budget: RpcBudget | None = None,
) -> WatchSession:
    """A session on the real world. `on_settings` gets the settings whenever their files have changed, in a thread of the session's.

    `budget` is what else spends from it: what a person does by hand.
    """
    follower = Follower(settings, env, lambda env: held_back(load(env), env))
    pace, budget = Pace(), budget or RpcBudget()
    scrubbed = scrubbed_environment(env)
    system = PatientIo(
        scrubbed,
        timeout_s=settings.slurm_timeout_s,
        before_command=budget.acquire,
        on_file_op=pace.count_file_op,
    )
    io: Io = system
    manners = Manners(pace)
    if backend == "slurm":
        folder = shared_folder(env, settings.cache_dir)
        # Where the answers come from: the cluster by name, and the configuration that says where its controller is.
        context = f"{settings.cluster} {scrubbed.get('SLURM_CONF', '')}"
        shared = SharedIo(io, folder, context, settings.slurm_timeout_s) if folder is not None else None
        manners, io = Manners(pace, budget, shared, system), shared or io
    return WatchSession(
        settings, backend, io, user_name(), follower=follower, on_settings=on_settings, manners=manners
    )


class WatchSession:
    """Start it with a callback, tell it what to watch, stop it."""

    def __init__(
        self,
        settings: Settings,
        backend: str,
        io: Io,
        user: str,
        *,
        cluster_sources: ClusterSources | None = None,
        can_write: bool = True,
        look: Look = look,
        on_reading: OnReading | None = None,
        follower: Follower | None = None,
        on_settings: Callable[[Settings], object] = lambda settings: None,
        manners: Manners | None = None,
    ) -> None:
        """`can_write` is False where the run directories are not real, and `look` then believes them: a replay. `on_reading` sees every reading (a recorder)."""
        self._settings = settings
        self._io = io
        self._user = user
        self._cluster_sources = cluster_sources or (slurm_sources if backend == "slurm" else local_sources)
        self._look = look
        self._can_write = can_write and backend == "slurm"
        self._seen_jobs = SeenJobs(settings.cache_dir)
        self._output_paths = output_paths_of(io, settings) if self._can_write else OutputPaths(io)
        self._on_reading = on_reading
        self._follower = follower
        self._on_settings = on_settings
        self._manners = manners
        self._engine = LazyEngine(settings, has_past=can_write)
        self._monitor = Monitor(user, self._engine.diagnose, known_cluster(settings))
        pace = manners.pace if manners is not None else None
        self._poller = Poller(self._make_sources, pace=pace, is_held=self._is_held)
        self._lock = threading.Lock()
        self._watch = Watch()
        self._is_watch_new = True
        self._is_judging_new = False
        self._told_problem: str | None = None
        self._targets: dict[str, Target] = {}
        self._attached: dict[str, tuple[_Stream, ...]] = {}
        """Streams from inside of jobs, which go on also while their job is not on the screen."""
        self._lingering: dict[str, float] = {}
        self._snapshot = Snapshot(io.now())
        self._sharer = Sharer() if manners is not None else None
        self._records = RunRecords(self._sharer)
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The newest picture."""
        return self._snapshot

    def start(self, on_update: OnUpdate) -> None:
        """Begin. `on_update` is called from the session's own thread, with a finished value."""
        self._thread = threading.Thread(target=self._work, args=(on_update,), name="session", daemon=True)
        self._thread.start()

    def watch(self, watch: Watch) -> None:
        """Follow these from now on. Returns at once."""
        with self._lock:
            self._watch, self._is_watch_new = watch, True
        self._poller.interrupt()

    def attach(self, target: str, streams: Sequence[_Stream]) -> None:
        """Follow a target by these as well, until they end; one that is followed so goes on as it was. Returns at once."""
        with self._lock:
            self._attached.setdefault(target, tuple(streams))
            self._is_watch_new = True
        self._poller.interrupt()

    def use(self, settings: Settings) -> None:
        """Go on by these settings: rules, advice, how often to ask. Where runs lie does not change under a session."""
        self._engine.use(settings)
        with self._lock:
            self._settings = settings
            self._is_watch_new = self._is_judging_new = True
        self._poller.interrupt()
        self._on_settings(settings)

    def history(self, target: str) -> History:
        """The series of a watched target as they stand: a copy that nobody else changes."""
        with self._lock:
            return self._monitor.history(target).copy()

    def refresh_soon(self) -> None:
        """Look at everything again at once: after a launch or a cancel, or when the user asks for it."""
        if self._manners is not None:
            if self._manners.shared is not None:
                self._manners.shared.refuse_older()
            if self._manners.patient is not None:
                self._manners.patient.forget_late()
            if self._manners.budget is not None:
                self._manners.budget.note_act()
        self._poller.refresh_soon()

    def attend(self, idle_s: float, *, is_focused: bool, is_run_open: bool) -> Attention:
        """Be told how long ago the last key was pressed, and where: it decides how much is asked, and when nothing is asked any more."""
        if self._manners is None:
            return Attention()  # a recording costs nobody anything
        attention = Attention(
            is_active=is_focused and idle_s < ACTIVE_S,
            is_focused=is_focused,
            is_run_open=is_run_open,
            is_asleep=idle_s >= self._settings.idle_minutes * 60.0,
        )
        self._manners.pace.attend(attention)
        if self._manners.budget is not None:
            self._manners.budget.set_active(attention.is_active)
        return attention

    def stop(self) -> None:
        """End all threads."""
        self._is_stopping.set()
        if self._manners is not None:
            if self._manners.shared is not None:
                self._manners.shared.close()
            if self._manners.budget is not None:
                self._manners.budget.close()
        self._poller.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)

    def _work(self, on_update: OnUpdate) -> None:
        told_s = time.monotonic() - UPDATE_INTERVAL_S
        news_s: float | None = None
        while not self._is_stopping.is_set():
            self._apply_watch()
            due_s = told_s + AGE_INTERVAL_S
            if news_s is not None:
                due_s = max(told_s + UPDATE_INTERVAL_S, news_s + _SETTLE_S)
            if self._apply(self._poller.readings(due_s - time.monotonic())) and news_s is None:
                news_s = time.monotonic()
                continue
            if time.monotonic() >= due_s and not self._is_stopping.is_set():
                self._snapshot = self._picture()
                told_s, news_s = time.monotonic(), None
                if self._sharer is not None and not self._settings.is_readonly:
                    self._sharer.tell(self._snapshot)
                on_update(self._snapshot)

    def _picture(self) -> Snapshot:
        picture = self._monitor.snapshot(self._io.now())
        budget = self._manners.budget if self._manners is not None else None
        return picture if budget is None else replace(picture, spending=budget.spending())

    def _is_held(self, key: str) -> bool:
        """Whether a source is not on the screen any more: it keeps its place, but is not asked."""
        return key.partition(":")[2] in self._lingering

    def _apply(self, readings: list[Reading]) -> bool:
        is_news = False
        with self._lock:
            for reading in readings:
                is_news = self._monitor.apply(reading) or is_news
        for reading in readings:
            if reading.source == StreamSource.name and reading.error is not None and reading.target:
                self._forget_ended(reading.target)
            if self._on_reading is not None:
                self._on_reading(reading)
            if isinstance(reading.payload, JobList):
                self._output_paths.learn(reading.payload.jobs)
            if self._can_write and isinstance(reading.payload, JobList):
                remember_jobs(self._seen_jobs, reading.payload.jobs, self._user, reading.time_s)
        if self._engine.problem is not None or self._told_problem is not None:
            self._told_problem = self._engine.problem
            problem = Reading("rules", self._io.now(), 0.0, None, self._told_problem)
            is_news = self._monitor.apply(problem) or is_news
        if is_news and self._can_write and not self._settings.is_readonly:
            for run, job_id in self._monitor.found_in_queue():
                self._records.keep_job(run, job_id, self._settings)
            for run, job in self._monitor.ended_in_queue():
                self._records.keep_end(run, job)
        return is_news

    def _forget_ended(self, target: str) -> None:
        """A stream that has ended is not begun again unless somebody says so."""
        with self._lock:
            streams = self._attached.get(target, ())
            if streams and all(stream.has_ended for stream in streams):
                del self._attached[target]
                self._is_watch_new = True

    def _apply_watch(self) -> None:
        with self._lock:
            if not self._is_watch_new:
                self._expire_lingering()
                if not self._is_watch_new:
                    return
            wanted = dict.fromkeys((*self._watch.targets, *self._attached))
            watch, self._is_watch_new = replace(self._watch, targets=tuple(wanted)), False
        now_s = time.monotonic()
        for name in self._targets:
            if name not in watch.targets:
                self._lingering.setdefault(name, now_s)
        self._lingering = {
            name: since for name, since in self._lingering.items() if name not in watch.targets
        }
        while len(self._lingering) > MAX_LINGERING:
            del self._lingering[min(self._lingering, key=lambda name: self._lingering[name])]
        kept = {name: self._targets[name] for name in self._lingering if name in self._targets}
        known = self._monitor.runs
        followed = {
            name: self._targets.get(name) or locate_target(name, self._settings, self._io, known)
            for name in watch.targets
        }
        self._targets = {**followed, **kept}
        awaited = {
            name: [key.partition(":")[0] for key in self._sources_of(target)]
            for name, target in self._targets.items()
        }
        with self._lock:
            dropped = self._monitor.watch(awaited)
            if self._is_judging_new:
                self._is_judging_new = False
                self._monitor.judge_again()
        self._engine.forget(dropped)
        self._poller.watch(watch)

    def _expire_lingering(self) -> None:
        since_s = time.monotonic() - LINGER_S
        expired = [name for name, left_s in self._lingering.items() if left_s < since_s]
        for name in expired:
            del self._lingering[name]
            self._targets.pop(name, None)
            self._is_watch_new = True

    def _make_sources(self, watch: Watch) -> dict[str, AnySource]:
        io, settings = self._io, self._settings
        sources: dict[str, AnySource] = {}
        if self._follower is not None:
            follower = self._follower
            sources["config"] = lambda: SettingsSource(follower, io, self.use)
        if watch.is_cluster_watched:
            sources.update(self._cluster_sources(io, settings, self._user, watch))
            if self._manners is not None and self._manners.budget is not None:
                budget = self._manners.budget
                keep_timeout = partial(keep_message_timeout, settings.cache_dir, settings.cluster)
                sources["limits"] = lambda: RateLimitSource(io, budget.limit_by_site, keep_timeout)
            # Only a live session knows runs by what another one kept: a recording must hold all that it shows.
            index = RunIndex(settings.cache_dir, settings.runs_root) if self._manners is not None else None
            bite = BITE_RUNS if self._manners is not None else None
            sources["runs"] = lambda: RunListSource(
                io, settings.runs_root, look=self._look, index=index, bite_runs=bite
            )
        for target in self._targets.values():
            sources.update(self._sources_of(target))
        for name, streams in list(self._attached.items()):
            for number, stream in enumerate(streams):
                sources[f"stream {number}:{name}"] = partial(_same, stream)
        return sources

    def _sources_of(self, target: Target) -> Mapping[str, SourceFactory]:
        return target_sources(target, self._io, self._engine.signatures, self._output_paths, self._look)


def _same(stream: _Stream) -> _Stream:
    return stream
