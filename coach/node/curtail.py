"""Ends the training of a batch file before its time limit, so that a further segment can continue it.

The file runs unchanged, and its shell would run its next line after the training. So the shell is stopped
first. Then the programs that it started get TERM, which leaves them time for a checkpoint. When all of them
have ended, the shell is ended too. A batch file in another language gets TERM itself, and so does a program
that has taken the place of the shell (`exec srun …`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import time
from typing import Callable, Dict, Iterator, List, Set

from coach.node.processes import Stat, read_stat
from coach.trusted import read_small

_SHELL = re.compile(r"-?(?:ba|da|a|z|k|mk|c|tc|fi)?sh")
_LOOK_EVERY_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `curtail`."""
    parser.add_argument(
        "--pid", required=True, type=int, metavar="PID", help="the process that runs the file: coach run"
    )


def run(args: argparse.Namespace) -> int:
    """Ask the training to end, and wait until it has. Exit status 1: the batch file is not running."""
    return 0 if curtail(args.pid) else 1


def curtail(pid: int, sleep: Callable[[float], None] = time.sleep) -> bool:
    """End the programs that a batch file has started, and then the file's shell. Returns False if it is not
    running."""
    shell = next((each for each in _children(pid, _table()) if not _is_helper(each)), None)
    if shell is None:
        return False
    if not _SHELL.fullmatch(shell.name):
        _send(shell, signal.SIGTERM)
        return True
    _send(shell, signal.SIGSTOP)
    told: Set[int] = set()
    while True:
        table = _table()
        left = {each.pid: each for each in _descendants(shell.pid, table)}
        if not left and not any(each in table for each in told):
            break
        for each in _topmost(shell.pid, table):
            if each.pid not in told:
                told.add(each.pid)
                _send(each, signal.SIGTERM)
        sleep(_LOOK_EVERY_S)
    _send(shell, signal.SIGTERM)
    _send(shell, signal.SIGCONT)
    return True


def _table() -> Dict[int, Stat]:
    """All processes of this node that have not ended."""
    found: Dict[int, Stat] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (names of many files)
        stat = read_stat(int(name)) if name.isdigit() else None
        if stat is not None and not _is_dead(stat.pid):
            found[stat.pid] = stat
    return found


def _is_dead(pid: int) -> bool:
    """True for a process that has ended and waits to be reaped: the stopped shell does not reap it."""
    state = read_small(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1]
    return state in ([], ["Z"], ["X"])


def _children(pid: int, table: Dict[int, Stat]) -> List[Stat]:
    return [each for each in table.values() if each.parent == pid]


def _descendants(pid: int, table: Dict[int, Stat]) -> Iterator[Stat]:
    for child in _children(pid, table):
        yield child
        yield from _descendants(child.pid, table)


def _topmost(pid: int, table: Dict[int, Stat]) -> Iterator[Stat]:
    """The topmost programs below a shell. A launcher passes a signal on to its ranks; a shell does not."""
    for child in _children(pid, table):
        below = _children(child.pid, table)
        if _SHELL.fullmatch(child.name) and below:
            yield from _topmost(child.pid, table)
        else:
            yield child


def _is_helper(process: Stat) -> bool:
    """True for a child of `coach run` that runs coach's own code: the sampler, or a fork of it."""
    return any(word.endswith("coach/node") for word in _words(process.pid))


def _words(pid: int) -> List[str]:
    return read_small(f"/proc/{pid}/cmdline").split("\0")


def _send(process: Stat, signum: int) -> None:
    """Signal the process that was seen, and no other one that has its pid now."""
    now = read_stat(process.pid)
    if now is not None and now.start_ticks == process.start_ticks:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signum)
