"""Turn a request into a plan: apply the config's defaults, look at the cluster, and set every path.

Looking at the cluster and planning are two steps, so that a plan on the screen can be changed without asking
the controller again.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coach import __version__, installed, runs
from coach.analysis.spelling.slurm import format_time
from coach.config import Settings, Switch
from coach.launch.disk_space import (
    GENERATED_DATA_BYTES,
    Room,
    checkpoint_bytes,
    judge_rooms,
    other_place,
    reads_images,
)
from coach.launch.environment_check import (
    check_environment,
    modules_of,
    own_warnings,
    refused,
    torch_notes,
    warn_of_build,
)
from coach.launch.interpreter import choose_environment, choose_python, python_of_own
from coach.launch.limits import check_limits, check_running, num_alive
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import Recipe, data_dir, is_shipped, recipe_of, shipped_recipes
from coach.launch.resources import Site
from coach.launch.script import Paths
from coach.launch.snapshot import code_dir, snapshot_files
from coach.model.errors import UserError
from coach.model.launching.environment import Environment
from coach.model.launching.launch import LaunchRequest, Plan
from coach.sources.io import Io, Query
from coach.sources.machine.disk import read_space, why_not_kept
from coach.sources.machine.quota import Mount, Quota, read_mount, read_quota
from coach.sources.machine.this_machine import read_machine
from coach.sources.machine.user import group_names, user_name
from coach.sources.slurm.client import read_partitions_and_nodes
from coach.sources.values import Fields, table
from coach.workflows.backend import hint_without_cluster, resolve_backend
from coach.workflows.jobs.earlier_launches import lines_of_earlier
from coach.workflows.judging.targets import known_runs, run_index
from coach.workflows.launching.defaults import locked_fields
from coach.workflows.launching.defaults import with_defaults as with_defaults
from coach.workflows.sharing import shared_where

_GIT_TIMEOUT_S = 2.0


def prepare(request: LaunchRequest, settings: Settings, env: Mapping[str, str], io: Io, now_s: float) -> Plan:
    """Run every check of a launch and write the script. Raises UserError if the request cannot be
    launched."""
    request = with_defaults(request, settings)
    recipe_of(request)  # a misspelt name is reported before the controller is asked
    site = look_at_site(resolve_backend(request.backend, env, settings), io, settings)
    return plan_for(request, settings, env, io, site, now_s)


def interrupted_launches(request: LaunchRequest, backend: str, settings: Settings, io: Io) -> tuple[str, ...]:
    """Warn before a recipe is launched again: list its earlier launches whose answer from sbatch was lost.

    Nothing for a child run: it follows its parent, not these launches.
    """
    if request.parent_run_id is not None:
        return ()
    return lines_of_earlier(recipe_of(request).name, backend, settings, io, user_name())


def look_at_site(backend: str, io: Io, settings: Settings | None = None) -> Site:
    """Read the partitions and nodes of the cluster, or the devices of this machine.

    Raises UserError with Slurm's message if Slurm does not answer. For a launch, pass `settings`: then the
    error also has a hint.
    """
    if backend == "local":
        return Site(backend, (), (read_machine(),))
    try:
        partitions, nodes, hidden = read_partitions_and_nodes(io)
    except UserError as error:
        hint = hint_without_cluster(error.message, settings) if settings is not None else None
        raise UserError(error.message, hint) from error
    return Site(backend, partitions, nodes, hidden, None if user_name() == "root" else group_names())


def plan_for(
    request: LaunchRequest,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    site: Site,
    now_s: float,
    run_id: str | None = None,
) -> Plan:
    """Plan a request for a site that was read before. To plan a changed request again under the same run id,
    pass `run_id`. Raises UserError if it cannot be launched."""
    recipe = recipe_of(request)
    _refuse_drill(recipe, settings)
    if request.own is None and not is_shipped(recipe):
        request = replace(request, recipe=str(recipe.path))  # a relaunch may have another working directory
    run_id = run_id or runs.new_run_id(recipe.name, now_s)
    recipe, time_notes = _within_time(recipe, request, settings)
    request, share_notes, share_warnings = shared_where(request)
    request, environment, python, environment_notes = _environment(
        request, recipe, settings, env, io, site.backend
    )
    own_file = installed.one_file()
    paths = Paths(
        run_dir=str(settings.runs_root / run_id),
        code_dir=str(code_dir(settings.runs_root, snapshot_files(recipe.own_trainers))),
        python=python,
        cache_dir=str(settings.cache_dir),
        data_dir=str(settings.data_dir) if settings.data_dir else None,
        own_python=sys.executable,
        own_file=str(own_file) if own_file is not None else None,
        is_judged=settings.why_off(Switch.JOB_VERDICT) is None,
        scratch_cache_dir=str(settings.scratch_cache_dir) if settings.scratch_cache_dir else None,
    )
    if request.resume_from is not None and not Path(request.resume_from).exists():
        raise UserError(f"resume from {request.resume_from}: no such checkpoint")
    facts = Facts(
        paths=paths,
        user=user_name(),
        created_time_s=now_s,
        coach_version=__version__,
        git=_git_state(io, recipe),
        notes=(*settings.notes, *time_notes, *environment_notes, *share_notes),
        environment=environment,
        locked=locked_fields(settings),
        most=_most(settings),
        has_comment=settings.launch.has_comment,
    )
    plan = make_plan(request, recipe, site, facts, run_id)
    # A fix replaces its parent. The parent of a resubmission may still run, so it counts.
    replaced = request.parent_run_id if request.fix is not None else None
    alive = num_alive_runs(settings, io, now_s, without=replaced)
    can_cancel = Switch.CANCEL not in settings.switched_off
    check_limits(plan.resources, alive, settings.limits, settings.origins, can_cancel=can_cancel)
    warnings = (*plan.warnings, *share_warnings)
    if recipe.own is not None and not request.setup:  # the setup lines may load anything
        warnings += own_warnings(recipe.own, environment, python, env, io)
    if not request.setup:
        warnings += warn_of_build(recipe, environment, python, env, plan.resources.gpus_per_node)
    return with_room(replace(plan, warnings=warnings), settings, io, now_s)


def _refuse_drill(recipe: Recipe, settings: Settings) -> None:
    """Raise UserError for a drill if the site has switched drills off."""
    off = settings.why_off(Switch.DRILLS)
    if recipe.drill is not None and off is not None:
        raise UserError(f"{recipe.name}: {off}", "ask the site")


def _most(settings: Settings) -> dict[str, int]:
    """Field of a request → the site's own upper limit."""
    said = {"gpus_per_node": settings.limits.max_gpus, "time_limit_s": settings.limits.max_time_s}
    return {name: most for name, most in said.items() if most is not None}


def _within_time(
    recipe: Recipe, request: LaunchRequest, settings: Settings
) -> tuple[Recipe, tuple[str, ...]]:
    """Cap a recipe's own time limit at the site's maximum. A limit that the user set stays: `check_limits`
    refuses one that is too long."""
    most_s = settings.limits.max_time_s
    own_s = recipe.time_limit_s
    if request.time_limit_s is not None or most_s is None or (own_s is not None and own_s <= most_s):
        return recipe, ()
    place = settings.origins.get("limits.max_time", "limits.max_time")
    note = f"time limit {format_time(most_s)}: the most that the site allows ({place})"
    return replace(recipe, time_limit_s=most_s), (note,)


def num_alive_runs(settings: Settings, io: Io, now_s: float, without: str | None = None) -> int:
    """Count the user's runs that wait or run, from their run directories. Returns 0 without counting if the
    site sets no limit."""
    if settings.limits.max_running is None:
        return 0
    return num_alive(known_runs(settings, io), now_s, without)


def leave_index(run_id: str, settings: Settings) -> None:
    """Remove a run that starts again from the index of ended runs."""
    if (index := run_index(settings)) is not None:
        index.save((name, each) for name, each in index.load().items() if name != run_id)


def check_startable(backend: str, settings: Settings, env: Mapping[str, str], io: Io) -> None:
    """Raise UserError if the site does not let one run more start now on this backend."""
    resolve_backend(backend, env, settings)
    alive = num_alive_runs(settings, io, io.now())
    can_cancel = Switch.CANCEL not in settings.switched_off
    check_running(alive, settings.limits, settings.origins, can_cancel=can_cancel)


def _environment(
    request: LaunchRequest, recipe: Recipe, settings: Settings, env: Mapping[str, str], io: Io, backend: str
) -> tuple[LaunchRequest, Environment, str, tuple[str, ...]]:
    """Choose the environment and the interpreter. Returns the request, the environment, the interpreter, and
    notes for the plan. The request then names the environment independently of the working directory."""
    is_asked_for = request.environment is not None and "environment" not in request.defaulted
    if is_asked_for and "python" in request.defaulted:
        request = replace(request, python=None)  # the config's interpreter belongs to another environment
    directory = str(Path.cwd())
    environment, spelling = choose_environment(
        request.environment, recipe, settings.environments, env, directory
    )
    request = replace(request, environment=spelling)
    if recipe.own is not None:
        python, note = python_of_own(recipe.own, request.python, environment, backend, env)
        return request, environment, python, (note,) if note else ()
    python, note = choose_python(request.python, environment, backend, env)
    if spelling == "none" and "/" not in python:
        return request, environment, python, (f"{python} is the compute node's own: not known here",)
    is_named = environment != Environment() or request.python is not None
    notes = _checked(request, recipe, environment, python, settings, env, io, is_named=is_named)
    return request, environment, python, notes if is_named else (note,) if note else ()


def _checked(
    request: LaunchRequest,
    recipe: Recipe,
    environment: Environment,
    python: str,
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    *,
    is_named: bool,
) -> tuple[str, ...]:
    """Lines about the environment. Raises Refused, with the environments that could be used, if the recipe
    cannot run in it."""
    if environment.kind == "none":
        python = shutil.which(python, path=env.get("PATH")) or python
    # The setup lines may load anything.
    whole = replace(environment, setup=(*environment.setup, *(request.setup or ())))
    check = check_environment(whole, python, env, io, modules_of(recipe))
    try:
        return torch_notes(environment, python, check, recipe, shipped_recipes(), is_named=is_named)
    except UserError as error:
        launches = [
            run.launch for run in known_runs(settings, io) if run.is_mine and run.state == "COMPLETED"
        ]
        raise refused(error, recipe, settings.environments, env, launches, without=python) from None


def _git_state(io: Io, recipe: Recipe) -> dict[str, Any] | None:
    """Git state of the training code: of the user's repository if the code is the user's, else of coach's."""
    if recipe.own is not None:
        return read_git_state(io, Path(recipe.own.directory))
    if recipe.own_trainers:
        return read_git_state(io, recipe.own_trainers)
    if not (data_dir() / ".git").exists():  # the installed coach is no checkout
        return None
    return read_git_state(io, data_dir(), ["trainers", "coach/node"])


def read_git_state(io: Io, folder: Path, paths: Sequence[str] = (":/",)) -> dict[str, Any] | None:
    """The checked-out commit, and whether files below `paths` differ from it: by default, all files of the
    repository. None if `folder` is in no repository, or if its commit does not contain the folder."""
    git = ("git", "--no-optional-locks", *_NO_PROGRAMS, "-C", str(folder))
    head = io.run(Query("git-head", (*git, "rev-parse", "HEAD", "HEAD:./")), _GIT_TIMEOUT_S)
    if head.returncode != 0:
        return None
    status = io.run(
        Query("git-status", (*git, "status", "--porcelain", "--untracked-files=no", "--", *paths)),
        _GIT_TIMEOUT_S,
    )
    if status.returncode != 0:
        return None
    commit = head.text.split()[0]
    return {"commit": commit, "is_dirty": bool(status.stdout.strip())}


# Free space where a launch writes. All coach processes of a user share one answer about the quota, and ask
# again after a minute.

QUOTA_AGE_S = 60.0
_SLOW_S = 0.5
_CACHE_FILE = "quota.json"
_GENERATED_DATA = "cifar-10-generated-"
_QUOTA = Fields(Quota, Quota.__match_args__)
_NO_PROGRAMS = tuple(
    word
    for key in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.directory=")
    for word in ("-c", key)
)
"""Options with which git starts no monitor and no hook that a repository names, and refuses the repository of
another owner, whatever the user configured."""
OTHER_RUNS_ROOT = other_place("runs_root")
"""The hint of the error if runs cannot be written."""


def with_room(plan: Plan, settings: Settings, io: Io, now_s: float) -> Plan:
    """Add a line to the plan about the free space of each place that it writes to. Raises UserError if the
    runs root is not writable."""
    problem = why_not_kept(settings.runs_root)
    if problem is not None:
        raise UserError(f"{settings.runs_root}: runs cannot be written there: {problem}", OTHER_RUNS_ROOT)
    parameters = plan.parameters if plan.request.own is None else None
    notes, warnings = judge_rooms(look_at_rooms(parameters, settings, io, now_s))
    if settings.runs_root_candidates and settings.runs_root_candidates[0][0] != settings.runs_root:
        notes = (f"runs go to {settings.runs_root_text}", *notes)  # the first choice is not writable
    return replace(plan, notes=plan.notes + notes, warnings=plan.warnings + warnings)


def look_at_rooms(
    parameters: Mapping[str, Any] | None, settings: Settings, io: Io, now_s: float
) -> list[Room]:
    """Read the free space of the runs root, and of the cache if the run generates data there. One file system
    is one room. `parameters` is None for an own program, whose output folders are not known."""
    needs = {} if parameters is None else {"checkpoints": checkpoint_bytes(parameters)}
    places: list[tuple[Path, str, dict[str, int | None]]] = [(settings.runs_root, "runs_root", needs)]
    if (
        parameters is not None
        and reads_images(parameters)
        and settings.data_dir is None
        and not _is_data_generated(io, settings.cache_dir)
    ):
        places.append((settings.cache_dir, "cache_dir", {"generated data": GENERATED_DATA_BYTES}))
    by_mount: dict[Mount | Path, Room] = {}
    for path, key, needs in places:
        mount = read_mount(io, path)
        known = by_mount.get(mount or path)
        if known is not None:
            by_mount[mount or path] = replace(known, needs={**known.needs, **needs})
            continue
        quota = _quota(io, mount, settings.cache_dir / _CACHE_FILE, now_s) if mount else None
        by_mount[mount or path] = Room(str(path), key, read_space(path), quota, needs)
    return list(by_mount.values())


def _is_data_generated(io: Io, cache_dir: Path) -> bool:
    try:
        return any(name.startswith(_GENERATED_DATA) for name in io.list_dir(cache_dir))
    except OSError:
        return False


def _quota(io: Io, mount: Mount, file: Path, now_s: float) -> Quota | None:
    kept = runs.read_json_if_any(file)
    entry = table(kept.get(mount.point))
    asked_s = entry.get("asked_s")
    if isinstance(asked_s, int | float) and 0 <= now_s - asked_s < QUOTA_AGE_S:
        return _from_json(table(entry.get("quota")))
    start_s = io.now()
    quota = read_quota(io, mount, user_name())
    if quota is not None or io.now() - start_s > _SLOW_S:
        with contextlib.suppress(OSError):  # if the answer cannot be stored, the next plan asks again
            runs.private_folder(file.parent)
            runs.write_json(
                file,
                {
                    **kept,
                    mount.point: {"asked_s": now_s, "quota": asdict(quota) if quota is not None else None},
                },
            )
    return quota


def _from_json(value: Mapping[str, Any]) -> Quota | None:
    values = _QUOTA.read(value)
    return None if None in (values["used_bytes"], values["used_files"]) else Quota(**values)
