"""Check the configured training environments as far as a login node can, and list other ones that could be
used.

A configured environment that is missing is a fault. One that was merely found is an offer: the report says
how to use it, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coach.config import Settings
from coach.launch.environment_check import EnvironmentCheck, check_environment, read_torch_version
from coach.launch.interpreter import spelling_of
from coach.model.judging.doctor_report import OK, WARNING, WRONG, Check
from coach.model.launching.environment import Environment
from coach.sources.io import Io
from coach.sources.machine.found_environments import (
    ModuleSystem,
    find_conda_prefixes,
    find_images,
    find_module_system,
    find_programs,
)
from coach.workflows.doctor.probes import Probe

AREA = "environments"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Prefix:
    """A venv or a conda environment, and its version of torch; None if it has none."""

    path: Path
    torch: str | None


def environment_probes(settings: Settings, env: Mapping[str, str], io: Io) -> dict[tuple[str, str], Probe]:
    """One probe for each configured environment, and one for all others."""
    known = settings.environments
    home = Path(env.get("HOME") or Path.home())
    folders = [home, *(Path(env[key]) for key in ("SCRATCH", "WORK") if env.get(key))]
    folders += [
        Path(each.image).parent for each in known.values() if each.image and each.image.startswith("/")
    ]

    def look_at_configured(environment: Environment) -> Probe:
        is_used = environment.name == settings.launch.environment
        return lambda: [judge_configured(environment, check_environment(environment, None, env, io), is_used)]

    def look_at_conda() -> list[Check]:
        prefixes, num_more = find_conda_prefixes(home, env)
        return judge_conda(_look_into(prefixes), num_more, "conda" in find_programs(env))

    def look_at_venv() -> list[Check]:
        active = env.get("VIRTUAL_ENV")
        return [judge_venv(*_look_into([Path(active)]))] if active else []

    return {
        **{(AREA, name): look_at_configured(environment) for name, environment in known.items()},
        (AREA, "modules"): lambda: [judge_modules(find_module_system(env))],
        (AREA, "conda"): look_at_conda,
        (AREA, "venv"): look_at_venv,
        (AREA, "images"): lambda: judge_images(find_images(folders), find_programs(env)),
    }


def _look_into(prefixes: Iterable[Path]) -> list[Prefix]:
    return [Prefix(path, read_torch_version(path)) for path in prefixes]


def judge_configured(environment: Environment, check: EnvironmentCheck, is_used: bool) -> Check:
    """Judge an environment of the config. The one that launches use by default has to work; another one only
    should."""
    what, value = environment.name or spelling_of(environment), spelling_of(environment)
    if check.problem is not None:
        state = WRONG if is_used else WARNING
        where = f"correct {environment.origin}" if environment.origin else None
        todo = "; ".join(filter(None, (check.hint, where))) or None
        return Check(AREA, what, state, value, check.problem, todo, is_needed=is_used)
    if check.torch is not None:
        return Check(AREA, what, OK, f"{value}, torch {check.torch}", is_needed=is_used)
    todo = f'add its version to [environments.{environment.name}], for example torch = "2.6.0"'
    return Check(AREA, what, OK, value, check.unknown, todo if environment.name else None, is_needed=is_used)


def judge_modules(system: ModuleSystem | None) -> Check:
    if system is None:
        return _found("modules", "none", "neither Lmod nor Environment Modules is here")
    value = f"{system.name} {system.version}" if system.version else system.name
    because = f"a job's script sources {system.init}" if system.init else None
    todo = "`module avail torch` lists them: --env modules=NAME/VERSION"
    return _found("modules", value, because, todo)


def judge_conda(prefixes: Sequence[Prefix], num_more: int, has_program: bool) -> list[Check]:
    if not prefixes:
        because = "conda is here, but lists no environment" if has_program else None
        return [_found("conda", "none", because)]
    with_torch = [prefix for prefix in prefixes if prefix.torch]
    best = [*with_torch, *(prefix for prefix in prefixes if not prefix.torch)]
    todo = f"--env conda={with_torch[0].path}" if with_torch else None
    because = None if with_torch else "there is no torch in them"
    return [_found("conda", _listed([_with_torch(prefix) for prefix in best], num_more), because, todo)]


def judge_venv(prefix: Prefix) -> Check:
    if prefix.torch is None:
        return _found("active venv", _with_torch(prefix), "there is no torch in it")
    return _found("active venv", _with_torch(prefix), None, f"--env venv={prefix.path}")


def judge_images(images: Sequence[Path], programs: Iterable[str]) -> list[Check]:
    here = set(programs)
    starter = next((name for name in ("apptainer", "singularity") if name in here), None)
    if not images:
        return [_found("images", "none", f"{starter} is here to start one" if starter else None)]
    first = images[0]
    kind = "apptainer" if first.suffix == ".sif" else "pyxis"
    because = None
    if kind == "apptainer" and starter is None:
        because = "neither apptainer nor singularity is on the PATH here; compute nodes may have it"
    listed = _listed([str(image) for image in images], 0)
    return [_found("images", listed, because, f"--env {kind}={first}")]


def _with_torch(prefix: Prefix) -> str:
    return f"{prefix.path} (torch {prefix.torch})" if prefix.torch else str(prefix.path)


def _listed(items: Sequence[str], num_more: int) -> str:
    num_more += max(0, len(items) - _SHOWN)
    return "; ".join(items[:_SHOWN]) + (f" and {num_more} more" if num_more else "")


def _found(what: str, value: str, because: str | None = None, todo: str | None = None) -> Check:
    return Check(AREA, what, OK, value, because, todo, is_needed=False)
