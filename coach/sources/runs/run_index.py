"""What ended runs were, in one file: a root with 10,000 runs is known after one read, not after 20,000.

An ended run does not change, unless its job is requeued, which whoever uses this looks for now and then. It
is a cache beside coach's others, not in the runs root, which would look changed each time: a line that is
torn or strange is passed over, and its run is read anew.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.runs.run_files import parse_run
from coach.sources.values import finite, table, text

SCHEMA = 2
MIN_RUNS = 100
"""Fewer runs are read as fast without an index."""

_LEFT_OUT = frozenset({"run_dir", "parameter_info", "is_visible", "last_word_time_s", "drill_answer"})
"""Fields of a run that its place tells, that only its own screen needs, that an ended run does not have, or
that come after its end."""
_KEPT = tuple(item.name for item in fields(Run) if item.name not in _LEFT_OUT)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended, and the age its run.json had then."""

    run: Run
    modified_s: float | None


class RunIndex:
    """The ended runs of one root, kept in the cache directory."""

    def __init__(self, cache_dir: Path, runs_root: Path) -> None:
        digest = hashlib.sha256(str(runs_root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._file = cache_dir / f"run-index-{digest}.jsonl"
        self._root = runs_root

    def load(self) -> dict[str, EndedRun]:
        """Name of the run directory → the run; nothing where nothing was kept."""
        with _no_search_for_cycles():
            try:
                records, _, _ = runs.decode_records(self._file.read_bytes())
            except OSError:
                return {}
            if not records or records[0].get("schema") != SCHEMA or records[0].get("root") != str(self._root):
                return {}
            found = (self._parse(record) for record in records[1:])
            return dict(item for item in found if item is not None)

    def ends(self) -> dict[str, float]:
        """Name of the run directory → when the run ended, where that is known."""
        ends = {name: item.run.ended_time_s for name, item in self.load().items()}
        return {name: end_s for name, end_s in ends.items() if end_s is not None}

    def save(self, ended: Iterable[tuple[str, EndedRun]]) -> None:
        """Keep these. Where nothing can be kept, the next coach reads the runs themselves."""
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
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            runs.write_atomic(self._file, "\n".join(lines) + "\n")

    def _parse(self, record: dict[str, Any]) -> tuple[str, EndedRun] | None:
        name = text(record.get("name"))
        if name is None or "/" in name or name.startswith("."):
            return None
        value = table(record.get("run"))
        run = parse_run(value, f"{self._root}/{name}")
        if (host := text(value.get("host"))) is not None:
            run = replace(run, host=host)
        if run.drill is not None or not is_final(run.state):
            return None  # the answer to a drill comes after its end
        return name, EndedRun(run, finite(record.get("modified_s")))


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Thousands of values are made and kept: to look each time if some of them can go costs as much again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
