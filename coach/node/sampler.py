"""Takes one sample of a node as encoded records: the job's CPUs, memory, processes and GPUs, and the node's
activity.

The clock is passed in: a test can stop time, or let four hours pass in minutes.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from coach.node import limits
from coach.node.activity import Activity, Ports
from coach.node.counters import Rates
from coach.node.gap import Gap
from coach.node.gpus import Gpus, ProcessUse, Sample
from coach.node.mounts import Mounts
from coach.node.processes import (
    Process,
    ProcessTable,
    own_processes,
    read_anonymous_mib,
    read_io_bytes,
    step_root,
)
from coach.node.telemetry_file import encode_short
from coach.node.visible_gpus import Counts

_MAX_PROCESSES = 16

Record = Dict[str, Any]
_IS_SILENT_AFTER_S = 5.0
_REOPENS_AFTER_S = 60.0


class Moment(NamedTuple):
    """One time on both clocks, wall and monotonic."""

    wall_s: float
    monotonic_s: float


def now() -> Moment:
    """The real clocks."""
    return Moment(time.time(), time.monotonic())


class Options(NamedTuple):
    """Settings of a sampler."""

    node: str
    pid: Optional[int] = None
    """The job is this process's descendants. None: the job is this user's processes, of this Slurm job if
    there is one."""
    ignored: Iterable[int] = ()
    has_gpm: bool = False
    gpu_limit_s: float = 0.5
    """How long a sample waits for the GPUs."""
    slow_interval_s: float = 10.0
    """Seconds between reads of values that change slowly or take long to read: links, health, ports,
    mounts."""


class Sampler:
    """Samples the node and encodes the records."""

    def __init__(self, options: Options, env: Mapping[str, str]) -> None:
        self._options = options
        self._gpus = GpuWatch(env, options.has_gpm, options.slow_interval_s)
        self._activity = Activity()
        self._ports = Ports()
        self._mounts = Mounts()
        self._io = Rates()
        self._gaps: List[Gap] = [*self._activity.gaps, *self._mounts.gaps]
        self._has_looked = False
        self._slow_due_s: Optional[float] = None
        of_job = options.pid if options.pid is not None else os.getpid()
        self._num_cpus = limits.allotted_cpus(of_job, env)
        self._memory_limit_mib = limits.memory_limit_mib(of_job, env)
        # A step that is added to a job may have a request of its own.
        self._memory_request_mib = limits.memory_request_mib(env) if options.pid is not None else None
        if options.pid is not None:
            ignored = [*options.ignored, options.pid]
            self._processes = ProcessTable(root=step_root(options.pid), ignored=ignored)
        else:
            self._processes = ProcessTable(
                belongs=own_processes(env.get("SLURM_JOB_ID")), ignored=options.ignored
            )

    def sample(self, at: Moment) -> List[bytes]:
        """Records of the host, the GPUs, the most important processes and new gaps; every ten seconds also of
        ports and mounts."""
        processes = self._processes.sample(at.monotonic_s)
        gpus = self._gpus.sample(at.monotonic_s, self._options.gpu_limit_s)
        records = [self._host(processes, at.monotonic_s)]
        self._has_looked = True
        records += [{"kind": "gpu", **record} for record in gpus.records]
        # Processes on a GPU first, then the largest.
        processes.sort(key=lambda process: process.pid not in gpus.processes)
        shown = processes[:_MAX_PROCESSES]
        records += [
            self._process(process, gpus.processes.get(process.pid), at.monotonic_s) for process in shown
        ]
        self._io.keep_only((process.pid, way) for process in shown for way in ("read", "written"))
        if self._slow_due_s is None or at.monotonic_s >= self._slow_due_s:
            self._slow_due_s = at.monotonic_s + self._options.slow_interval_s
            records += self._ports.sample(at.monotonic_s) + self._mounts.sample(at.monotonic_s)
        new_gaps = [gap for gap in gpus.gaps if gap not in self._gaps]
        self._gaps += new_gaps
        return self._encode([*records, *map(_gap_record, new_gaps)], at)

    def gap_lines(self, at: Moment) -> List[bytes]:
        """All gaps found so far, for the top of a file."""
        return self._encode(map(_gap_record, self._gaps), at)

    def add_gap(self, gap: Gap) -> None:
        """Add another gap; it is reported once."""
        if gap not in self._gaps:
            self._gaps.append(gap)

    def _encode(self, records: Iterable[Record], at: Moment) -> List[bytes]:
        when = {"time_s": round(at.wall_s, 3), "node": self._options.node}
        return [encode_short({"kind": record["kind"], **when, **_known(record)}) for record in records]

    def _host(self, processes: List[Process], time_s: float) -> Record:
        measured = [process.cpu_pct for process in processes if process.cpu_pct is not None]
        is_measured = bool(measured) or (self._has_looked and not processes)
        cpu_pct = min(100.0, sum(measured) / self._num_cpus) if is_measured else None
        used_mib = sum(process.rss_mib for process in processes)
        activity = self._activity.sample(time_s)
        total_mib, node_used_mib = activity["node_memory_total_mib"], activity["node_memory_used_mib"]
        available_mib = None if total_mib is None or node_used_mib is None else total_mib - node_used_mib
        if available_mib is not None and self._memory_limit_mib is not None:
            available_mib = min(available_mib, max(0.0, self._memory_limit_mib - used_mib))
        counts = self._gpus.counts
        return {
            "kind": "host",
            "cpu_pct": cpu_pct,
            "num_cpus": self._num_cpus,
            "memory_used_mib": used_mib,
            "memory_limit_mib": self._memory_limit_mib,
            "memory_request_mib": self._memory_request_mib,
            "memory_available_mib": available_mib,
            "num_processes": len(processes),
            **(counts._asdict() if counts else {}),
            **activity,
        }

    def _process(self, process: Process, use: Optional[ProcessUse], time_s: float) -> Record:
        read, written = read_io_bytes(process.pid) or (None, None)
        read_rate = self._io.of((process.pid, "read"), read, time_s)
        write_rate = self._io.of((process.pid, "written"), written, time_s)
        is_above = self._memory_limit_mib is not None and process.rss_mib > self._memory_limit_mib
        return {
            "kind": "process",
            "pid": process.pid,
            "name": process.name,
            "rank": process.ranks.rank,
            "local_rank": process.ranks.local_rank,
            "cpu_pct": process.cpu_pct,
            "rss_mib": process.rss_mib,
            "anonymous_mib": read_anonymous_mib(process.pid) if is_above else None,
            "num_threads": process.num_threads,
            "read_mib_s": None if read_rate is None else read_rate / 2**20,
            "write_mib_s": None if write_rate is None else write_rate / 2**20,
            "gpu_memory_mib": use.memory_mib if use else None,
            "gpus": use.gpus if use else None,
        }


def _known(record: Record) -> Record:
    """The record without unknown values, and without digits beyond the measured precision."""
    return {
        key: round(value, 1) if isinstance(value, float) else value
        for key, value in record.items()
        if value is not None
    }


def _gap_record(gap: Gap) -> Record:
    what, because, how = gap
    return {"kind": "gap", "what": what, "because": because, "how": how}


class GpuWatch:
    """Reads the job's GPUs in a thread that starts here and ends with the process."""

    def __init__(self, env: Mapping[str, str], has_gpm: bool, slow_interval_s: float) -> None:
        self.counts: Optional[Counts] = None
        self._questions: SimpleQueue[float] = SimpleQueue()
        self._answers: SimpleQueue[Tuple[float, Sample]] = SimpleQueue()
        self._xids: SimpleQueue[Dict[str, Any]] = SimpleQueue()
        self._asked_s: Optional[float] = None
        self._has_said_silence = False
        self._is_open = False
        self._open = partial(Gpus, dict(env), has_gpm, slow_interval_s, self._tell_xid)
        threading.Thread(target=self._work, daemon=True).start()

    def sample(self, time_s: float, limit_s: float) -> Sample:
        """The GPUs' answer, if it came within the limit or since the last call. `time_s` is a monotonic
        clock."""
        if self._asked_s is None:
            self._asked_s = time_s
            self._questions.put(time_s)
        waited_s = time_s - self._asked_s
        if not self._is_open:
            # Opening the driver takes time: the first sample does not wait for it.
            self._is_open, limit_s = True, 0.0
        try:
            took_s, answer = self._answers.get(timeout=limit_s)
        except Empty:
            return Sample(self._new_xids(), {}, self._silence(waited_s))
        gaps = [*answer.gaps, *self._silence(took_s)]
        self._asked_s, self._has_said_silence = None, False
        # Values read before the driver hung are out of date.
        records = answer.records if took_s < _IS_SILENT_AFTER_S else []
        return Sample([*records, *self._new_xids()], answer.processes, gaps)

    def _silence(self, for_s: float) -> List[Gap]:
        if for_s < _IS_SILENT_AFTER_S or self._has_said_silence:
            return []
        self._has_said_silence = True
        return [("gpu.utilization", f"the driver has not answered for {for_s:.0f} s", _HOW_SILENT)]

    def _new_xids(self) -> List[Dict[str, Any]]:
        return [self._xids.get() for _ in range(self._xids.qsize())]

    def _tell_xid(self, gpu: int, uuid: str, xid: int) -> None:
        self._xids.put({"kind": "gpu_event", "gpu": gpu, "uuid": uuid, "xid": xid})

    def _work(self) -> None:
        gpus: Optional[Gpus] = None
        open_due_s: Optional[float] = None
        while True:
            time_s = self._questions.get()
            started_s = time.monotonic()
            try:
                if gpus is None and (open_due_s is None or time_s >= open_due_s):
                    open_due_s = time_s + _REOPENS_AFTER_S
                    gpus = self._open()
                    self.counts = gpus.counts
                    started_s = time.monotonic()  # the time to open the driver does not make the values old
                answer = Sample([], {}, []) if gpus is None else gpus.sample(time_s)
            except Exception as error:  # an untested binding or driver: the host is still sampled
                why = f"reading the GPUs failed: {type(error).__name__}: {error}"
                answer = Sample([], {}, [("gpu.utilization", why, "report it")])
            self._answers.put((time.monotonic() - started_s, answer))


_HOW_SILENT = (
    "`nvidia-smi` will hang there as well: leave this node out (--exclude) and tell its administrators"
)
