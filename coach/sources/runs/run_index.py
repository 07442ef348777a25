"""Keep all ended runs in one file: for a root with 10,000 runs, one read replaces 20,000.

An ended run does not change, unless its job is requeued, which the caller checks now and then. The file is in
coach's cache, because in the runs root it would make the root look changed each time. A malformed line is
skipped, and its run is read again.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.runs.run_files import parse_run
from coach.sources.values import finite, table, text
from coach.trusted import private_folder, read_trusted

SCHEMA = 3
_MAX_FILE_BYTES = 256 << 20
MIN_RUNS = 100
"""Reading fewer runs is as fast without an index."""

_LEFT_OUT = frozenset({"run_dir", "parameter_info", "is_visible", "last_word_time_s", "drill_answer"})
"""Fields of a run that are not stored: they follow from its place, only its own screen needs them, an ended
run does not have them, or they are set after its end."""
_KEPT = tuple(item.name for item in fields(Run) if item.name not in _LEFT_OUT)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended run, and the modification time of its run.json when it was read."""

    run: Run
    modified_s: float | None


class RunIndex:
    """The ended runs below one root, stored in the cache directory."""

    def __init__(self, cache_dir: Path, runs_root: Path) -> None:
        digest = hashlib.sha256(str(runs_root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._file = cache_dir / f"run-index-{digest}.jsonl"
        self._root = runs_root

    def load(self) -> dict[str, EndedRun]:
        """Name of the run directory → the run; empty if nothing was stored."""
        with _no_search_for_cycles():
            try:
                data = read_trusted(self._file, owner=os.geteuid(), limit=_MAX_FILE_BYTES)
                records, _, _ = runs.decode_records(data)
            except OSError:
                return {}
            if not records or records[0].get("schema") != SCHEMA or records[0].get("root") != str(self._root):
                return {}
            found = (self._parse(record) for record in records[1:])
            return dict(item for item in found if item is not None)

    def ends(self) -> dict[str, float]:
        """Name of the run directory → time of the run's end, if known."""
        ends = {name: item.run.ended_time_s for name, item in self.load().items()}
        return {name: end_s for name, end_s in ends.items() if end_s is not None}

    def save(self, ended: Iterable[tuple[str, EndedRun]]) -> None:
        """Store these runs. If they cannot be stored, the next coach reads the runs themselves."""
        entries = list(ended)
        if len(entries) < MIN_RUNS:
            return
        lines = [json.dumps({"schema": SCHEMA, "root": str(self._root)})]
        for name, item in entries:
            run = {key: value for key in _KEPT if (value := getattr(item.run, key)) not in (None, (), {})}
            run["uneven_by_design"] = run.pop("is_uneven_by_design", None)  # its name in run.json
            if item.run.fix is not None:
                run["fix"] = asdict(item.run.fix)
            with contextlib.suppress(TypeError, ValueError):
                lines.append(
                    json.dumps({"name": name, "modified_s": item.modified_s, "run": run}, default=dict)
                )
        with contextlib.suppress(OSError):
            private_folder(self._file.parent)
            runs.write_atomic(self._file, "\n".join(lines) + "\n")

    def _parse(self, record: dict[str, Any]) -> tuple[str, EndedRun] | None:
        name = text(record.get("name"))
        if name is None or "/" in name or name.startswith("."):
            return None
        value = table(record.get("run"))
        run = replace(parse_run(value, f"{self._root}/{name}"), why_not_mine=text(value.get("why_not_mine")))
        if (host := text(value.get("host"))) is not None:
            run = replace(run, host=host)
        if run.drill is not None or not is_final(run.state):
            return None  # a drill may be answered after its end
        return name, EndedRun(run, finite(record.get("modified_s")))


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Pause the garbage collector: while thousands of values are created and kept, its searches would double
    the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
