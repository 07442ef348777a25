"""All runs under the runs root.

A directory per run, hundreds of them on a network file system: each run.json is read once, and again only while its run can still
change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from coach.model.cluster import is_final
from coach.model.errors import UserError
from coach.model.reading import Reading, RunList
from coach.model.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.sources.run_files import read_exit, read_run

INTERVAL_S = 5.0


class RunListSource:
    """Lists run directories, newest first. What has no run.json is not a run; what has a torn one is a problem, in one line."""

    name = "runs"

    def __init__(self, io: Io, runs_root: Path, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._io = io
        self._root = runs_root
        self._ended: dict[str, Run] = {}

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        payload, error = None, None
        try:
            payload = self._list()
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        yield Reading(self.name, now_s, now_s - start_s, payload, error)

    def _list(self) -> RunList:
        try:
            names = self._io.list_dir(self._root)
        except FileNotFoundError:
            return RunList((), ())  # nothing was ever launched
        found: list[Run] = []
        problems: list[str] = []
        for name in names:
            if name.startswith("."):
                continue
            run = self._ended.get(name)
            if run is None:
                try:
                    run = read_listed_run(self._io, self._root / name)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as problem:
                    problems.append(describe(problem))
                    continue
                except UserError as problem:
                    problems.append(problem.message)
                    continue
                if is_final(run.state):
                    self._ended[name] = run
            found.append(run)
        self._ended = {name: run for name, run in self._ended.items() if name in set(names)}
        found.sort(key=lambda run: (run.created_time_s or 0.0, run.run_id), reverse=True)
        return RunList(tuple(found), tuple(problems))


def read_listed_run(io: Io, run_dir: Path) -> Run:
    """A run with the state it ended in, which exit.json knows first. Raises OSError or UserError."""
    run = read_run(io, run_dir)
    if is_final(run.state):
        return run
    exit_ = read_exit(io, run_dir)
    if exit_ is None or not is_final(exit_.state):
        return run
    return replace(run, state=exit_.state, ended_time_s=exit_.ended_time_s or run.ended_time_s)
