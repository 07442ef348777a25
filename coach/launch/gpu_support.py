"""Warns before a launch if the environment's torch cannot use the GPUs that the launch requests.

Such a training does not fail: it finds no CUDA, trains on the CPU, and holds its GPUs for hours. The check
reads torch's files and imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from coach.launch.environment_check import prefix_of, read_torch_build
from coach.launch.interpreter import describe
from coach.launch.own_program import imported_modules
from coach.launch.recipe import Recipe
from coach.model.launching.environment import Environment
from coach.model.launching.launch import OwnKind

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


def warn_of_build(
    recipe: Recipe, environment: Environment, python: str, env: Mapping[str, str], gpus: int
) -> tuple[str, ...]:
    """A warning if GPUs are requested, and the files of the environment's torch say that it was built
    without CUDA, ROCm and XPU.

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
        "another environment with --env, or ask for no GPU (--gpus 0)",
    )


def _needs_torch(recipe: Recipe) -> bool:
    if recipe.own is None:
        return True
    if recipe.own.kind is OwnKind.BATCH:
        return False
    modules = {name.partition(".")[0] for name in imported_modules(recipe.own)}
    return bool(modules & _TRAINS_WITH_TORCH) and not modules & _OTHERS
