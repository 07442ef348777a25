"""`coach sample`: takes one sample of this node each second, for a run directory or as a stream of lines.

Beside a training it is a separate process: it can fail, hang or be killed, and no other process waits for it.
It keeps its pace: late samples are skipped, even if the reader of its stream is slow. Each file begins with
gaps that list the values it cannot measure.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterable, Optional, Sequence

from coach import runs
from coach.node import share, trainer_facts
from coach.node.full_disk import FullDisk
from coach.node.gpm import GPM_HELP
from coach.node.node_name import node_name
from coach.node.processes import die_with_parent, read_stat
from coach.node.sampler import Moment, Options, Sampler, now
from coach.node.stack_samples import StackSampler
from coach.node.telemetry_file import MAX_FILE_BYTES, MAX_OLD_FILES, TelemetryFile
from coach.node.torch_build import torch_of_command

_FIRST_LOOK_S = 0.3
_CAPPED = (
    "older samples",
    f"telemetry reached its cap of {MAX_OLD_FILES + 1} files of {MAX_FILE_BYTES >> 20} MiB on this node: "
    "old samples are thinned",
    "coach run --interval 5 takes fewer samples, and keeps each one longer",
)
_PATIENCE_S = 10.0  # seconds for a single sample: a driver that no program uses takes seconds to start


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `coach sample`."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--run-dir", metavar="DIR", help="append to telemetry/NODE.jsonl of this run directory"
    )
    where.add_argument("--stream", action="store_true", help="print samples, one record a line, for ever")
    where.add_argument("--once", action="store_true", help="print one sample and end")
    parser.add_argument(
        "--node", metavar="NAME", help="name of this node (default: Slurm's name, or the host's)"
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between samples (default: 1)"
    )
    parser.add_argument(
        "--pid", type=int, metavar="PID", help="follow this process's descendants, and end with it"
    )
    parser.add_argument("--gpm", action="store_true", help=GPM_HELP)
    parser.add_argument("--ignore-pid", type=int, action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--started-time", type=float, metavar="S", help=argparse.SUPPRESS)
    parser.add_argument("--program", action="append", default=[], help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Sample until the followed process ends; without one, for ever."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # scancel sends it to every process of a step
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if args.interval <= 0:
        print(f"coach sample: --interval {args.interval:g}: expected a number above 0", file=sys.stderr)
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
        stat = read_stat(followed.pid)
        return stat is not None and stat.start_ticks == followed.start_ticks

    ignored = [os.getpid(), *args.ignore_pid]
    options = Options(node, args.pid, ignored, args.gpm, min(0.5, args.interval / 2))
    if args.once:
        options = options._replace(gpu_limit_s=_PATIENCE_S, slow_interval_s=0.0)
    sampler = Sampler(options, os.environ)
    if args.once:
        sampler.sample(now())  # opens the driver
        sampler.sample(now())
        time.sleep(_FIRST_LOOK_S)  # rates cover this time
        lines = sampler.sample(now())
        _print([*sampler.gap_lines(now()), *lines])
        return 0
    if args.stream:
        _print(sampler.gap_lines(now()))
        keep_pace(args.interval, goes_on, lambda: _print(sampler.sample(now())))
        return 0
    _write_samples(args, sampler, node, goes_on)
    return 0


def _write_samples(
    args: argparse.Namespace, sampler: Sampler, node: str, goes_on: Callable[[], bool]
) -> None:
    """Write telemetry, and the stacks of the ranks, to the run directory."""
    paths = runs.RunPaths(Path(args.run_dir))
    # Held until this process ends: only one of a node's supervisors samples at a time.
    lock = _take_turn(paths.telemetry_dir / f".{node}.lock", args.interval, goes_on)
    with contextlib.ExitStack() as stack:
        if lock is not None:
            stack.callback(os.close, lock)
        writer = Writer(sampler, paths, node, args.started_time, args.program)
        stacks = None if args.pid is None else StackSampler(paths, node, args.pid, now().monotonic_s)

        def tick() -> None:
            writer.tick(now())
            if stacks is not None:
                stacks.tick(now().monotonic_s)

        keep_pace(args.interval, goes_on, tick)


def keep_pace(interval_s: float, goes_on: Callable[[], bool], tick: Callable[[], None]) -> None:
    """Call `tick` at each multiple of the interval. Late ticks are skipped, so the pace does not drift."""
    start = time.monotonic()
    while goes_on():
        tick()
        late_s = time.monotonic() - start
        time.sleep(interval_s - late_s % interval_s)


class Writer:
    """Writes samples to the run directory, and copies the trainer's own facts to run.json. No tick raises."""

    def __init__(
        self,
        sampler: Sampler,
        paths: runs.RunPaths,
        node: str,
        started_time_s: Optional[float],
        program: Sequence[str] = (),
    ) -> None:
        self._sampler = sampler
        self._paths = paths
        self._file = TelemetryFile(paths, node)
        self._full_disk = FullDisk(paths, node)
        self._started_time_s = started_time_s
        self._program = list(program)
        self._has_said_gaps = False
        self._has_folded_start = False
        self._share_due_s = None if started_time_s is None else 0.0
        self._sharing: Optional[threading.Thread] = None

    def tick(self, at: Moment) -> None:
        """Take one sample and write it."""
        # Taken first, because a sample returns the gaps that it finds itself.
        known_gaps = [] if self._has_said_gaps else self._sampler.gap_lines(at)
        try:
            lines = self._sampler.sample(at)
        except Exception as error:
            self._sampler.add_gap(
                ("host", f"the sampler failed: {type(error).__name__}: {error}", "report it")
            )
            lines = []
        # After a full disk, the next sample may succeed.
        with contextlib.suppress(OSError), self._full_disk.watch():
            # A new file lacks the gaps; the next tick writes them again.
            is_new_file = self._file.append([*known_gaps, *lines])
            self._has_said_gaps = not is_new_file or not self._has_said_gaps
            if self._file.is_capped:
                self._sampler.add_gap(_CAPPED)
        with contextlib.suppress(OSError, runs.RunFileError):
            self._fold()
        self._share(at.monotonic_s)

    def _share(self, now_s: float) -> None:
        """Share the run on the first node only, in a thread: samples go on while the shared directory
        hangs."""
        if self._share_due_s is None or now_s < self._share_due_s:
            return
        self._share_due_s = now_s + share.INTERVAL_S
        if self._sharing is None or not self._sharing.is_alive():
            self._sharing = threading.Thread(target=share.share, args=(self._paths,), daemon=True)
            self._sharing.start()

    def _fold(self) -> None:
        """Copy the trainer's facts on the first node only: its supervisor passed on the start time."""
        if self._started_time_s is None:
            return
        if not self._has_folded_start:
            torch = None
            with contextlib.suppress(Exception):  # an installation of any form
                torch = torch_of_command(self._program)
            trainer_facts.fold_start(self._paths, self._started_time_s, torch)
            self._has_folded_start = True
        if trainer_facts.fold(self._paths, self._started_time_s):
            self._started_time_s = None


def _take_turn(path: Path, interval_s: float, goes_on: Callable[[], bool]) -> Optional[int]:
    """Wait for this node's lock. None if the file system has no locks: then each sampler writes."""
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
