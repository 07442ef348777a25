"""Remove runs: first list what would go and its size, then, once confirmed, remove exactly that.

Two steps, because nothing irreversible happens before its text is shown. A run that may be alive is never
removed, nor one that another run starts from, nor anything outside the runs root, wherever a link leads.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.analysis.jobs.named_run import named_run
from coach.config import Settings, Switch
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.runs.run_sizes import RunSizes, size_of_tree
from coach.workflows.jobs.known_runs import KnownRun, KnownRuns, read_known_runs
from coach.workflows.jobs.leftovers import Leftover, find_leftovers
from coach.workflows.readonly import refuse_if_readonly

SIZES_FILE = "run-sizes.json"
UNKNOWN_STATE = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs to remove: those that meet all conditions."""

    run_ids: tuple[str, ...] = ()
    """Only these, by id, short name or directory; empty: all runs."""
    older_than_s: float | None = None
    states: frozenset[str] = frozenset()
    num_kept: int = 0
    """Number of the newest runs that stay."""
    is_checkpoints_only: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """The parts of one run to remove."""

    run: Run
    paths: tuple[Path, ...]
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A selected run, and why it stays."""

    run_id: str
    because: str


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Exactly what will be removed."""

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]
    leftovers: tuple[Leftover, ...]
    problems: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Sum of the known sizes."""
        known = [removal.size_bytes for removal in self.removals] + [
            left.size_bytes for left in self.leftovers
        ]
        return sum(size for size in known if size is not None)

    @property
    def is_empty(self) -> bool:
        return not self.removals and not self.leftovers


def plan_clean(selection: Selection, settings: Settings, io: Io, user: str) -> CleanPlan:
    """List what would be removed. Raises UserError if a named run does not exist or the runs root cannot be
    read."""
    # A run that has ended may have been requeued by hand, so the queue is asked even if all have ended.
    known = read_known_runs(settings, io, user, lambda run: run.backend == "slurm")
    return _plan(selection, known, settings, io.now())


def clean(plan: CleanPlan, settings: Settings, on_problem: Callable[[str], None]) -> int:
    """Remove as much as possible. Returns the bytes freed. Raises UserError if coach may not change
    anything."""
    refuse_if_readonly(settings, "removes nothing", Switch.CLEAN)
    gone_bytes = 0
    for paths, size_bytes in [
        *((removal.paths, removal.size_bytes) for removal in plan.removals),
        *(((leftover.path,), leftover.size_bytes) for leftover in plan.leftovers),
    ]:
        has_failed = False
        for path in paths:
            problem = _remove(path, settings.runs_root)
            if problem is not None:
                has_failed = True
                on_problem(problem)
        gone_bytes += 0 if has_failed else size_bytes or 0
    return gone_bytes


def still_meant(plan: CleanPlan, again: CleanPlan) -> CleanPlan:
    """The removals that both plans list, and why other runs of the first plan stay now: between question and
    answer a run may have come back to life."""
    removals = {removal.run.run_id: removal for removal in again.removals}
    leftovers = {leftover.path for leftover in again.leftovers}
    meant = {removal.run.run_id for removal in plan.removals}
    return replace(
        again,
        removals=tuple(removals[run_id] for run_id in sorted(meant & removals.keys())),
        kept=tuple(kept for kept in again.kept if kept.run_id in meant),
        leftovers=tuple(leftover for leftover in plan.leftovers if leftover.path in leftovers),
    )


def _plan(selection: Selection, known: KnownRuns, settings: Settings, now_s: float) -> CleanPlan:
    selection = replace(selection, run_ids=_named_ids(selection.run_ids, known, settings))
    needed = _needed(known.runs)
    removals: list[Removal] = []
    kept: list[Kept] = []
    sizes = RunSizes(settings.cache_dir / SIZES_FILE)
    for position, one in enumerate(known.runs):
        if not _is_meant(one, position, selection, now_s):
            continue
        because = (
            one.alive_because or needed.get(one.run.run_id) or _why_not_ours(one.run, settings.runs_root)
        )
        if because is not None:
            kept.append(Kept(one.run.run_id, because))
            continue
        removal = _removal(one.run, selection, sizes)
        if removal is not None:
            removals.append(removal)
    sizes.save()
    leftovers: list[Leftover] = []
    if not selection.is_checkpoints_only and not selection.run_ids:  # named runs: only those
        leaving = {removal.run.run_id for removal in removals}
        leftovers = find_leftovers(settings.runs_root, leaving, now_s)
    return CleanPlan(tuple(removals), tuple(kept), tuple(leftovers), known.problems)


def _named_ids(names: Iterable[str], known: KnownRuns, settings: Settings) -> tuple[str, ...]:
    """The ids of the named runs. Raises UserError for an unknown name."""
    listed = [one.run for one in known.runs]
    found = {name: named_run(name, listed) for name in names}
    for name, run in found.items():
        if run is None:
            raise UserError(f"{name}: no such run in {settings.runs_root}", "`coach runs` lists them")
    return tuple(dict.fromkeys(run.run_id for run in found.values() if run is not None))


def _is_meant(one: KnownRun, position: int, selection: Selection, now_s: float) -> bool:
    run = one.run
    if selection.run_ids and run.run_id not in selection.run_ids:
        return False
    if position < selection.num_kept:
        return False
    if selection.states and (run.state or UNKNOWN_STATE) not in selection.states:
        return False
    if selection.older_than_s is None:
        # A run that is alive is listed as kept only if the user named it or its state.
        return one.alive_because is None or bool(selection.run_ids or selection.states)
    ended_s = run.ended_time_s or run.started_time_s or run.created_time_s
    return ended_s is not None and now_s - ended_s > selection.older_than_s


def _needed(known: Iterable[KnownRun]) -> Mapping[str, str]:
    """Runs whose checkpoint is the start of another run that is alive."""
    needed: dict[str, str] = {}
    for one in known:
        start = one.run.launch.get("resume_from")
        if one.alive_because is not None and isinstance(start, str):
            for folder in Path(start).parents:
                needed.setdefault(folder.name, f"{one.run.run_id} starts from its checkpoint")
    return needed


def _why_not_ours(run: Run, root: Path) -> str | None:
    """A run's directory must be a directory in the runs root, not a link to one elsewhere."""
    run_dir = Path(run.run_dir)
    try:
        is_directory = stat.S_ISDIR(run_dir.lstat().st_mode)
        owner = run_dir.lstat().st_uid
    except OSError as error:
        return error.strerror or str(error)
    if not is_directory or run_dir.parent != root or run_dir.name != run.run_id:
        return "it is not a directory of this name in the runs root"
    return None if owner == os.geteuid() else "it belongs to somebody else"


def _removal(run: Run, selection: Selection, sizes: RunSizes) -> Removal | None:
    run_dir = Path(run.run_dir)
    if selection.is_checkpoints_only:
        folder = runs.RunPaths(run_dir).checkpoints_dir
        try:
            found = () if folder.is_symlink() else tuple(sorted(folder.iterdir()))
        except OSError:
            found = ()
        return Removal(run, found, _total(map(size_of_tree, found))) if found else None
    logs = [log for log in runs.scheduler_logs(run_dir.parent, run_dir.name) if os.path.lexists(log)]
    has_ended = is_final(run.state)
    return Removal(run, (run_dir, *logs), sizes.size_of(run_dir, has_ended))


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)


def _remove(path: Path, root: Path) -> str | None:
    """Remove a file or directory below the runs root; returns the problem, if any. Links are removed, never
    followed."""
    if root not in path.parents or not path.parent.resolve().is_relative_to(root.resolve()):
        return f"{path}: outside of {root}: not removed"
    problems: list[str] = []

    def note(_: object, name: str, error: BaseException) -> None:
        if not isinstance(error, FileNotFoundError):
            problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")

    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, onerror=lambda function, name, info: note(function, name, info[1]))
        else:
            path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return problems[0] if problems else None
