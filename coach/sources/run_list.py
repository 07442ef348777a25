"""All runs under the runs root.

A directory per run, hundreds of them on a network file system: each run.json is read once, and again only while its run can still
change. One that has ended may go on all the same, when its job is requeued: so now and then its run.json is asked for its age.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.model.cluster import is_final
from coach.model.errors import UserError
from coach.model.reading import Reading, RunList
from coach.model.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.sources.local_process import Look, look
from coach.sources.run_files import read_exit, read_run

INTERVAL_S = 5.0

RECHECK_INTERVAL_S = 60.0
"""While Slurm knows a requeued job, the queue corrects its state; it forgets an ended one after minutes."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, and the age its run.json had then."""

    run: Run
    modified_s: float | None


class RunListSource:
    """Lists run directories, newest first. What has no run.json is not a run; what has a torn one is a problem, in one line."""

    name = "runs"

    def __init__(self, io: Io, runs_root: Path, interval_s: float = INTERVAL_S, look: Look = look) -> None:
        self.interval_s = interval_s
        self._io = io
        self._root = runs_root
        self._look = look
        self._ended: dict[str, _Ended] = {}
        self._rechecked_s: float | None = None

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
        known = self._still_ended(set(names))
        self._ended = {}
        found: list[Run] = []
        problems: list[str] = []
        for name in names:
            if name.startswith("."):
                continue
            ended = known.get(name)
            if ended is None:
                # Its age first: what is written between the two looks then makes it be read again.
                modified_s = self._modified_s(name)
                try:
                    run = read_listed_run(self._io, self._root / name, self._look)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as problem:
                    problems.append(describe(problem))
                    continue
                except UserError as problem:
                    problems.append(problem.message)
                    continue
                ended = _Ended(run, modified_s)
            if is_final(ended.run.state):
                self._ended[name] = ended
            found.append(ended.run)
        found.sort(key=lambda run: (run.created_time_s or 0.0, run.run_id), reverse=True)
        return RunList(tuple(found), tuple(problems))

    def _still_ended(self, names: set[str]) -> dict[str, _Ended]:
        known = {name: ended for name, ended in self._ended.items() if name in names}
        now_s = self._io.now()
        if self._rechecked_s is None or not 0 <= now_s - self._rechecked_s < RECHECK_INTERVAL_S:
            self._rechecked_s = now_s
            known = {
                name: ended for name, ended in known.items() if self._modified_s(name) == ended.modified_s
            }
        return known

    def _modified_s(self, name: str) -> float | None:
        try:
            return self._io.modified_s(runs.RunPaths(self._root / name).run_json)
        except OSError:
            return None


def read_listed_run(io: Io, run_dir: Path, look: Look = look) -> Run:
    """A run with the state it ended in, which exit.json knows first. Raises OSError or UserError."""
    run = read_run(io, run_dir, look)
    if is_final(run.state) and run.ended_time_s is not None:
        return run
    # In this order: a supervisor that ended between the two looks has written exit.json before it went.
    exit_ = read_exit(io, run_dir)
    if exit_ is None or not is_final(exit_.state):
        return run
    return replace(
        run,
        state=exit_.state,
        ended_time_s=exit_.ended_time_s or run.ended_time_s,
        is_visible=True,
        last_word_time_s=None,
    )
