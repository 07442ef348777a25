"""Remove the data sets that trainers generated in the cache: first list them with their sizes, then, once
confirmed, remove exactly these.

A removed set is no loss: the next run that finds no real data generates it again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coach.config import Settings, Switch
from coach.sources.io import Io
from coach.sources.runs.run_sizes import size_of_tree
from coach.workflows.jobs.known_runs import read_known_runs
from coach.workflows.launching.datasets import generated_folders
from coach.workflows.readonly import refuse_if_readonly


@dataclass(frozen=True, slots=True)
class GeneratedSet:
    """One generated data set of the user."""

    path: Path
    size_bytes: int | None
    """None if it holds too many files to count."""


@dataclass(frozen=True, slots=True)
class GeneratedSets:
    """The sets that would be removed."""

    sets: tuple[GeneratedSet, ...]
    readers: tuple[str, ...]
    """Ids of runs that may be reading them; while there is one, all sets stay."""

    @property
    def size_bytes(self) -> int:
        """Sum of the known sizes."""
        return sum(one.size_bytes or 0 for one in self.sets)


def find_generated(settings: Settings, io: Io, user: str) -> GeneratedSets:
    """The generated sets that this user owns, and the runs that may be alive. Raises UserError if the runs
    root cannot be read."""
    sets = tuple(
        GeneratedSet(path, size_of_tree(path))
        for path in generated_folders(settings.cache_dir)
        if not path.is_symlink() and path.stat().st_uid == os.geteuid()
    )
    if not sets:
        return GeneratedSets((), ())
    known = read_known_runs(settings, io, user, lambda run: run.backend == "slurm")
    return GeneratedSets(sets, tuple(one.run.run_id for one in known.runs if one.alive_because is not None))


def remove_generated(found: GeneratedSets, settings: Settings, on_problem: Callable[[str], None]) -> int:
    """Remove the sets. Returns the bytes freed. Raises UserError if coach may not change anything."""
    refuse_if_readonly(settings, "removes nothing", Switch.CLEAN)
    gone_bytes = 0
    for one in found.sets:
        try:
            shutil.rmtree(one.path)
        except OSError as error:
            on_problem(f"{error.filename or one.path}: {error.strerror or error}")
        else:
            gone_bytes += one.size_bytes or 0
    return gone_bytes
