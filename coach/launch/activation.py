"""Bash lines that set up the training environment in a batch script, for each kind of environment. Pure.

A half-activated environment trains with the wrong torch, or with none. Every step that can fail therefore
ends the job with one line that names the missing part (`stop`, which the script defines). Nothing is passed
to `eval`, and text that a person wrote stays inside its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from shlex import quote, split

from coach.model.errors import UserError
from coach.model.launching.environment import Environment, EnvironmentKind

STOP_STATUS = 78
"""Exit status EX_CONFIG: the training did not start because something that it needs is missing."""

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)

_MODULE_FUNCTION = """\
# The site's modules. A batch shell may not have the `module` command yet: it is a shell function.
for INIT in "${MODULESHOME:-}/init/bash" /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash /etc/profile.d/modules.sh; do
  if ! type module > /dev/null 2>&1 && [[ -r $INIT ]]; then source "$INIT"; fi
done
if ! type module > /dev/null 2>&1; then stop module_not_found "no module command"; fi
load_module() {
  local before=${LOADEDMODULES:-}
  module load "$1" || return
  # Before version 4, Environment Modules did not tell a failure by its status.
  [[ ${LOADEDMODULES:-} != "$before" || :$before: == *:"${1%%/*}"[/:]* ]]
}
# Slurm's own commands may come from a module as well, with the variable that names their configuration.
SRUN=$(type -P srun) CONF=${SLURM_CONF-}
module purge
if [[ $SRUN ]] && ! type -P srun > /dev/null; then export PATH="$PATH:${SRUN%/*}"; fi
if [[ $CONF ]]; then export SLURM_CONF=$CONF; fi"""

_CONDA_FUNCTION = """\
# conda is a shell function too; where it lies, the login shell that submitted the job knew.
CONDA=$(type -P conda) || CONDA=${CONDA_EXE:-}
if [[ ! -x $CONDA ]]; then stop conda_not_initialised "no conda on the PATH"; fi
source "$("$CONDA" info --base)/etc/profile.d/conda.sh\""""


def activation_lines(
    environment: Environment, setup: Sequence[str], python: str, *, is_needed: bool = True
) -> list[str]:
    """Lines that activate the environment and set `$PYTHON` to its interpreter. `setup` are the launch's own
    lines. If `is_needed`, the job ends when the interpreter is missing."""
    lines = _activation(environment)
    setup = (*environment.setup, *setup)
    if setup:
        lines += ["# The site's own lines.", *setup] if lines else setup
    if lines:
        lines = [
            "# The environment. Module and conda scripts use unset variables and commands that fail.",
            "set +eu",
            *lines,
            "set -eu",
        ]
    if environment.is_container:
        return [*lines, *_image(environment), f"PYTHON={quote(python)}", ""]
    cause = "file_not_found" if "/" in python else "module_not_found"
    return [
        *lines,
        "# The interpreter of the training environment; it need not be the one that coach runs under.",
        f"PYTHON={quote(python)}",
        *(
            [f'if ! command -v "$PYTHON" > /dev/null; then stop {cause} "$PYTHON: no such interpreter"; fi']
            if is_needed
            else []
        ),
        "",
    ]


def container_lines(
    environment: Environment, mounts: Sequence[str], cache_dir: str, has_gpus: bool, variables: Sequence[str]
) -> list[str]:
    """Lines that set `INSIDE`, the command that starts a program in the image.

    The container sees `mounts`. Variables that the lines in `variables` export keep their values inside it.
    """
    if not environment.is_container:
        return []
    for path in mounts:
        _check_mount(path)
    binds = [*outermost(mounts), *environment.binds]
    exports = ["PYTHONNOUSERSITE", *exported_names(variables)]
    lines = [
        (
            "# The container sees the image, runs, code, data and cache, and the requested binds. The "
            "cache may be new."
        ),
        f"mkdir -p {quote(cache_dir)}",
    ]
    if environment.kind is EnvironmentKind.PYXIS:
        return [*lines, *_pyxis(binds, exports), ""]
    return [*lines, *_apptainer(binds, has_gpus, exports), ""]


def step_words(environment: Environment) -> tuple[str, ...]:
    """Further options for srun, as bash words."""
    return ('"${INSIDE[@]}"',) if environment.kind is EnvironmentKind.PYXIS else ()


def program_words(environment: Environment) -> tuple[str, ...]:
    """Words that stand before the interpreter, in bash."""
    return ('"${INSIDE[@]}"',) if environment.kind is EnvironmentKind.APPTAINER else ()


def recording_lines(environment: Environment) -> list[str]:
    """Lines that must stand before `recording_words`."""
    if environment.kind is not EnvironmentKind.PYXIS:
        return []
    return [
        (
            "# A cancelled job starts no more steps, so no more containers: the node's own Python notes the "
            "end, if it is new enough."
        ),
        "RECORD=(python3)",
        "if ! python3 -E -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then",
        '  RECORD=(srun --overlap --nodes=1 --ntasks=1 "${INSIDE[@]}" "$PYTHON")',
        "fi",
    ]


def recording_words(environment: Environment) -> str:
    """The Python that the job's last line runs to record how the run ended."""
    if environment.kind is EnvironmentKind.PYXIS:
        return '"${RECORD[@]}"'
    return " ".join((*program_words(environment), '"$PYTHON"'))


def exported_names(lines: Iterable[str]) -> list[str]:
    """Names of the variables that the `export` lines of a script set, as far as a shell would split these
    lines into NAME=VALUE words."""
    words = [word for line in lines if line.startswith("export ") for word in split(line)[1:]]
    return list(dict.fromkeys(match[1] for word in words if (match := _VARIABLE.match(word))))


def outermost(paths: Iterable[str]) -> list[str]:
    """Drop each path that lies below another of the paths: a container needs one mount for both."""
    unique = list(dict.fromkeys(paths))
    return [
        path
        for path in unique
        if not any(PurePosixPath(path).is_relative_to(other) for other in unique if other != path)
    ]


def _activation(environment: Environment) -> list[str]:
    path = quote(environment.path or "")
    lines: list[str] = []
    if environment.modules:
        lines += _modules(environment.modules)
    match environment.kind:
        case EnvironmentKind.VENV:
            lines += [
                f"export VIRTUAL_ENV={path}",
                'export PATH="$VIRTUAL_ENV/bin:$PATH"',
                "unset PYTHONHOME",
            ]
        case EnvironmentKind.CONDA if "/" in (environment.path or ""):
            lines += [
                f"export CONDA_PREFIX={path}",
                'export PATH="$CONDA_PREFIX/bin:$PATH"',
                "unset PYTHONHOME",
            ]
        case EnvironmentKind.CONDA:
            failed = quote(f"the conda environment {environment.path} cannot be activated")
            lines += [
                *_CONDA_FUNCTION.split("\n"),
                f"conda activate {path} || stop conda_not_initialised {failed}",
            ]
    return lines


def _modules(modules: Sequence[str]) -> list[str]:
    return [
        *_MODULE_FUNCTION.split("\n"),
        f"for MODULE in {' '.join(map(quote, modules))}; do",
        '  load_module "$MODULE" || stop module_not_found "module $MODULE cannot be loaded"',
        "done",
    ]


def _image(environment: Environment) -> list[str]:
    image = environment.image or ""
    lines = [f"IMAGE={quote(image)}"]
    if environment.kind is EnvironmentKind.APPTAINER:
        lines += [
            "# Singularity is Apptainer under its older name.",
            "CONTAINER=apptainer",
            "if ! type -P apptainer > /dev/null; then CONTAINER=singularity; fi",
            (
                'if ! type -P "$CONTAINER" > /dev/null; then stop module_not_found "no apptainer on the '
                'PATH"; fi'
            ),
        ]
    if image.startswith("/"):
        lines += ['if [[ ! -e $IMAGE ]]; then stop file_not_found "$IMAGE: no such image"; fi']
    return [
        *lines,
        "# Packages that Python would find through these variables lie outside the image.",
        "unset PYTHONHOME PYTHONPATH",
        "export PYTHONNOUSERSITE=1",
        "# The interpreter inside the image.",
    ]


def _apptainer(binds: Sequence[str], has_gpus: bool, exports: Sequence[str]) -> list[str]:
    return [
        f'INSIDE=("$CONTAINER" exec{" --nv" if has_gpus else ""}',
        *(f"  --bind {quote(bind)}" for bind in binds),
        '  "$IMAGE")',
        "# Variables of this script win over the image's own.",
        f"for NAME in {' '.join(exports)}; do",
        '  export "${CONTAINER^^}ENV_$NAME=${!NAME-}"',
        "done",
    ]


def _pyxis(binds: Sequence[str], exports: Sequence[str]) -> list[str]:
    mounts = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
    return [
        "INSIDE=(",
        '  --container-image="$IMAGE"',
        f"  --container-mounts={quote(mounts)}",
        "  # Without their names here, variables that the image has too would keep the image's values.",
        f"  --container-env={','.join(exports)}",
        ")",
    ]


def _check_mount(path: str) -> None:
    if set(path) & set(",:"):
        raise UserError(
            f"{path!r}: a container cannot be given a path with a comma or a colon",
            "choose another directory for runs_root, cache_dir or data_dir",
        )


# Home is small, backed up, and slow when two hundred ranks use it at once, but libraries write their caches
# there by default. Only variables that name one library's cache are set. XDG_CACHE_HOME is not set: it would
# also move the caches of programs that are unknown to this job. PIP_CACHE_DIR is not set: a job installs
# nothing.

CACHES = {
    # programs compiled by torch.compile; the default is /tmp, where every job compiles them again
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",  # Triton's kernels; the default is ~/.triton
    # operators that DeepSpeed and others build; the default is ~/.cache
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "CUDA_CACHE_PATH": "cuda",  # the driver's compiled kernels; the default is ~/.nv
    "TORCH_HOME": "torch",  # weights from torch.hub and torchvision
    "HF_HOME": "huggingface",  # models and data sets from the hub
}
"""Variable → folder below the cache directory."""


def cache_lines(cache_dir: str | None) -> list[str]:
    """Lines of a batch script that set the cache variables. A variable that the job's environment already
    sets keeps its value."""
    if cache_dir is None:
        return []
    return [
        "# Caches outside home, as the site wants; a variable that is set already keeps its value.",
        f"CACHES={quote(cache_dir)}",
        'mkdir -p -m 700 "$CACHES" || true',
        *(f'export {name}="${{{name}:-$CACHES/{folder}}}"' for name, folder in CACHES.items()),
    ]
