"""The position of each rank on this node: its Python stacks, or the next best source that the node allows.

It runs beside the training for a few seconds, in a job step of its own. No process is stopped, and a process
gets a signal only if it has registered for it. The answer is one file per node, because srun cuts its output
lines at 1 KiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from coach import runs
from coach.node.node_name import node_name
from coach.node.processes import Stat, own_processes, read_stat
from coach.trusted import read_small

SIGNAL = 44
"""The signal that startup/sitecustomize.py answers through faulthandler."""
PY_SPY, FAULTHANDLER, FLIGHT_RECORDER, PROC = "py-spy", "faulthandler", "flight recorder", "/proc"

_DUMP = re.compile(r"^/memfd:coach-stacks \(deleted\)$")
_FLIGHT = re.compile(r"^/memfd:coach-flight-(\d+) \(deleted\)$")
_THREAD = re.compile(r"^(Current t|T)hread 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_CPU_WINDOW_S = 0.5
_SETTLED_S = 0.1
_DUMP_S, _FLIGHT_S = 2.0, 4.0
_LEAST_PY_SPY_S = 1.0
_MAX_FRAMES = 100
_MAX_WORKERS = 16
_HELPERS = ("resource_tracker", "compile_worker")
"""Words in the command line of a Python child that does none of the program's work: multiprocessing's, and
torch.compile's."""

Threads = List[Dict[str, Any]]
Answer = Tuple[Optional[Any], str]
"""The answer of a source; or None, and the reason why it gave none."""


class Rank(NamedTuple):
    """The process of one rank. `rank` is None if no launcher gave it a number."""

    pid: int
    rank: Optional[int]
    world_size: Optional[int]
    path: str
    workers: Tuple[int, ...] = ()
    """Python processes below it, such as DataLoader workers, and ended children that it has not collected."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="where the node's file is written")
    parser.add_argument("--pid", type=int, help="look at this process's descendants (default: the Slurm job)")
    parser.add_argument("--py-spy", metavar="FILE", help="py-spy, where the job's PATH does not have it")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="S", help="seconds in all (default: 10)"
    )


def run(args: argparse.Namespace) -> int:
    """Write DIR/<node>.json. Exit status 1 if that fails."""
    deadline_s = time.monotonic() + args.timeout
    node = node_name(os.environ)
    ranks = find_ranks(args.pid, os.environ.get("SLURM_JOB_ID"), node)
    with ThreadPoolExecutor(max(1, min(64, len(ranks)))) as pool:
        found = list(pool.map(lambda rank: look(rank, args.py_spy, deadline_s), ranks))
    value = {"schema": runs.SCHEMA, "node": node, "time_s": time.time(), "ranks": found}
    try:
        runs.write_json(Path(args.out) / f"{node}.json", value)
    except OSError as error:
        print(f"coach: {node}: {args.out}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def find_ranks(root: Optional[int], job_id: Optional[str], node: str) -> List[Rank]:
    """The topmost Python process of each rank. If no launcher gave rank numbers: the topmost Python processes
    of the job."""
    belongs = own_processes(None if root else job_id)
    stats = _all_processes()
    parents = {stat.pid: stat.parent for stat in stats}
    pids = [stat.pid for stat in stats if belongs(stat)]
    if root is not None:
        pids = [pid for pid in pids if _is_below(pid, root, parents)]
    environments = _trainings(pids, node)
    above = {pid: [other for other in _above(pid, parents) if other in environments] for pid in environments}
    tops = _tops_by_rank(environments, above) or [pid for pid in environments if not above[pid]]
    workers = _workers(tops, above)
    return [_rank(pid, environments[pid])._replace(workers=tuple(workers[pid])) for pid in tops]


def _all_processes() -> List[Stat]:
    found = (read_stat(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return [stat for stat in found if stat]


def _trainings(pids: List[int], node: str) -> Dict[int, Dict[str, str]]:
    """The environments of the Python processes on this node that are not coach's own."""
    environments: Dict[int, Dict[str, str]] = {}
    for pid in pids:
        if _is_python(pid) and not _is_coach(pid):
            env = _environment(pid)
            # Nodes share their processes only if several Slurm nodes run on one machine.
            if env.get("SLURMD_NODENAME", node) == node:
                environments[pid] = env
    return environments


def _tops_by_rank(environments: Mapping[int, Dict[str, str]], above: Mapping[int, List[int]]) -> List[int]:
    """The topmost process of each rank that has a number. `above` maps a process → its ancestors among
    these."""
    numbers = {pid: _first(env, "RANK", "OMPI_COMM_WORLD_RANK") for pid, env in environments.items()}
    tops: Dict[str, int] = {}
    for pid in sorted(environments):
        number = numbers[pid]
        if number is not None and number not in [numbers[other] for other in above[pid]]:
            tops.setdefault(number, pid)
    return list(tops.values())


def _workers(tops: List[int], above: Mapping[int, List[int]]) -> Dict[int, List[int]]:
    """The processes below each rank, and below no other rank. `above` is as for `_tops_by_rank`."""
    found: Dict[int, List[int]] = {pid: [] for pid in tops}
    for pid in sorted(above):
        nearest = next((other for other in above[pid] if other in found), None)
        if nearest is not None and pid not in found and not _is_helper(pid):
            found[nearest].append(pid)
    for pid, parent in _ended_children().items():
        if parent in found:
            found[parent].append(pid)
    return found


def _is_helper(pid: int) -> bool:
    command = read_small(f"/proc/{pid}/cmdline")
    return any(word in command for word in _HELPERS)


def _ended_children() -> Dict[int, int]:
    """Zombie → its parent, which has not collected it."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (only the names are needed)
        if name.isdecimal():
            fields = read_small(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(fields) > 1 and fields[0] == "Z":
                found[int(name)] = int(fields[1])
    return found


def look(rank: Rank, py_spy: Optional[str], deadline_s: float) -> Dict[str, Any]:
    """Try the sources in order: py-spy, then the process's own offers. The kernel's view is always added."""
    workers = rank.workers[:_MAX_WORKERS]
    watch = _Watch((rank.pid, *workers))
    missed: List[Dict[str, str]] = []

    def ask(rung: str, work: Callable[[], Answer]) -> Optional[Any]:
        found, because = work()
        if found is None:
            missed.append({"rung": rung, "because": because})
        return found

    rung, flight = PY_SPY, None
    threads = ask(PY_SPY, lambda: ask_py_spy(rank, py_spy, deadline_s))
    if threads is None:
        rung = FAULTHANDLER
        threads = ask(FAULTHANDLER, lambda: ask_faulthandler(rank.pid))
        flight = ask(FLIGHT_RECORDER, lambda: ask_flight_recorder(rank.pid))
    if threads is None:
        rung = FLIGHT_RECORDER if flight is not None else PROC
    above = {PY_SPY: 0, FAULTHANDLER: 1, FLIGHT_RECORDER: 2, PROC: 3}[rung]
    beside = [_look_at_worker(pid, rank, py_spy, deadline_s) for pid in workers]
    cpu_pct = watch.cpu_pct()
    return {
        "pid": rank.pid,
        "rank": rank.rank,
        "world_size": rank.world_size,
        "rung": rung,
        "missed": missed[:above],
        "threads": threads or [],
        "flight": flight,
        **_kernel_view(rank.pid),
        "cpu_pct": cpu_pct[rank.pid],
        "num_sockets": _num_sockets(rank.pid),
        "num_workers": len(rank.workers),
        "workers": [{**worker, "cpu_pct": cpu_pct[worker["pid"]]} for worker in beside],
    }


def _look_at_worker(pid: int, rank: Rank, py_spy: Optional[str], deadline_s: float) -> Dict[str, Any]:
    """One after the other: forked workers write their own stacks to the in-memory file of their rank."""
    view, threads, rung = _kernel_view(pid), None, PY_SPY
    if view["state"] != "Z":
        threads, _ = ask_py_spy(rank._replace(pid=pid), py_spy, deadline_s)
        if threads is None and time.monotonic() < deadline_s - _DUMP_S:
            rung = FAULTHANDLER
            threads, _ = ask_faulthandler(pid)
    return {"pid": pid, "rung": rung if threads else PROC, "threads": threads or [], **view}


def _kernel_view(pid: int) -> Dict[str, Any]:
    channel = read_small(f"/proc/{pid}/wchan").strip("0\n") or None
    return {"state": _state(pid), "wait_channel": channel}


class _Watch:
    """Measures the processor time of processes from its making on."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._begin_s = time.monotonic()
        self._before = {pid: read_stat(pid) for pid in pids}

    def cpu_pct(self) -> Dict[int, Optional[float]]:
        """Process → percent of one CPU, over half a second at least; None if it ended meanwhile."""
        time.sleep(max(0.0, self._begin_s + _CPU_WINDOW_S - time.monotonic()))
        found: Dict[int, Optional[float]] = {}
        for pid, before in self._before.items():
            after = read_stat(pid)
            found[pid] = None
            if before and after and before.start_ticks == after.start_ticks:
                used_s = after.cpu_s - before.cpu_s
                found[pid] = round(100 * used_s / (time.monotonic() - self._begin_s), 1)
        return found


def ask_py_spy(rank: Rank, named: Optional[str], deadline_s: float) -> Answer:
    """py-spy reads the stacks from outside: the process is not stopped and need not answer."""
    beside = Path(sys.executable).parent / "py-spy"
    places = [shutil.which("py-spy", path=rank.path), named, str(beside), shutil.which("py-spy")]
    program = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if program is None:
        return None, "not installed on this node (pip install py-spy, where the training runs)"
    because = "no time was left"
    for _ in range(3):  # the stack of a running process may change while it is read
        left_s = deadline_s - time.monotonic() - _DUMP_S - _FLIGHT_S
        if left_s < _LEAST_PY_SPY_S:
            break
        argv = [program, "dump", "--json", "--nonblocking", "--pid", str(rank.pid)]
        try:
            done = subprocess.run(
                argv, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=left_s
            )
            if done.returncode == 0:
                return parse_py_spy(done.stdout), ""
        except subprocess.TimeoutExpired:
            return None, f"no answer within {left_s:.0f} s"
        except (OSError, ValueError) as error:
            return None, str(error)
        said = done.stderr.decode("utf-8", "replace")
        if "ermission" in said or "not permitted" in said:
            scope = read_small("/proc/sys/kernel/yama/ptrace_scope")
            return None, "ptrace is refused here" + (
                f" (kernel.yama.ptrace_scope = {scope})" if scope else ""
            )
        because = (said.strip().splitlines() or [f"exit status {done.returncode}"])[0]
    return None, because


def parse_py_spy(data: bytes) -> Threads:
    """Raises ValueError for text that is not py-spy's JSON."""
    try:
        threads: Threads = [
            {
                "name": thread.get("thread_name"),
                "is_main": thread["os_thread_id"] == thread["pid"],
                "frames": [
                    {"function": frame["name"], "file": frame["filename"], "line": frame["line"] or None}
                    for frame in thread["frames"][:_MAX_FRAMES]
                ],
            }
            for thread in json.loads(data)
        ]
        return _with_main_thread(threads)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"an answer of py-spy's without {error}") from None


def ask_faulthandler(pid: int) -> Answer:
    """The process writes its own stacks at a signal, even while its interpreter is blocked in C code."""
    fd, _ = _offered(pid, _DUMP)
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", read_small(f"/proc/{pid}/status"), re.MULTILINE)
    if fd is None or caught is None or not int(caught[1], 16) >> (SIGNAL - 1) & 1:
        return None, "the process was not started below `coach run`"
    text = _after(fd, lambda: os.kill(pid, SIGNAL), _DUMP_S)
    threads = parse_faulthandler(text)
    return (threads, "") if threads else (None, f"no answer within {_DUMP_S:.0f} s")


def parse_faulthandler(text: str) -> Threads:
    """The threads of one dump. The main thread is the one that got the signal."""
    threads: Threads = []
    for row in text.splitlines():
        head, frame = _THREAD.match(row), _FRAME.match(row)
        if head:
            threads.append({"name": head[2], "is_main": head[1] == "Current t", "frames": []})
        elif frame and threads:
            line = int(frame[2]) if frame[2].isdecimal() and len(frame[2]) < 10 else None
            threads[-1]["frames"].append({"function": frame[3], "file": frame[1], "line": line})
    return _with_main_thread(threads)


def _with_main_thread(threads: Threads) -> Threads:
    """The same threads with one marked as the main thread: by its name, else the oldest, which comes last.

    Before Python 3.11 py-spy does not know which thread of the kernel a thread is.
    """
    if threads and not any(thread["is_main"] for thread in threads):
        named = [thread for thread in threads if thread["name"] == "MainThread"]
        (named or threads)[-1]["is_main"] = True
    return threads


def ask_flight_recorder(pid: int) -> Answer:
    """A thread of coach's trainers writes torch's record of collectives when data arrives in its pipe."""
    fd, match = _offered(pid, _FLIGHT)
    if fd is None or match is None:
        return None, "the process offers none (coach's trainers do, from torch 2.9)"

    def ring() -> None:
        pipe = os.open(f"/proc/{pid}/fd/{match[1]}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"\n")
        finally:
            os.close(pipe)

    text = _after(fd, ring, _FLIGHT_S, "\n")
    try:
        flight = parse_flight(json.loads(text))
    except (ValueError, RecursionError):
        return None, f"no answer within {_FLIGHT_S:.0f} s"
    return flight, "it has recorded no collective"


def parse_flight(value: Any) -> Optional[Dict[str, Any]]:
    """The last collective that this rank started, preferably in the group of all ranks; None if unknown.

    Raises ValueError for a value of another form.
    """
    try:
        entries = [entry for entry in value.get("entries", ()) if not entry.get("is_p2p")]
        of_all = [entry for entry in entries if entry["process_group"][1] == "default_pg"]
        last = max(of_all or entries, key=lambda entry: int(entry["record_id"]), default=None)
        if last is None:
            return None
        return {
            "operation": last["profiling_name"],
            "number": int(last["collective_seq_id"]),
            "is_done": bool(last["retired"]),
        }
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"an answer of the flight recorder's without {error}") from None


def _offered(pid: int, name: "re.Pattern[str]") -> Tuple[Optional[str], Optional["re.Match[str]"]]:
    """The in-memory file with this name that a process keeps open."""
    for link in _links(pid):
        with contextlib.suppress(OSError):
            match = name.match(os.readlink(link))  # noqa: PTH115 (a text, not a place)
            if match:
                return link, match
    return None, None


def _after(path: str, ask: Callable[[], None], wait_s: float, end: str = "") -> str:
    """The text that a process writes to an in-memory file after a request: up to its end mark or, without
    one, until no more arrives.

    With an end mark the text begins at the start of the file, else after the existing content.
    """
    text, grew_s = "", time.monotonic()
    try:
        with open(path, "r+b" if end else "rb") as file:
            if end:
                file.truncate(0)
            else:
                file.seek(0, os.SEEK_END)
            ask()
            deadline_s = time.monotonic() + wait_s
            while time.monotonic() < deadline_s and not (end and text.endswith(end)):
                more = file.read()
                if more:
                    text, grew_s = text + more.decode("utf-8", "replace"), time.monotonic()
                elif text and not end and time.monotonic() - grew_s > _SETTLED_S:
                    break
                time.sleep(0.01)
    except OSError:
        return text
    return text


def _rank(pid: int, env: Dict[str, str]) -> Rank:
    rank = _first(env, "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    size = _first(env, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    return Rank(pid, int(rank) if rank else None, int(size) if size else None, env.get("PATH", ""))


def _first(env: Dict[str, str], *names: str) -> Optional[str]:
    return next((env[name] for name in names if env.get(name, "").isdecimal()), None)


def _environment(pid: int) -> Dict[str, str]:
    pairs = (entry.partition("=") for entry in read_small(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, _, value in pairs}


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        # The text of a link is compared.
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")  # noqa: PTH115, PTH119
    return False


def _is_coach(pid: int) -> bool:
    """True for this process, the supervisor and the sampler, which run beside the training or above it."""
    words = read_small(f"/proc/{pid}/cmdline").split("\0")[:5]
    # Python 3.9 has neither pairwise nor zip's strict.
    modules = [name for flag, name in zip(words, words[1:]) if flag == "-m"]  # noqa: B905, RUF007
    return (
        pid == os.getpid()
        or any(word.endswith(("coach/node", "bin/coach")) for word in words[:3])
        or any(name == "coach" or name.startswith("coach.") for name in modules)
    )


def _above(pid: int, parents: Dict[int, int]) -> List[int]:
    """Parent, grandparent and so on. Ended processes may leave a cycle of pids, at which the list ends
    too."""
    found: List[int] = []
    while pid in parents and parents[pid] not in found:
        pid = parents[pid]
        found.append(pid)
    return found


def _is_below(pid: int, root: int, parents: Dict[int, int]) -> bool:
    return pid != root and root in _above(pid, parents)


def _state(pid: int) -> Optional[str]:
    """The kernel's letter: R runs, S sleeps, D waits for a device, T is stopped."""
    text = read_small(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return text[0] if text else None


def _num_sockets(pid: int) -> Optional[int]:
    count = None
    for link in _links(pid):
        with contextlib.suppress(OSError):
            # A text, not a place.
            count = (count or 0) + os.readlink(link).startswith("socket:")  # noqa: PTH115
    return count


def _links(pid: int) -> List[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208
    except OSError:
        return []
