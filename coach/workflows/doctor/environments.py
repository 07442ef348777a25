"""Training environments: those that were configured, checked as far as a login node can; and what else lies about to be used.

What was configured and is not there is a fault. What was merely found is an offer: it says how it would be used, and nothing hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from coach.model.doctor import Check, CheckState
from coach.model.environment import Environment
from coach.sources.found_environments import (
    ModuleSystem,
    Prefix,
    find_conda_prefixes,
    find_images,
    find_module_system,
    find_programs,
    look_into,
)
from coach.workflows.doctor.probes import Probe

AREA = "environments"
_SHOWN = 3


def environment_probes(
    known: Mapping[str, Environment], env: Mapping[str, str]
) -> dict[tuple[str, str], Probe]:
    """What to look at besides the configured ones."""
    home = Path(env.get("HOME") or Path.home())
    folders = [home, *(Path(env[key]) for key in ("SCRATCH", "WORK") if env.get(key))]
    folders += [
        Path(each.image).parent for each in known.values() if each.image and each.image.startswith("/")
    ]

    def look_at_conda() -> list[Check]:
        prefixes, num_more = find_conda_prefixes(home, env)
        return judge_conda(look_into(prefixes), num_more, "conda" in find_programs(env))

    def look_at_venv() -> list[Check]:
        active = env.get("VIRTUAL_ENV")
        return judge_venv(look_into([Path(active)])) if active else []

    return {
        (AREA, "modules"): lambda: [judge_modules(find_module_system(env))],
        (AREA, "conda"): look_at_conda,
        (AREA, "venv"): look_at_venv,
        (AREA, "images"): lambda: judge_images(find_images(folders), find_programs(env)),
    }


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


def judge_venv(prefixes: Sequence[Prefix]) -> list[Check]:
    return [
        _found(
            "active venv",
            _with_torch(prefix),
            None if prefix.torch else "there is no torch in it",
            f"--env venv={prefix.path}" if prefix.torch else None,
        )
        for prefix in prefixes
    ]


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
    return Check(AREA, what, CheckState.OK, value, because, todo, is_needed=False)
