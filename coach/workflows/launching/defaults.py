"""Fill a launch request from the config and its drill, and refuse values that the site has locked.

Flags, the plan's form, fixes and relaunches all pass here, so a site's lock holds however a launch begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coach.analysis.spelling.slurm import format_time, parse_time
from coach.config import Lock, Settings
from coach.config.variables import SBATCH_KEYS, is_of_sbatch
from coach.launch import batch_file
from coach.launch.project_file import with_training
from coach.launch.recipe import recipe_of
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, OwnKind
from coach.model.teaching.drill import Drill, Need

_KEYS = {"num_nodes": "nodes", "gpus_per_node": "gpus", "time_limit_s": "time", "has_gpm": "gpm"}
"""Fields of a request that have another name in the config and on the command line."""
_OPTIONS = {"environment": "--env", "setup": "setup"}
_NAMES = ("partition", "account", "qos", "reservation", "constraint", "exclude")
"""Fields with the name and the text of their option of sbatch."""
_FIELDS = (
    *("num_nodes", "gpus_per_node", "nproc_per_node", "cpus_per_task", "cpus_per_gpu", "mem", "gpu_type"),
    *("gpu_request", "partition", "account", "qos", "reservation", "constraint", "exclude"),
    *("environment", "python", "setup", "has_gpm", "share"),
)
_TABLES = ("env", "sbatch")


def with_defaults(request: LaunchRequest, settings: Settings) -> LaunchRequest:
    """Fill the fields that the request leaves out: from the drill if it is one, then from the config. Raises
    UserError for a value that the site has locked."""
    request = _within_locks(with_drill(with_training(request)), settings)
    if request.own is not None and request.own.kind is OwnKind.BATCH:  # its #SBATCH lines ask for resources
        told = {field: _default(field, settings) for field in _told_to_sbatch(request, settings)}
        told |= _locked_in_file(request, settings)
        return replace(
            request,
            **told,
            defaulted=request.defaulted | told.keys(),
            backend=_backend(request, settings),
        )
    unsaid = {field: _default(field, settings) for field in _FIELDS if getattr(request, field) is None}
    filled: dict[str, Any] = dict(unsaid)
    filled["defaulted"] = frozenset(field for field, value in unsaid.items() if value is not None)
    filled["backend"] = _backend(request, settings)
    filled["sbatch"] = {**settings.launch.sbatch, **request.sbatch}
    if request.time_limit_s is None:
        filled["time_limit_s"] = _default("time_limit_s", settings)
    return replace(request, **filled)


def _locked_in_file(request: LaunchRequest, settings: Settings) -> dict[str, Any]:
    """The site's locked values that go before the lines of a batch file. Raises UserError if a line asks for
    another."""
    own = request.own
    locks = {field: lock for field in _NAMES if (lock := settings.lock_of(_key(field))) is not None}
    if own is None or not locks:
        return {}
    said = batch_file.asked(batch_file.read(batch_file.file_of(own)))
    told: dict[str, Any] = {}
    for field, lock in locks.items():
        wanted, line = _default(field, settings), said.get(field)
        if line is not None and line != wanted:
            raise _refusal(f"#SBATCH --{field}", line, lock, wanted)
        if wanted is not None and getattr(request, field) is None:
            told[field] = wanted
    return told


def _told_to_sbatch(request: LaunchRequest, settings: Settings) -> list[str]:
    """Fields that the user's SBATCH_* variables set: sbatch obeys them before the lines of a batch file."""
    fields = [key.removeprefix("launch.") for key in SBATCH_KEYS if is_of_sbatch(settings.origins.get(key))]
    return [field for field in fields if getattr(request, field) is None]


def _backend(request: LaunchRequest, settings: Settings) -> str:
    return request.backend if request.backend != "auto" else settings.launch.backend


def locked_fields(settings: Settings) -> dict[str, str]:
    """Field of a request → why the site has locked it, and in which file."""
    locks = {field: settings.lock_of(_key(field)) for field in (*_FIELDS, "time_limit_s", "sbatch")}
    return {field: f"{lock.reason} ({lock.origin})" for field, lock in locks.items() if lock is not None}


def _within_locks(request: LaunchRequest, settings: Settings) -> LaunchRequest:
    """The request within the site's locks. A locked value that a person gave is refused; one that an earlier
    launch brings along is dropped."""
    if not settings.locks:
        return request
    kept: dict[str, Any] = {}
    for field in (*_FIELDS, "time_limit_s"):
        said, lock = getattr(request, field), settings.lock_of(_key(field))
        if lock is None or said is None:
            continue
        wanted = _default(field, settings)
        if said == wanted or (said in ("", ()) and wanted in (None, ())):
            continue
        if not _is_inherited(request, field):
            raise _refusal(_option(field), _shown(field, said), lock, _shown(field, wanted))
        kept[field] = wanted
    sbatch = dict(request.sbatch)
    for name, said in request.sbatch.items():
        lock, wanted = settings.lock_of(f"launch.sbatch.{name}"), settings.launch.sbatch.get(name)
        if lock is None or said == wanted:
            continue
        if not _is_inherited(request, "sbatch"):
            raise _refusal("--sbatch", f"{name}={said}", lock, None if wanted is None else f"{name}={wanted}")
        del sbatch[name]
    return replace(request, **kept, sbatch=sbatch)


def _is_inherited(request: LaunchRequest, field: str) -> bool:
    """True if a value comes from a config or from the parent run, not from the person who launches now."""
    if field in request.defaulted:
        return True
    changed = request.fix.changes if request.fix is not None else {}
    return request.parent_run_id is not None and _KEYS.get(field, field) not in changed


def _refusal(option: str, said: str | None, lock: Lock, wanted: str | None) -> UserError:
    instead = f"the site's is {wanted}" if wanted else "the site leaves it unset"
    return UserError(f"{option} {said}: {lock.words}", f"leave it out: {instead}")


def _default(field: str, settings: Settings) -> Any:
    if field != "time_limit_s":
        return getattr(settings.launch, field)
    time = settings.launch.time
    return (
        None
        if time is None
        else parse_time(time, f"{settings.origins.get('launch.time', '[launch]')}: time =")
    )


def _key(field: str) -> str:
    return f"launch.{_KEYS.get(field, field)}"


def _option(field: str) -> str:
    return _OPTIONS.get(field, f"--{_KEYS.get(field, field).replace('_', '-')}")


def _shown(field: str, value: Any) -> str | None:
    if value is None or value == ():
        return None
    if field == "time_limit_s":
        return format_time(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "; ".join(value) if isinstance(value, tuple) else str(value)


def with_drill(request: LaunchRequest) -> LaunchRequest:
    """Set the values of a drill that the request leaves open: a drill is launched like any recipe, and comes
    with its fault.

    A launch with a parent keeps the values of its parent. Raises UserError for an unknown recipe.
    """
    drill = recipe_of(request).drill
    if drill is None or request.parent_run_id is not None:
        return request
    return with_options(request, drill, drill.set, drill.options)


def with_options(
    request: LaunchRequest, drill: Drill, values: Mapping[str, Any], options: Mapping[str, Any]
) -> LaunchRequest:
    """The request with these values and options, except where it sets its own."""
    unsaid: dict[str, Any] = {} if Need.GPU in drill.needs else {"gpus_per_node": 0}
    unsaid |= {"has_local_nodes": True} if Need.TWO_NODES in drill.needs else {}
    unsaid |= {name: value for name, value in options.items() if name not in _TABLES}
    filled: dict[str, Any] = {
        name: value
        for name, value in unsaid.items()
        if getattr(request, name) is None or name in request.defaulted
    }
    tables: dict[str, Any] = {name: {**options.get(name, {}), **getattr(request, name)} for name in _TABLES}
    return replace(
        request,
        set={**values, **request.set},
        defaulted=request.defaulted - filled.keys(),
        **filled,
        **tables,
    )
