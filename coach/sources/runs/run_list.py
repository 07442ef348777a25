"""List all runs below the runs root.

There may be thousands of run directories on a network file system. So the root is listed only after it
changed, and each run.json is read once, and again only while its run can still change. An ended run may start
again if its job is requeued, so the modification times of some ended runs are checked now and then, newest
runs first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.model.errors import UserError
from coach.model.reading import Reading, RunList
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.follow import describe
from coach.sources.io import Io, for_folder
from coach.sources.runs.local_process import Look, look
from coach.sources.runs.run_files import read_exit, read_run
from coach.sources.runs.run_index import EndedRun, RunIndex

INTERVAL_S = 5.0

RECHECK_INTERVAL_S = 60.0
"""While Slurm knows a requeued job, the queue corrects its state. Slurm forgets an ended job after
minutes."""
NUM_RECHECKED = 10
"""Number of newest ended runs that are checked each time; the same number of other runs is checked in
turn."""

SAVE_INTERVAL_S = 300.0
BITE_RUNS = 250
"""Number of ended runs that a screen reads per poll: it shows the newest runs while thousands of others are
read."""


class RunListSource:
    """Lists run directories, newest first. A directory without run.json is not a run; one with a torn
    run.json is a problem of one line."""

    name = "runs"

    def __init__(
        self,
        io: Io,
        runs_root: Path,
        interval_s: float = INTERVAL_S,
        look: Look = look,
        index: RunIndex | None = None,
        bite_runs: int | None = None,
    ) -> None:
        """At most `bite_runs` ended runs are read per poll; None: all."""
        self.interval_s = interval_s
        self._io = io
        self._root = runs_root
        self._look = look
        self._index = index
        self._bite_runs = bite_runs
        self._ended: dict[str, EndedRun] = index.load() if index is not None else {}
        self._num_indexed = len(self._ended)
        self._saved_s: float | None = None
        self._rechecked_s: float | None = None
        self._recheck_from = 0
        self._names: list[str] = []
        self._names_modified_s: float | None = None

    @classmethod
    def indexed(cls, io: Io, runs_root: Path, cache_dir: Path) -> RunListSource:
        """A source that takes ended runs from the index in the cache directory."""
        return cls(io, runs_root, index=RunIndex(cache_dir, runs_root))

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        payload, error, is_caught_up = None, None, True
        try:
            payload, is_caught_up = self._list()
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        if error is None and is_caught_up:
            self._save(now_s)
        yield Reading(self.name, now_s, now_s - start_s, payload, error, is_caught_up=is_caught_up)

    def _list(self) -> tuple[RunList, bool]:
        try:
            self._look_at_root()
        except FileNotFoundError:
            return RunList((), ()), True  # no run was ever launched
        known = self._still_ended()
        self._ended = {}
        found: list[Run] = []
        problems: list[str] = []
        num_left = len(self._names) if self._bite_runs is None else self._bite_runs
        is_caught_up = True
        for name in reversed(self._names):
            ended = known.get(name)
            if ended is None:
                if not num_left:
                    is_caught_up = False
                    continue
                # The modification time is read first: if the file changes in between, it is read again later.
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
                ended = EndedRun(run, modified_s)
                num_left -= is_final(run.state)
            if is_final(ended.run.state):
                self._ended[name] = ended
            found.append(ended.run)
        found.sort(key=lambda run: (run.created_time_s or 0.0, run.run_id), reverse=True)
        return RunList(tuple(found), tuple(reversed(problems))), is_caught_up

    def _look_at_root(self) -> None:
        """List the root if it has changed: thousands of names are many requests to a file server."""
        try:
            modified_s = self._io.modified_s(self._root)
        except OSError:
            modified_s = None  # listing the root reports the reason
        # A change within the same tick of the file server's clock may go unnoticed, so a root that changed
        # recently is listed again.
        is_settled = modified_s is not None and self._io.now() - modified_s > RECHECK_INTERVAL_S
        if modified_s is None or modified_s != self._names_modified_s or not is_settled:
            self._names = [name for name in self._io.list_dir(self._root) if not name.startswith(".")]
            self._names_modified_s = modified_s

    def _still_ended(self) -> dict[str, EndedRun]:
        known = {name: self._ended[name] for name in self._names if name in self._ended}
        now_s = self._io.now()
        if self._rechecked_s is None or not 0 <= now_s - self._rechecked_s < RECHECK_INTERVAL_S:
            is_first, self._rechecked_s = self._rechecked_s is None, now_s
            newest = list(reversed(known))
            others = newest[NUM_RECHECKED:]
            first = self._recheck_from % len(others) if others else 0
            self._recheck_from = first + NUM_RECHECKED
            asked = newest[:NUM_RECHECKED] + (others[first : first + NUM_RECHECKED] if not is_first else [])
            for name in asked:
                if self._modified_s(name) != known[name].modified_s:
                    del known[name]
        return known

    def _save(self, now_s: float) -> None:
        if self._index is None or len(self._ended) == self._num_indexed:
            return
        if self._saved_s is None or not 0 <= now_s - self._saved_s < SAVE_INTERVAL_S:
            self._saved_s, self._num_indexed = now_s, len(self._ended)
            self._index.save(self._ended.items())

    def _modified_s(self, name: str) -> float | None:
        try:
            return self._io.modified_s(runs.RunPaths(self._root / name).run_json)
        except OSError:
            return None


def read_listed_run(io: Io, run_dir: Path, look: Look = look) -> Run:
    """A run with its final state, which exit.json has first. Raises OSError or UserError."""
    io = for_folder(io, run_dir)
    run = read_run(io, run_dir, look)
    if is_final(run.state) and run.ended_time_s is not None:
        return run
    # The order matters: a supervisor that ended between the two reads has written exit.json before it ended.
    exit_ = read_exit(io, run)
    if exit_ is None or not is_final(exit_.state):
        return run
    return replace(
        run,
        state=exit_.state,
        ended_time_s=exit_.ended_time_s or run.ended_time_s,
        is_visible=True,
        last_word_time_s=None,
    )
