"""Show this machine as a cluster of one node: the local backend's answer to squeue and scontrol.

Local runs are jobs, and their directories are the queue, so that screens and commands for a cluster work with
both backends. A run that can still change is read again each time; an ended run is read once. A run that
another machine with the same runs root started is shown as long as it may be alive, in its last known state;
it uses no resources of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.model.errors import UserError
from coach.model.reading import JobList, NodeList, PartitionList, Reading
from coach.model.slurm.cluster import GpuCount, Job, Node, Partition, is_final
from coach.model.slurm.memory import mem_mib
from coach.model.training.run import Run, RunExit
from coach.sources.follow import describe, read_whole
from coach.sources.io import Io, for_folder
from coach.sources.machine.this_machine import PARTITION, read_machine
from coach.sources.runs.local_process import Look, Sighting, look
from coach.sources.runs.run_files import as_seen, parse_json, parse_run, read_exit
from coach.sources.values import finite, whole

INTERVAL_S = 2.0

KEEP_ENDED_S = 86400.0
"""Seconds for which an ended run stays in the queue: one day, because no accounting remembers it later."""

KEEP_ORPHAN_S = 86400.0
"""Seconds for which a run without a recorded end stays in the queue: after its launch if its supervisor died,
after its last report if it is on another machine."""


@dataclass(frozen=True, slots=True)
class _LocalRun:
    """A local run as it was read, its end, and the time of its launch."""

    run: Run
    exit: RunExit | None
    submit_time_s: float | None
    seen: Sighting

    @property
    def has_said_its_end(self) -> bool:
        return self.exit is not None and is_final(self.exit.state)

    @property
    def is_orphan(self) -> bool:
        """True if its supervisor is gone, and the end was not recorded."""
        return self.seen.reason is not None and not self.has_said_its_end

    @property
    def is_visible(self) -> bool:
        return self.seen.is_visible or self.has_said_its_end

    @property
    def state(self) -> str | None:
        return self.exit.state if self.exit is not None and self.has_said_its_end else self.run.state

    @property
    def end_time_s(self) -> float | None:
        return (self.exit.ended_time_s if self.exit is not None else None) or self.run.ended_time_s


class LocalClusterSource:
    """Nodes, partitions and jobs of this machine."""

    name = "jobs"

    def __init__(
        self,
        io: Io,
        runs_root: Path,
        user: str,
        interval_s: float = INTERVAL_S,
        *,
        read_node: Callable[[], Node] = read_machine,
        look: Look = look,
        known_ends: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """`known_ends`: name of a run → time of its end. Runs that ended long ago are not read, because the
        queue does not show them."""
        self.interval_s = interval_s
        self._known_ends: Callable[[], Mapping[str, float]] | None = known_ends
        self._io = io
        self._root = runs_root
        self._user = user
        self._read_node = read_node
        self._look = look
        self._machine: Node | None = None
        self._ended: dict[str, _LocalRun | None] = {}
        """Run directories that will not change. None for those that the queue does not show: of another
        backend, or ended long ago."""

    def poll(self) -> Iterator[Reading]:
        start_s = self._io.now()
        if self._machine is None:
            self._machine = self._read_node()
        try:
            local_runs, num_bad = self._read_runs()
        except OSError as problem:
            now_s = self._io.now()
            for source in ("jobs", "nodes", "partitions"):
                yield Reading(source, now_s, now_s - start_s, None, error=describe(problem))
            return
        now_s = self._io.now()
        duration_s = now_s - start_s
        node = occupied(
            self._machine, [item.run for item in local_runs if item.state == "RUNNING" and item.is_visible]
        )
        jobs = [
            _job_of(item, node.name, now_s, self._user)
            for item in local_runs
            if item.state is not None and _is_in_queue(item, now_s)
        ]
        jobs.sort(key=lambda job: (job.submit_time_s or 0.0, job.job_id), reverse=True)
        yield Reading("nodes", now_s, duration_s, NodeList((node,)))
        yield Reading("partitions", now_s, duration_s, PartitionList((partition_of(node),)))
        yield Reading("jobs", now_s, duration_s, JobList(tuple(jobs), True), num_bad_rows=num_bad)

    def _read_runs(self) -> tuple[list[_LocalRun], int]:
        try:
            names = [name for name in self._io.list_dir(self._root) if runs.RUN_ID.match(name)]
        except FileNotFoundError:
            names = []  # no run was ever launched
        if self._known_ends is not None:
            ends, now_s, self._known_ends = self._known_ends(), self._io.now(), None
            self._ended = {name: None for name, end_s in ends.items() if now_s - end_s > KEEP_ENDED_S}
        known: dict[str, _LocalRun | None] = {}
        found: list[_LocalRun] = []
        num_bad = 0
        for name in names:
            if name in self._ended:
                item = known[name] = self._ended[name]
            else:
                try:
                    item = self._read_run(self._root / name)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # the directory is being created, or belongs to a script that was only printed
                except (OSError, UserError):
                    num_bad += 1
                    continue
                if item is None or (is_final(item.state) and not item.is_orphan):
                    known[name] = item
            if item is not None:
                found.append(item)
        self._ended = known
        return found, num_bad

    def _read_run(self, run_dir: Path) -> _LocalRun | None:
        path, io = runs.RunPaths(run_dir).run_json, for_folder(self._io, run_dir)
        value = parse_json(read_whole(io, path), path)
        run = parse_run(value, str(run_dir))
        if run.backend != "local":
            return None
        # The order matters: a supervisor that ends in between has written exit.json before it ended.
        seen = self._look(value)
        found = as_seen(io, run, seen)
        exit_ = read_exit(io, found) if run.state is not None else None
        submit_time_s = finite(value.get("submitted_time_s")) or run.created_time_s
        return _LocalRun(found, exit_, submit_time_s, seen)


def _is_in_queue(item: _LocalRun, now_s: float) -> bool:
    if not is_final(item.state):
        spoke_s = item.run.last_word_time_s
        return item.is_visible or (spoke_s is not None and now_s - spoke_s <= KEEP_ORPHAN_S)
    if item.end_time_s is not None:
        return now_s - item.end_time_s <= KEEP_ENDED_S
    return item.submit_time_s is not None and now_s - item.submit_time_s <= KEEP_ORPHAN_S


def _job_of(item: _LocalRun, node_name: str, now_s: float, user: str) -> Job:
    run, resources, state = item.run, item.run.resources, item.state
    is_over = is_final(state)
    started_s = run.started_time_s
    used_s = _time_used_s(item, now_s)
    limit_s = whole(resources.get("time_limit_s"))
    return Job(
        job_id=run.job_id or run.run_id,
        name=run.recipe,
        user=run.user or user,
        state=state or "PENDING",
        reason=item.seen.reason if item.is_orphan else None,
        partition=PARTITION,
        nodes=None if started_s is None else node_name if item.is_visible else run.host,
        num_nodes=1,
        num_cpus=whole(resources.get("cpus_per_task")),
        num_gpus=whole(resources.get("gpus_per_node")),
        time_used_s=used_s,
        time_left_s=None if limit_s is None or used_s is None or is_over else max(0, limit_s - used_s),
        time_limit_s=limit_s,
        submit_time_s=item.submit_time_s,
        start_time_s=started_s,
        end_time_s=item.end_time_s if is_over else _sum(started_s, limit_s),
        work_dir=run.run_dir,
        exit_code=item.exit.exit_code if item.exit is not None and is_over else None,
        host=run.host,
        is_visible=item.is_visible,
        last_word_time_s=None if item.is_visible else run.last_word_time_s,
    )


def _time_used_s(item: _LocalRun, now_s: float) -> int | None:
    """Seconds from the start until the end, until now, or until the last report of another machine."""
    started_s = item.run.started_time_s
    if is_final(item.state):
        until_s = item.end_time_s
    else:
        until_s = now_s if item.is_visible else item.run.last_word_time_s
    return None if started_s is None or until_s is None else max(0, int(until_s - started_s))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def occupied(machine: Node, running: list[Run]) -> Node:
    """The machine with the resources of its running runs allocated. A run that requested no memory counts as
    0, as in Slurm."""
    cpus = sum(whole(run.resources.get("cpus_per_task")) or 0 for run in running)
    memory_mib = sum(mem_mib(str(run.resources.get("mem") or "")) or 0 for run in running)
    gpus_left = sum(whole(run.resources.get("gpus_per_node")) or 0 for run in running)
    gpus: list[GpuCount] = []
    for gpu in machine.gpus:
        taken = min(gpu.total, gpus_left)
        gpus_left -= taken
        gpus.append(replace(gpu, allocated=taken))
    if not running:
        state = "idle"
    else:
        state = "allocated" if machine.num_cpus is not None and cpus >= machine.num_cpus else "mixed"
    return replace(
        machine,
        state=state,
        num_cpus_allocated=cpus,
        memory_allocated_mib=memory_mib,
        gpus=tuple(gpus),
    )


def partition_of(node: Node) -> Partition:
    """The only partition, `local`."""
    return Partition(
        name=PARTITION,
        is_default=True,
        state="up",
        time_limit_s=None,
        default_time_s=None,
        num_nodes=1,
        num_nodes_idle=1 if node.state == "idle" else 0,
        num_cpus=node.num_cpus,
        num_cpus_allocated=node.num_cpus_allocated,
        gpus=node.gpus,
        num_gpus_per_node=sum(gpu.total for gpu in node.gpus),
    )
