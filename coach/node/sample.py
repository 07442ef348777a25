"""The sampler: every second one look at the job's CPUs, memory, processes and GPUs on this node.

Beside a training it is a separate process that can fail, hang or be killed without anybody waiting for it. It keeps the pace of the
wall clock: a late sample is skipped, not made up for. What it cannot measure it says, as a gap, at the top of every file.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from coach import runs
from coach.node import limits
from coach.node.gpus import Gap, Gpus
from coach.node.node_name import node_name
from coach.node.parent import die_with_parent
from coach.node.processes import Process, ProcessTable, own_processes, read_stat, step_root
from coach.node.telemetry_file import TelemetryFile, encode_short

_MAX_PROCESSES = 8
_FIRST_LOOK_S = 0.3

Record = Dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `coach sample`. Without --run-dir, records go to standard output."""
    parser.add_argument(
        "--run-dir", metavar="DIR", help="append to telemetry/NODE.jsonl of this run directory"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="what this node is called (default: Slurm's name, or the host's)"
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between samples (default: 1)"
    )
    parser.add_argument(
        "--pid", type=int, metavar="PID", help="follow this process's descendants, and end with it"
    )
    parser.add_argument("--once", action="store_true", help="print one sample and end")
    parser.add_argument("--ignore-pid", type=int, metavar="PID", help=argparse.SUPPRESS)
    parser.add_argument("--started-time", type=float, metavar="S", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Sample until the followed process ends, or for ever."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # scancel sends it to every process of a step
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if args.interval <= 0:
        print(f"coach sample: --interval {args.interval:g}: a number above 0 was expected", file=sys.stderr)
        return 2
    if args.pid is not None and args.pid == os.getppid():
        die_with_parent(args.pid)
    followed = read_stat(args.pid) if args.pid is not None else None
    if args.pid is not None and followed is None:
        print(f"coach sample: --pid {args.pid}: no such process", file=sys.stderr)
        return 2
    node = args.node or node_name(os.environ)

    def goes_on() -> bool:
        if followed is None:
            return True
        now = read_stat(followed.pid)
        return now is not None and now.start_ticks == followed.start_ticks

    ignored = [os.getpid(), *([args.ignore_pid] if args.ignore_pid else [])]
    sampler = Sampler(node, args.pid, ignored, os.environ)
    if args.once:
        sampler.sample()
        time.sleep(_FIRST_LOOK_S)
        _print([*sampler.gap_lines(), *sampler.sample()])
        return 0
    if not args.run_dir:
        _print(sampler.gap_lines())
        keep_pace(args.interval, goes_on, lambda: _print(sampler.sample()))
        return 0
    paths = runs.RunPaths(Path(args.run_dir))
    # Held until this process ends: of several supervisors on a node one at a time samples.
    lock = _take_turn(paths.telemetry_dir / f".{node}.lock", args.interval, goes_on)
    with contextlib.ExitStack() as stack:
        if lock is not None:
            stack.callback(os.close, lock)
        keep_pace(args.interval, goes_on, _Writer(sampler, paths, node, args.started_time).tick)
    return 0


def keep_pace(interval_s: float, goes_on: Callable[[], bool], tick: Callable[[], None]) -> None:
    """Call `tick` at every multiple of the interval. Ticks that are already late are skipped, so that the pace does not drift."""
    start = time.monotonic()
    while goes_on():
        tick()
        late_s = time.monotonic() - start
        time.sleep(interval_s - late_s % interval_s)


class Sampler:
    """Looks at the node and makes encoded records."""

    def __init__(self, node: str, pid: Optional[int], ignored: Iterable[int], env: Mapping[str, str]) -> None:
        self._node = node
        self._gpus = Gpus(env)
        self._gaps: List[Gap] = list(self._gpus.gaps)
        self._has_looked = False
        of_job = pid if pid is not None else os.getpid()
        self._num_cpus = limits.allotted_cpus(of_job, env)
        self._memory_limit_mib = limits.memory_limit_mib(of_job, env)
        if pid is not None:
            self._processes = ProcessTable(root=step_root(pid), ignored=[*ignored, pid])
        else:
            self._processes = ProcessTable(belongs=own_processes(env.get("SLURM_JOB_ID")), ignored=ignored)

    def sample(self) -> List[bytes]:
        """Host, GPUs, the largest processes, and gaps that are new."""
        time_s = time.time()
        processes = self._processes.sample(time.monotonic())
        gpus = self._gpus.sample()
        records = [self._host(processes)]
        self._has_looked = True
        records += [{"kind": "gpu", **record} for record in gpus.records]
        records += [self._process(process, gpus.process_memory_mib) for process in processes[:_MAX_PROCESSES]]
        self._gaps += gpus.gaps
        return [*self._encode(records, time_s), *self._encode(map(_gap_record, gpus.gaps), time_s)]

    def gap_lines(self) -> List[bytes]:
        """All gaps known so far, for the top of a file."""
        return self._encode(map(_gap_record, self._gaps), time.time())

    def add_gap(self, gap: Gap) -> None:
        """Note something else that is not measured; it is said once."""
        if gap not in self._gaps:
            self._gaps.append(gap)

    def _encode(self, records: Iterable[Record], time_s: float) -> List[bytes]:
        when = {"time_s": round(time_s, 3), "node": self._node}
        return [encode_short({"kind": record["kind"], **when, **record}) for record in records]

    def _host(self, processes: List[Process]) -> Record:
        measured = [process.cpu_pct for process in processes if process.cpu_pct is not None]
        is_measured = bool(measured) or (self._has_looked and not processes)
        cpu_pct = min(100.0, sum(measured) / self._num_cpus) if is_measured else None
        used_mib = sum(process.rss_mib for process in processes)
        available_mib = limits.read_meminfo_mib("MemAvailable")
        if available_mib is not None and self._memory_limit_mib is not None:
            available_mib = min(available_mib, max(0.0, self._memory_limit_mib - used_mib))
        return {
            "kind": "host",
            "cpu_pct": _rounded(cpu_pct),
            "num_cpus": self._num_cpus,
            "memory_used_mib": _rounded(used_mib),
            "memory_limit_mib": _rounded(self._memory_limit_mib),
            "memory_available_mib": _rounded(available_mib),
            "num_processes": len(processes),
        }

    def _process(self, process: Process, gpu_memory_mib: Mapping[int, float]) -> Record:
        return {
            "kind": "process",
            "pid": process.pid,
            "name": process.name,
            "rank": process.rank,
            "cpu_pct": _rounded(process.cpu_pct),
            "rss_mib": _rounded(process.rss_mib),
            "gpu_memory_mib": _rounded(gpu_memory_mib.get(process.pid)),
        }


class _Writer:
    """Writes samples to the run directory, and what the trainer says about itself to run.json. No tick raises."""

    def __init__(
        self, sampler: Sampler, paths: runs.RunPaths, node: str, started_time_s: Optional[float]
    ) -> None:
        self._sampler = sampler
        self._paths = paths
        self._file = TelemetryFile(paths, node)
        self._started_time_s = started_time_s
        self._has_said_gaps = False
        self._has_folded_start = False

    def tick(self) -> None:
        # Taken first: a sample returns the gaps that it finds itself.
        known_gaps = [] if self._has_said_gaps else self._sampler.gap_lines()
        try:
            lines = self._sampler.sample()
        except Exception as error:
            self._sampler.add_gap(
                ("host", f"the sampler failed: {type(error).__name__}: {error}", "report it")
            )
            lines = []
        with contextlib.suppress(OSError):  # a full disk: the next sample may find room again
            # A file that has just begun lacks the gaps; the next tick says them again.
            is_new_file = self._file.append([*known_gaps, *lines])
            self._has_said_gaps = not is_new_file or not self._has_said_gaps
        with contextlib.suppress(OSError, runs.RunFileError):
            self._fold()

    def _fold(self) -> None:
        """On the first node only: there the supervisor gave the time of the start."""
        if self._started_time_s is None:
            return
        from coach.node import trainer_facts

        if not self._has_folded_start:
            trainer_facts.fold_start(self._paths, self._started_time_s)
            self._has_folded_start = True
        if trainer_facts.fold(self._paths, self._started_time_s):
            self._started_time_s = None


def _take_turn(path: Path, interval_s: float, goes_on: Callable[[], bool]) -> Optional[int]:
    """Wait for the lock of this node. None where the file system has no locks: then every sampler writes."""
    while goes_on():
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            os.close(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        time.sleep(interval_s)
    return None


def _print(lines: Iterable[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.flush()


def _gap_record(gap: Gap) -> Record:
    what, because, how = gap
    return {"kind": "gap", "what": what, "because": because, "how": how}


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)
