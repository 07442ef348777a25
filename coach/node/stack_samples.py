"""Where each rank spends its time: 20 stacks of each rank after warm-up, and again when progress stalls.

A thread of the sampler takes them beside the training. Only a process that registered faulthandler for
coach's signal gets the signal (`ask_faulthandler` checks first). A burst is reduced to counts at once: the
file holds one short record per rank and burst.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from statistics import median
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Tuple

from coach import runs
from coach.node.processes import read_stat, step_root
from coach.node.stacks import Rank, Threads, ask_faulthandler, find_ranks
from coach.node.telemetry_file import encode_short
from coach.trusted import open_trusted

NUM_SAMPLES = 20
"""With this number a share of 50 % is known to about ±11 points (one standard error)."""
SAMPLE_INTERVAL_S = 0.5
"""Seconds; not a multiple of a usual step. A burst takes ten seconds, so the end of an epoch does not fill
it."""
AFTER_STEPS_S = 10.0
"""Seconds from the first metric record, or the first loss in a log, to the first burst: compilation and the
first allocations are over by then."""
WITHOUT_STEPS_S = 60.0
"""Seconds from the sampler's start to the first burst of a program that reports no loss."""
MAX_LOOK_BYTES = 1 << 18
"""The most bytes that are read of a log between two looks, until a loss is found."""
STALL_S = 300.0
"""A shorter silence is not a stall: evaluations and checkpoints take minutes."""
STALL_INTERVALS = 10
"""A silence is a stall if it is longer than this many usual intervals between two signs of progress."""
MAX_BURSTS = 50
"""Per run and node: the file stays below 50 × 900 bytes per rank."""
LOOK_INTERVAL_S = 5.0
"""Seconds between looks at the sizes of logs and metrics, which lie on a shared file system."""

_LOSS = re.compile(rb"(?i)loss\b[\"']?[^\w\n]{1,6}-?(?:\d|nan|inf)")

WARM_UP, STALLED = "warm_up", "stalled"
COLLECTIVE, DATA, SAVE = "collective", "data", "save"
OPTIMIZER, BACKWARD, FORWARD, OTHER = "optimizer", "backward", "forward", "other"

_MAX_PLACE = 120


class Due(NamedTuple):
    """The reason for a burst now, and the seconds of silence before it (None: the run never wrote)."""

    why: str
    silent_s: Optional[float]


class Schedule:
    """Decides when a burst is due. Reads no clock and no file: both are passed in."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._steps_s: Optional[float] = None
        self._size: Optional[int] = None
        self._moved_s: Optional[float] = None
        self._intervals: Deque[float] = deque(maxlen=50)
        self._has_warmed_up = False
        self._wait_factor = 1
        self._num_bursts = 0

    def look(self, now_s: float, has_steps: bool, size: int) -> Optional[Due]:
        """The burst that is due at `now_s` (monotonic seconds), or None.

        `has_steps`: the training was seen to make steps. `size`: bytes of metrics and logs.

        Within one stall, bursts come after 1, 2, 4, … times its threshold, so the newest burst is never older
        than the silence before it. A run that never wrote has no stall.
        """
        self._note(now_s, has_steps, size)
        if self._num_bursts >= MAX_BURSTS:
            return None
        if not self._has_warmed_up:
            since_s = now_s - (self._start_s if self._steps_s is None else self._steps_s)
            if since_s < (WITHOUT_STEPS_S if self._steps_s is None else AFTER_STEPS_S):
                return None
            self._has_warmed_up = True
            self._num_bursts += 1
            return Due(WARM_UP, None if self._moved_s is None else now_s - self._moved_s)
        if self._moved_s is None or now_s - self._moved_s < self._stall_s() * self._wait_factor:
            return None
        self._wait_factor *= 2
        self._num_bursts += 1
        return Due(STALLED, now_s - self._moved_s)

    def _note(self, now_s: float, has_steps: bool, size: int) -> None:
        if has_steps and self._steps_s is None:
            self._steps_s = now_s
        if size == (self._size or 0):
            return
        if self._moved_s is not None:
            self._intervals.append(now_s - self._moved_s)
        self._size, self._moved_s, self._wait_factor = size, now_s, 1

    def _stall_s(self) -> float:
        usual_s = median(self._intervals) if self._intervals else 0.0
        return max(STALL_S, STALL_INTERVALS * usual_s)


def reduce_burst(dumps: List[Threads]) -> Dict[str, Any]:
    """Counts by category of the main thread, and its three most frequent own lines."""
    mains = [next((thread for thread in threads if thread["is_main"]), None) for threads in dumps]
    stacks = [main["frames"] for main in mains if main and main["frames"]]
    places = Counter(own_place(frames) for frames in stacks)
    return {
        "num_samples": len(stacks),
        "categories": dict(Counter(category_of(frames) for frames in stacks).most_common()),
        "places": [list(each) for each in places.most_common(3)],
    }


def take_burst(rank: Rank, pause: Callable[[float], None]) -> Optional[Dict[str, Any]]:
    """One rank's record without its heading. None: the process offers no stacks, or returned none."""
    before_s, before = time.monotonic(), read_stat(rank.pid)
    dumps: List[Threads] = []
    for number in range(NUM_SAMPLES):
        threads, _ = ask_faulthandler(rank.pid)
        if threads is None:
            break  # it ended, or its interpreter is blocked: not asked again in this burst
        dumps.append(threads)
        pause(max(0.0, before_s + (number + 1) * SAMPLE_INTERVAL_S - time.monotonic()))
    after = read_stat(rank.pid)
    reduced = reduce_burst(dumps)
    if not reduced["num_samples"]:
        return None
    if before and after and before.start_ticks == after.start_ticks:
        passed_s = max(0.001, time.monotonic() - before_s)
        reduced["cpu_pct"] = round(100 * (after.cpu_s - before.cpu_s) / passed_s, 1)
    return {"pid": rank.pid, **({} if rank.rank is None else {"rank": rank.rank}), **reduced}


class StackSampler:
    """Takes bursts in a thread, so that samples of the node go on meanwhile. No call raises."""

    def __init__(self, paths: runs.RunPaths, node: str, supervisor: int, start_s: float) -> None:
        self._paths = paths
        self._node = node
        self._supervisor = supervisor
        self._schedule = Schedule(start_s)
        self._look_due_s = start_s
        self._has_loss = False
        self._looked = {}  # type: Dict[str, int]
        """Log → number of bytes already searched for a loss."""
        self._log_paths = None  # type: Optional[List[os.PathLike[str]]]
        self._working: Optional[threading.Thread] = None

    def tick(self, now_s: float) -> None:
        """Check the run's progress, at most every five seconds, and start the burst that is due."""
        if now_s < self._look_due_s or (self._working is not None and self._working.is_alive()):
            return
        self._look_due_s = now_s + LOOK_INTERVAL_S
        self._working = threading.Thread(target=self._work, args=(now_s,), daemon=True)
        self._working.start()

    def _work(self, now_s: float) -> None:
        metrics_bytes = sum(_size(path) for path in _metric_files(self._paths))
        logs = {os.fspath(path): _size(path) for path in self._logs()}
        self._has_loss = self._has_loss or metrics_bytes > 0 or self._finds_loss(logs)
        due = self._schedule.look(now_s, self._has_loss, metrics_bytes + sum(logs.values()))
        if due is None:
            return
        try:
            self.take(due)
        except (OSError, RuntimeError):
            return  # a full disk, or no thread left: the training must not notice

    def _logs(self) -> "List[os.PathLike[str]]":
        """The files to which the training writes: run.json's `output` names those outside the run
        directory."""
        if self._log_paths is None:
            try:
                named = runs.read_json(self._paths.run_json).get("output")
            except (OSError, runs.RunFileError):
                return [self._paths.stdout_log, self._paths.stderr_log]
            output = named if isinstance(named, dict) else {}
            names = [output.get("stdout") or "stdout.log", output.get("stderr") or "stderr.log"]
            self._log_paths = [self._paths.run_dir / name for name in dict.fromkeys(map(str, names))]
        return self._log_paths

    def _finds_loss(self, logs: "Dict[str, int]") -> bool:
        """Search the new part of the logs for a loss, which shows that the training makes steps."""
        for path, size in logs.items():
            start = max(self._looked.get(path, 0), size - MAX_LOOK_BYTES)
            if size <= start:
                continue
            try:
                with open_trusted(path, owner=None, follows_links=True) as file:
                    file.seek(max(0, start - 64))  # the last look may have cut a line in two
                    found = _LOSS.search(file.read(MAX_LOOK_BYTES))
            except OSError:
                continue
            self._looked[path] = size
            if found is not None:
                return True
        return False

    def take(self, due: Due) -> None:
        """Take one burst of each rank on this node and append it. Raises OSError if it cannot be written."""
        # Each task of a Slurm step has a supervisor, but only one of the node's supervisors samples.
        ranks = find_ranks(step_root(self._supervisor), None, self._node)
        with ThreadPoolExecutor(max(1, min(64, len(ranks)))) as pool:
            found = list(pool.map(lambda rank: take_burst(rank, time.sleep), ranks))
        heading = {"kind": "stack_samples", "time_s": round(time.time(), 3), "node": self._node}
        why: Dict[str, Any] = {"why": due.why, "has_steps": self._has_loss}
        if due.silent_s is not None:
            why["silent_s"] = round(due.silent_s, 1)
        lines = [encode_short({**heading, **why, **each}) for each in found if each is not None]
        if not lines:
            return
        self._paths.stacks_dir.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._paths.stack_samples_of(self._node), flags, 0o600)
        try:
            os.write(descriptor, b"".join(lines))
        finally:
            os.close(descriptor)


def _metric_files(paths: runs.RunPaths) -> "List[os.PathLike[str]]":
    try:
        return list(paths.metrics_dir.glob("rank-*.jsonl"))
    except OSError:
        return []


def _size(path: "os.PathLike[str]") -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 (either kind of path)
    except OSError:
        return 0


class Row(NamedTuple):
    """A stack belongs to the category if one of its frames matches both function and file."""

    category: str
    function: "re.Pattern[str]"
    places: Tuple[str, ...]


# The first row with a matching frame counts: an all_reduce inside backward is a collective.
_ROWS = (
    Row(
        COLLECTIVE,
        re.compile(
            r"(all_?(gather|reduce|to_?all)|reduce|broadcast|gather|scatter|(monitored_)?barrier|send|recv"
            r"|new_group|(init|destroy)_process_group)(_\w+)?"
        ),
        ("/torch/distributed/", "/deepspeed/comm/", "/horovod/"),
    ),
    Row(DATA, re.compile(r"__next__|__iter__|_next_data|_get_data"), ("/torch/utils/data/dataloader.py",)),
    Row(
        SAVE,
        re.compile(r"save|_save|async_save"),
        ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/"),
    ),
    Row(OPTIMIZER, re.compile(r"step|zero_grad"), ("/torch/optim/",)),
    Row(BACKWARD, re.compile(r"backward|_engine_run_backward"), ("/torch/",)),
    Row(FORWARD, re.compile(r"_call_impl|_wrapped_call_impl|forward"), ("/torch/nn/",)),
)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen", "<string>")

Frames = List[Mapping[str, Any]]


def category_of(frames: Frames) -> str:
    """The category of the first row that matches a frame; `other` for the training's own code."""
    for row in _ROWS:
        for frame in frames:
            name = str(frame["function"]).rpartition(".")[2]
            if row.function.fullmatch(name) and any(place in frame["file"] for place in row.places):
                return row.category
    return OTHER


def own_place(frames: Frames) -> str:
    """`train.py:41 load`: the innermost frame outside of installed libraries, at most 120 characters."""
    own = [frame for frame in frames if not any(place in frame["file"] for place in _LIBRARIES)]
    frame = (own or frames)[0]
    return f"{PurePath(frame['file']).name}:{frame['line']} {frame['function']}"[:_MAX_PLACE]
