"""Checks a training environment and its modules on the login node, before a job waits for hours and finds it
broken.

The checks read files and import no torch: that takes seconds and gigabytes on a shared machine. At most they
ask the environment's Python for the version of torch, if its files do not name it. Contents that cannot be
read from here (a module's, an image's) are not guessed: the job checks them in its first seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.launch.interpreter import choose_environment, choose_python, describe
from coach.launch.own_program import imported_modules
from coach.launch.recipe import Recipe, data_dir, packages_of_trainer
from coach.launch.refusal import MAX_CHOICES, Choice, Refused, hint_of
from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import OwnKind, OwnProgram
from coach.node.torch_build import TorchBuild, parse_version_file, satisfies
from coach.runs import expand_home
from coach.sources.io import Io, Query
from coach.sources.logs.near_modules import near_name
from coach.sources.machine.found_environments import find_conda_prefixes
from coach.sources.named_file import read_named

_TIMEOUT_S = 5.0
_MAX_LACKING = 3
_NO_CANDIDATE = "name an environment that has it: --env venv=PATH, conda=NAME or modules=NAME/1.2"
_ASK = """
import os, sys
brought = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sys.path[:1] = [folder for folder in brought if os.path.isabs(folder)]
import importlib.metadata
import importlib.util
try:
    print(importlib.metadata.version("torch"))
except importlib.metadata.PackageNotFoundError:
    print("none")
def is_missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ImportError:
        return True
print(*filter(is_missing, sys.argv[1:]))
"""
"""It prints the version of torch, and those of the given modules that are missing. It imports none of them,
and nothing of the current directory."""
_PRINTED = re.compile(r"(?P<torch>none|\d[0-9A-Za-z.+!-]{0,60})\s?(?P<missing>[\w. ]*)", re.ASCII)
_MAX_NAMED = 6
_MAX_BESIDE = 1000

_TRAINS_WITH_TORCH = frozenset(
    ["torch", "torchvision", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "fastai", "trl"]
)
_OTHERS = frozenset(
    [
        *("jax", "flax", "tensorflow", "keras", "cupy", "cudf", "numba", "paddle", "pycuda", "triton"),
        # These give a CPU build of torch another device.
        *("intel_extension_for_pytorch", "torch_xla", "torch_npu", "habana_frameworks", "torch_directml"),
    ]
)
"""Modules by which a program may use a GPU without torch's own support."""


@dataclass(frozen=True, slots=True)
class EnvironmentCheck:
    """The result of a check. If `torch` is None, `unknown` gives the reason."""

    torch: str | None = None
    unknown: str | None = None
    problem: str | None = None
    """The reason why no training can start in it; None if no problem was found."""
    hint: str | None = None
    is_without_torch: bool = False
    """True if the problem is that the interpreter has no torch."""
    missing: tuple[str, ...] = ()
    """Those of the modules in question that it lacks."""


def check_environment(
    environment: Environment,
    python: str | None = None,
    env: Mapping[str, str] | None = None,
    io: Io | None = None,
    modules: tuple[str, ...] = (),
) -> EnvironmentCheck:
    """Check that the environment's paths exist, and find its version of torch and those of `modules` that it
    lacks. `python` is the interpreter, if known. If the files lack something, `io` may start the
    interpreter."""
    check = _of_kind(environment, python, env or {}, io, modules)
    if environment.torch is not None and check.problem is None and check.torch is None:
        return EnvironmentCheck(torch=environment.torch)
    return check


def torch_notes(
    environment: Environment,
    python: str,
    check: EnvironmentCheck,
    recipe: Recipe,
    recipes: Sequence[Recipe],
    *,
    is_named: bool = True,
) -> tuple[str, ...]:
    """Lines of the plan about the environment, which the user or the config named, or coach chose. Raises
    UserError if the recipe cannot train in it."""
    what = describe(environment, python)
    if check.missing:
        needed = ", ".join(check.missing)
        raise UserError(f"recipe {recipe.name} needs {needed}: not found in {what}", _how(check, is_named))
    if check.problem is not None:
        raise UserError(f"{what}: {check.problem}", check.hint)
    if check.torch is None:
        return (f"{what}: {check.unknown}",) if check.unknown else ()
    if recipe.torch is not None and satisfies(check.torch, recipe.torch) is False:
        raise UserError(
            f"recipe {recipe.name} needs torch {recipe.torch}: {what} has {check.torch}",
            _others(check.torch, recipes) or None,
        )
    return (f"{what}: torch {check.torch}{_who_can(check.torch, recipes)}",)


def refused(
    error: UserError,
    recipe: Recipe,
    known: Mapping[str, Environment],
    env: Mapping[str, str],
    launches: Iterable[Mapping[str, Any]],
    without: str,
) -> Refused:
    """The refusal with the environments found here that have what the recipe needs. Only their files are
    read: none is started. `without` is the refused interpreter, `launches` are those of completed runs."""
    choices: list[Choice] = []
    lacking: list[str] = []
    seen = {without}
    for text, changes in _environments_here(known, env, launches).items():
        try:
            environment, _ = choose_environment(changes["environment"], recipe, known, env, "/")
            python, _ = choose_python(changes.get("python"), environment, "slurm", env)
        except UserError:
            continue
        check = check_environment(environment, python, env, None, modules_of(recipe))
        if python in seen or check.problem is not None:
            continue
        seen |= {python} if "/" in python else set()
        if check.missing:
            lacking.append(f"{text} lacks {', '.join(check.missing)}")
        elif check.torch is not None and recipe.torch and satisfies(check.torch, recipe.torch) is False:
            lacking.append(f"{text} has torch {check.torch}")
        elif check.torch is not None or environment.modules or environment.image:
            what = f"torch {check.torch}" if check.torch is not None else "not known here"
            choices.append(Choice(f"{text} ({what})", changes))
    more = (*filter(None, [error.hint]), *lacking[:_MAX_LACKING])
    choices = choices[:MAX_CHOICES]
    offered = hint_of("environment", choices) if choices else _NO_CANDIDATE
    return Refused((error.message, *more), "environment", choices, "; ".join((offered, *more)), error.message)


def _environments_here(
    known: Mapping[str, Environment], env: Mapping[str, str], launches: Iterable[Mapping[str, Any]]
) -> Mapping[str, Mapping[str, str]]:
    """The environments found here, by their spelling, each with the changes of a request that name it: the
    active one, conda's, coach's own, those of the config, and those of completed runs, newest first."""
    named = [
        f"venv={env['VIRTUAL_ENV']}" if env.get("VIRTUAL_ENV") else None,
        *(f"conda={prefix}" for prefix in find_conda_prefixes(Path(env.get("HOME", "/")), env)[0]),
        *known,
        f"venv={sys.prefix}" if sys.prefix != sys.base_prefix else sys.executable,
        *(launch.get("environment") or launch.get("python") for launch in launches),
    ]
    return {
        text: {"environment": "none", "python": text} if text.startswith("/") else {"environment": text}
        for text in named
        if isinstance(text, str)
    }


def own_warnings(
    own: OwnProgram, environment: Environment, python: str, env: Mapping[str, str], io: Io
) -> tuple[str, ...]:
    """Warnings of the plan about a user's own script: its environment is not there, or lacks modules that it
    imports. Nothing is refused, because the node of the job may have them."""
    if own.kind is not OwnKind.SCRIPT:
        return ()
    modules, script = imported_modules(own), Path(own.words[0]).name
    check = check_environment(environment, python, env, io if "torch" in modules else None)
    what = describe(environment, python)
    if check.is_without_torch:
        return (f"{script} imports torch, and {check.problem}: {check.hint}",)
    if check.problem is not None:
        return (f"{what}: {check.problem}",)
    missing = missing_modules(modules, environment, python, env)
    named = ", ".join(_with_near(module, own) for module in missing)
    return (f"{script} imports {named}: not found in {what}",) if missing else ()


def _with_near(module: str, own: OwnProgram) -> str:
    """The module, and the file beside the script that has a near name, if there is one."""
    folder = Path(own.directory, expand_home(own.words[0])).parent
    near = None
    with contextlib.suppress(OSError):
        near = near_name(module, [each.name for each in islice(folder.iterdir(), _MAX_BESIDE)])
    return f"{module} ({near} lies beside it)" if near else module


def warn_of_build(
    recipe: Recipe, environment: Environment, python: str, env: Mapping[str, str], gpus: int
) -> tuple[str, ...]:
    """A warning if GPUs are requested, and the files of the environment's torch say that it was built
    without CUDA, ROCm and XPU. Such a training does not fail: it runs on the CPU, and holds its GPUs.

    Nothing is refused: the node may have another torch. A batch file chooses its Python itself, and a setup
    may load another torch, so neither is judged.
    """
    if not gpus or environment.setup or "PYTHONPATH" in environment.variables or not _needs_torch(recipe):
        return ()
    prefix = prefix_of(environment, python, env)
    build = read_torch_build(prefix) if prefix is not None else None
    if build is None or build.has_gpu_support is not False:
        return ()
    what = describe(environment, python)
    if recipe.own is None:
        ending = "the job would be refused on its node"
    else:
        ending = "the training would run on the CPU, and hold its GPUs unused"
    return (
        f"torch {build.version} in {what} was built without CUDA: {ending}; install the CUDA build, name "
        "another environment (--env NAME), or ask for no GPU (--gpus 0)",
    )


def _needs_torch(recipe: Recipe) -> bool:
    if recipe.own is None:
        return True
    if recipe.own.kind is OwnKind.BATCH:
        return False
    modules = {name.partition(".")[0] for name in imported_modules(recipe.own)}
    return bool(modules & _TRAINS_WITH_TORCH) and not modules & _OTHERS


def read_torch_version(prefix: Path) -> str | None:
    """The version of torch installed below a prefix (a venv, a conda environment), read from its files. None
    if there is no torch."""
    build = read_torch_build(prefix)
    return build.version if build is not None else None


def read_torch_build(prefix: Path) -> TorchBuild | None:
    """The torch installed below a prefix, with its GPU support, read from its files."""
    for folder in package_folders(prefix):
        build = parse_version_file("\n".join(_lines(folder / "torch" / "version.py")))
        if build.version:
            return build
        for info in _found(folder, "torch-*.dist-info"):
            version = info.name.removeprefix("torch-").removesuffix(".dist-info")
            return TorchBuild(version, None, False if version.endswith("+cpu") else None)
    return None


def prefix_of(environment: Environment, python: str | None, env: Mapping[str, str]) -> Path | None:
    """The environment's folder, if its files can be read here. None for modules, images, and a Python given
    only by name."""
    match environment.kind:
        case EnvironmentKind.CONDA if "/" not in (environment.path or ""):
            return _conda_prefix(environment.path or "", env)
        case EnvironmentKind.VENV | EnvironmentKind.CONDA if environment.path:
            own = Path(environment.path)
            return Path(python).parent.parent if python is not None and "/" in python else own
        case EnvironmentKind.NONE if python is not None and "/" in python:
            return Path(python).parent.parent
    return None


def _of_kind(
    environment: Environment,
    python: str | None,
    env: Mapping[str, str],
    io: Io | None,
    modules: tuple[str, ...],
) -> EnvironmentCheck:
    path, image = environment.path or "", environment.image or ""
    match environment.kind:
        case EnvironmentKind.MODULES:
            return _later("modules")
        case EnvironmentKind.APPTAINER | EnvironmentKind.PYXIS:
            # The script will hold the same text.
            if image.startswith("/") and not os.path.exists(image):  # noqa: PTH110
                return EnvironmentCheck(
                    problem=f"{image}: no such image", hint="is it visible on this machine?"
                )
            return _later("an image")
        case EnvironmentKind.CONDA if "/" not in path:
            prefix = _conda_prefix(path, env)
            if prefix is None:
                return EnvironmentCheck(
                    unknown=f"no conda environment {path} was found here: not checked until the job starts"
                )
            return _of_prefix(environment, prefix, None, env, io, modules)
        case EnvironmentKind.VENV | EnvironmentKind.CONDA:
            return _of_prefix(environment, Path(path), python, env, io, modules)
        case EnvironmentKind.NONE if python is not None and "/" in python:
            return _of_python(environment, python, env, io, modules)
    return EnvironmentCheck()


def _later(what: str) -> EnvironmentCheck:
    return EnvironmentCheck(unknown=f"the torch of {what} is not checked until the job starts")


def _of_prefix(
    environment: Environment,
    prefix: Path,
    python: str | None,
    env: Mapping[str, str],
    io: Io | None,
    modules: tuple[str, ...],
) -> EnvironmentCheck:
    why_not = _why_no_folder(prefix)
    if why_not is not None:
        hint = "expected the folder that `python -m venv` or `conda create --prefix` has made"
        return EnvironmentCheck(problem=f"{prefix}: {why_not}", hint=hint)
    own = str(prefix / "bin" / "python")
    if python in (None, own) and not os.access(own, os.X_OK):
        return EnvironmentCheck(
            problem=f"{own}: {_why_no_program(own)}", hint=f"is {prefix} a {environment.kind} environment?"
        )
    return _of_python(environment, python if python is not None and "/" in python else own, env, io, modules)


def _why_no_program(path: str) -> str:
    """The reason why a program cannot be started. Its link may lead into a folder that is closed for the
    user."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        return "no such program"
    except OSError as error:
        link = f"a link to {Path(path).readlink()}: " if Path(path).is_symlink() else ""
        return f"{link}{error.strerror or 'cannot be read'}"
    return "not executable"


def _why_no_folder(path: Path) -> str | None:
    """The reason why a path leads to no folder; None if it does. A folder of another user may be closed."""
    try:
        return None if path.is_dir() else "no such folder"
    except OSError as error:
        return error.strerror or "cannot be read"


def _of_python(
    environment: Environment, python: str, env: Mapping[str, str], io: Io | None, modules: tuple[str, ...]
) -> EnvironmentCheck:
    version = read_torch_version(Path(python).parent.parent)
    missing = missing_modules(modules, environment, python, env)
    if version is not None and not missing:
        return EnvironmentCheck(torch=version)
    printed = _ask(python, modules, io) if io is not None and is_trusted(python) else None
    if printed is None and version is not None:
        return EnvironmentCheck(torch=version, missing=missing)
    if printed is None:
        return EnvironmentCheck(unknown=f"{python} did not report its torch version")
    is_complete = _brings_more(environment)
    missing = () if is_complete else tuple(printed["missing"].split())
    if version is not None or printed["torch"] != "none":
        return EnvironmentCheck(torch=version or printed["torch"], missing=missing)
    if is_complete:
        return EnvironmentCheck(
            unknown="torch is not installed beside its Python: the job's setup has to bring it"
        )
    return EnvironmentCheck(
        problem=f"torch is not installed in {python}",
        hint="name an environment that has torch with --env",
        is_without_torch=True,
        missing=missing,
    )


def _brings_more(environment: Environment) -> bool:
    """True if lines or variables of the job may bring packages that lie elsewhere."""
    return bool(environment.setup or environment.modules) or "PYTHONPATH" in environment.variables


def is_trusted(python: str) -> bool:
    """True if the interpreter, the file that its link leads to and its environment belong to this user or to
    root: another user's program is never started."""
    path = Path(python)
    try:
        owners = {path.lstat().st_uid, path.stat().st_uid, path.parent.parent.stat().st_uid}
    except OSError:
        return False
    return owners <= {0, os.getuid()}


def _ask(python: str, modules: tuple[str, ...], io: Io) -> Mapping[str, str] | None:
    """The interpreter's own answer; None if it gave none."""
    result = io.run(Query("torch-version", (python, "-E", "-c", _ASK, *modules)), _TIMEOUT_S)
    printed = _PRINTED.fullmatch(result.text.strip())
    return printed.groupdict() if printed is not None and result.returncode == 0 else None


def package_folders(prefix: Path, depth: int = 0) -> Iterator[Path]:
    """The folders in which this prefix's Python finds packages: its own, those in its .pth files, and those
    of its base installation if it may see them."""
    own = [
        folder
        for pattern in (
            "lib*/python3*/site-packages",
            "lib/python3/dist-packages",
            "lib/python3*/dist-packages",
        )
        for folder in _found(prefix, pattern)
    ]
    yield from own
    for folder in own:
        for path_file in _found(folder, "*.pth"):
            for line in _lines(path_file):
                if line and not line.startswith(("#", "import ", "import\t")):
                    yield folder / line
    settings = dict(line.split("=", 1) for line in _lines(prefix / "pyvenv.cfg") if "=" in line)
    said = {key.strip(): value.strip() for key, value in settings.items()}
    if depth == 0 and said.get("include-system-site-packages") == "true" and "home" in said:
        yield from package_folders(Path(said["home"]).parent, depth + 1)


def _found(folder: Path, pattern: str) -> list[Path]:
    """The paths that match, in order; empty if the folder cannot be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _lines(path: Path) -> list[str]:
    try:
        return read_named(path, errors="replace").splitlines()
    except UserError:
        return []


def _conda_prefix(name: str, env: Mapping[str, str]) -> Path | None:
    """The folder of the conda environment with this name: from conda's own list, or beside conda itself."""
    listed = [Path(line) for line in _lines(Path(env.get("HOME", "/")) / ".conda" / "environments.txt")]
    candidates = [path for path in listed if path.name == name]
    if "CONDA_EXE" in env:
        base = Path(env["CONDA_EXE"]).parent.parent
        candidates += [base] if name == "base" else [base / "envs" / name]
    return next((path for path in candidates if _why_no_folder(path) is None), None)


def _who_can(torch: str, recipes: Sequence[Recipe]) -> str:
    """Names of the recipes that this torch is new enough for; empty if it is new enough for all."""
    others = _others(torch, recipes)
    if not others:
        return ""
    able = [recipe.name for recipe in recipes if not _is_short(torch, recipe)]
    yes = ", ".join(able) if len(able) <= _MAX_NAMED else f"{len(able)} recipes"
    return f": {yes} yes; {others}" if able else f": {others}"


def _others(torch: str, recipes: Sequence[Recipe]) -> str:
    return "; ".join(f"{recipe.name} needs {recipe.torch}" for recipe in recipes if _is_short(torch, recipe))


def _is_short(torch: str, recipe: Recipe) -> bool:
    return recipe.torch is not None and satisfies(torch, recipe.torch) is False


# Modules that a recipe needs. The check imports nothing, because an import would run a site's code on the
# login node. If files do not show the packages (modules, images, a setup script), the check reports nothing,
# and the trainer itself ends with the same reason.

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("torch", "torchvision", "numpy", "PIL", "deepspeed"), "train"),
        **dict.fromkeys(("pytorch_lightning", "mpi4py"), "frameworks"),
        "tokenizers": "language",
        "triton": "kernels",
    }
)
"""Module → the extra of coach that installs it beside coach."""
_HOW: Mapping[str, str] = MappingProxyType(
    {
        "horovod": (
            "Horovod's last release, 0.28.1 of 2023, does not build against torch 2.1 and newer unless it is "
            "patched; recipe ddp does the same"
        ),
        "mpi4py": "install mpi4py, and an MPI where the site has none: pip install mpi4py mpich",
        "nvidia.dali": "DALI is the package nvidia-dali-cuda120 or nvidia-dali-cuda130, whichever fits the "
        "driver;"
        " recipe gpu_data is faster where the data fit into the GPU's memory",
        "pytorch_lightning": "install it: pip install pytorch-lightning",
    }
)
"""Module → how to install it, or why it may be missing."""


def modules_of(recipe: Recipe) -> tuple[str, ...]:
    """The modules without which a recipe's trainer cannot start: the well-known packages that it imports, and
    those that the recipe names. Another module may be a drill's planted fault, or lie elsewhere."""
    imported = (name for name in packages_of_trainer(recipe) if name in EXTRAS)
    return tuple(dict.fromkeys(("torch", *imported, *recipe.requires)))


def _how(check: EnvironmentCheck, is_named: bool) -> str | None:
    """How to install what is missing: by coach's extras where coach chooses the Python, which is its own once
    it has torch."""
    extras = dict.fromkeys(EXTRAS[module] for module in ("torch", *check.missing) if module in EXTRAS)
    hints = [_HOW[module] for module in check.missing if module in _HOW]
    if not is_named and not hints and (data_dir() / "Makefile").is_file():
        hints = [f"`EXTRAS={','.join(extras)} make run` installs it beside coach"]
    return "; ".join(hints) or None


def missing_modules(
    modules: Sequence[str], environment: Environment, python: str, env: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The modules that are missing. Empty unless torch was found in the environment's files: only then are
    its packages known."""
    prefix = prefix_of(environment, python, env or {}) if modules else None
    if prefix is None or _brings_more(environment) or read_torch_version(prefix) is None:
        return ()
    folders = [*package_folders(prefix), *_user_folders(prefix, env or {})]
    return tuple(module for module in modules if not any(_has(folder, module) for folder in folders))


def _user_folders(prefix: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders of `pip install --user`, and of Debian's own Python below /usr/local. A venv uses none of
    them."""
    if (prefix / "pyvenv.cfg").exists():
        return []
    own = Path(env.get("PYTHONUSERBASE") or Path(env.get("HOME", "/"), ".local"))
    local = Path("/usr/local/lib").glob("python3*/dist-packages") if prefix == Path("/usr") else ()
    return [*own.glob("lib/python3*/site-packages"), *local]


def _has(folder: Path, module: str) -> bool:
    """True if the folder holds the module, or is closed to this user."""
    place = folder.joinpath(*module.split("."))
    try:
        if place.is_dir() or place.with_name(f"{place.name}.py").is_file():
            return True
    except OSError:
        return True
    if _found(place.parent, f"{place.name}*.so"):
        return True
    # Installed in editable mode: the name of its finder holds the package's name.
    return bool(_found(folder, f"__editable__*{module.split('.')[0]}*"))
