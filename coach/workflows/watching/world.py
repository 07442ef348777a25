"""The world that a session watches: a cluster or this machine, real or recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coach.config import Settings
from coach.model.snapshot import Watch
from coach.sources.io import Io
from coach.sources.runs.local_process import Look, look
from coach.sources.slurm.client import CLUSTER_INTERVAL_S, JobsSource, NodesSource
from coach.workflows.judging.targets import SourceFactory, local_queue

ClusterSources = Callable[[Io, Settings, str, Watch], Mapping[str, SourceFactory]]


def slurm_sources(io: Io, settings: Settings, user: str, watch: Watch) -> Mapping[str, SourceFactory]:
    """The sources of a Slurm cluster."""
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
    """The source of this machine as a cluster of one node. All its jobs are the user's own."""
    return {"jobs": lambda: local_queue(settings, io, user)}


@dataclass(frozen=True, slots=True)
class World:
    """Where a session's data come from."""

    backend: str
    io: Io
    user: str
    cluster_sources: ClusterSources | None = None
    """None: the sources of the backend."""
    look: Look = look
    """Looks up whether a local run's process is alive."""
    is_recorded: bool = False
    """True for a recording: its run directories are not real, nothing is written, no earlier run is known."""

    @property
    def can_write(self) -> bool:
        """True if the session may write what the queue reports into own runs."""
        return not self.is_recorded and self.backend == "slurm"

    def sources(self, settings: Settings, watch: Watch) -> Mapping[str, SourceFactory]:
        """The sources of the cluster that a watch asks for."""
        make = self.cluster_sources or (slurm_sources if self.backend == "slurm" else local_sources)
        return make(self.io, settings, self.user, watch)
