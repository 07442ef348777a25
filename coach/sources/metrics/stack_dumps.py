"""Read the stacks that were taken of ranks: the files that `coach/node/stacks.py` wrote on the nodes, and the
text that `py-spy dump` prints.

Parsing is tolerant, because a node may run another version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.training.stacks import Collective, Frame, Missed, RankStack, WorkerStack
from coach.sources.values import Fields, text, whole

_PROCESS = Fields(WorkerStack, ("state", "wait_channel", "cpu_pct"))
_RANK = Fields(RankStack, ("rank", "world_size", "state", "wait_channel", "cpu_pct", "num_sockets"))
PY_SPY_DUMP = re.compile(
    r"(?:py[-_]?spy[^/]{0,60}rank|rank(?=[-_]?\d{1,6}[-_.][^/]{0,60}py[-_]?spy))[-_]?(?P<rank>\d{1,6})(?!\d)"
    r"[^/]*$",
    re.IGNORECASE,
)
"""Names of a file for the stacks of one rank: `pyspy_rank3.txt`, `rank_3.py-spy.log`."""
_MAX_BYTES = 1 << 20
"""Of the text of one process, which has a few kB."""
_PROCESS_LINE = re.compile(r"Process (\d{1,9}): ")
_FRAME_LINE = re.compile(r"^    (\S.{0,200}) \((.{1,500}?)(?::(\d{1,8}))?\)$")
"""Lines of `py-spy dump` (py-spy/src/dump.rs): `    barrier (torch/distributed/distributed_c10d.py:3675)`."""
_INSTALLED = re.compile(
    r"(?:torch|deepspeed|horovod|accelerate|transformers|(?:pytorch_)?lightning|ray|multiprocessing"
    r"|concurrent|threading|selectors|socket|queue|subprocess)(?:/|\.py$)"
)
"""py-spy prints the path of a library from its package on."""


def parse_py_spy(data: bytes, path: Path, taken_s: float) -> RankStack | None:
    """The stack of the rank that the file's name tells; None if the data are no text of `py-spy dump`."""
    named = PY_SPY_DUMP.search(path.name)
    text_ = data[:_MAX_BYTES].decode("utf-8", "replace") if named is not None else ""
    process = _PROCESS_LINE.search(text_)
    if named is None or process is None:
        return None
    threads: dict[str, list[Frame]] = {}
    thread = ""
    for line in text_.splitlines():
        if found := _FRAME_LINE.match(line):
            file = f"/site-packages/{found[2]}" if _INSTALLED.match(found[2]) else found[2]
            threads.setdefault(thread, []).append(Frame(found[1], file, int(found[3]) if found[3] else None))
        elif line.startswith("Thread "):
            thread = line
    frames = next((each for thread, each in threads.items() if thread.endswith('"MainThread"')), [])
    pid, rank = int(process[1]), int(named["rank"])
    return RankStack("", pid, rank, None, "py-spy", (), tuple(frames), len(threads), taken_s=taken_s)


def read_stacks(folder: Path) -> dict[str, tuple[RankStack, ...]]:
    """Node → stacks of its ranks, for the nodes that have answered."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = parse_stacks(runs.read_json(path))
        except runs.RunFileError:
            continue
    return found


def parse_stacks(value: Mapping[str, Any]) -> tuple[RankStack, ...]:
    node = str(value.get("node"))
    return tuple(
        _rank(node, each) for each in _mappings(value.get("ranks")) if whole(each.get("pid")) is not None
    )


def _rank(node: str, value: Mapping[str, Any]) -> RankStack:
    threads = _mappings(value.get("threads"))
    workers = [each for each in _mappings(value.get("workers")) if whole(each.get("pid")) is not None]
    flight = value.get("flight")
    return RankStack(
        node=node,
        pid=int(value["pid"]),
        rung=str(value.get("rung")),
        missed=tuple(
            Missed(str(each.get("rung")), str(each.get("because"))) for each in _mappings(value.get("missed"))
        ),
        frames=_frames(threads),
        num_threads=len(threads),
        collective=_collective(flight) if isinstance(flight, Mapping) else None,
        num_workers=max(len(workers), whole(value.get("num_workers")) or 0),
        workers=tuple(_worker(each) for each in workers),
        **_RANK.read(value),
    )


def _worker(value: Mapping[str, Any]) -> WorkerStack:
    return WorkerStack(
        pid=int(value["pid"]),
        rung=str(value.get("rung")),
        frames=_frames(_mappings(value.get("threads"))),
        **_PROCESS.read(value),
    )


def _frames(threads: Sequence[Mapping[str, Any]]) -> tuple[Frame, ...]:
    """Frames of the main thread."""
    main = next((thread for thread in threads if thread.get("is_main")), {})
    return tuple(
        Frame(str(frame.get("function")), str(frame.get("file")), whole(frame.get("line")))
        for frame in _mappings(main.get("frames"))
    )


def _collective(value: Mapping[str, Any]) -> Collective | None:
    operation, number = text(value.get("operation")), whole(value.get("number"))
    if operation is None or number is None:
        return None
    return Collective(operation, number, bool(value.get("is_done")))


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
