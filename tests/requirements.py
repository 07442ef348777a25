"""The tools that tests need beside Python. If one is missing, its tests are skipped with a message, or fail
if CI requires them.

A suite that silently skips its best tests proves nothing. So every such test has a marker, the reasons are
printed at the end, and `COACH_TEST_SLURM=require` (`…_TERMINAL`, `…_TRAIN`, `…_NVML`, `…_STRACE`, `…_ROOT`,
…) turns the skip into a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cluster import apptainer, lmod, other_slurm, scale, site_slurm, slurm
from tests.nvml.stand_in import has_compiler
from tests.terminal import tmux


@dataclass(frozen=True, slots=True)
class Requirement:
    """A marker, the requirement of its tests, and the fixtures that imply the marker."""

    marker: str
    why_not: Callable[[], str | None]
    variable: str
    fixtures: frozenset[str]

    @property
    def is_required(self) -> bool:
        return os.environ.get(self.variable) == "require"


@cache
def _why_no_slurm() -> str | None:
    return slurm.why_not()


@cache
def _why_no_torch() -> str | None:
    return None if importlib.util.find_spec("torch") else "torch is not installed (extra: train)"


@cache
def _why_no_environments() -> str | None:
    return apptainer.why_not() or lmod.why_not()


@cache
def _why_no_modules() -> str | None:
    return lmod.why_not()


@cache
def _why_no_nvml() -> str | None:
    return None if has_compiler() else "the NVML stand-in is compiled C, and there is no gcc"


def _missing(extra: str, *names: str) -> str | None:
    missing = [name for name in names if not importlib.util.find_spec(name)]
    return f"not installed: {', '.join(missing)} (extra: {extra})" if missing else None


@cache
def _why_no_frameworks() -> str | None:
    return _missing("frameworks", "mpi4py", "pytorch_lightning", "tensorboard")


@cache
def _why_no_language() -> str | None:
    return _missing("language", "tokenizers", "datasets")


@cache
def _why_no_kernels() -> str | None:
    return _missing("kernels", "triton", "nvidia")


@cache
def _why_no_proof() -> str | None:
    return _missing("proof", "transformers", "accelerate", "hydra", "jax")


@cache
def _why_no_strace() -> str | None:
    return None if shutil.which("strace") else "not installed: strace"


def _why_not_root() -> str | None:
    return None if os.geteuid() == 0 else "only root can"


def _why_no_memory_cgroup() -> str | None:
    is_writable = os.access("/sys/fs/cgroup/memory", os.W_OK)
    return None if is_writable else "no writable memory cgroup of version 1 here"


@cache
def _why_no_gpu() -> str | None:
    return None if Path("/dev/nvidiactl").exists() else "no NVIDIA GPU here"


REQUIREMENTS = (
    Requirement(
        "cluster", _why_no_slurm, "COACH_TEST_SLURM", frozenset({"slurm", "slurm_cluster", "site_slurm"})
    ),
    Requirement("terminal", tmux.why_not, "COACH_TEST_TERMINAL", frozenset({"open_terminal"})),
    Requirement("train", _why_no_torch, "COACH_TEST_TRAIN", frozenset({"train_python"})),
    Requirement("frameworks", _why_no_frameworks, "COACH_TEST_TRAIN", frozenset()),
    Requirement("language", _why_no_language, "COACH_TEST_TRAIN", frozenset()),
    Requirement("kernels", _why_no_kernels, "COACH_TEST_TRAIN", frozenset()),
    Requirement("proof", _why_no_proof, "COACH_TEST_PROOF", frozenset()),
    Requirement(
        "site", site_slurm.why_not, "COACH_TEST_SLURM", frozenset({"site_slurm", "site_slurm_cluster"})
    ),
    Requirement("other_slurm", other_slurm.why_not, "COACH_TEST_OTHER_SLURM", frozenset({"strict_slurm"})),
    Requirement("scale", scale.why_not, "COACH_TEST_SCALE", frozenset({"large_slurm"})),
    Requirement("root", _why_not_root, "COACH_TEST_ROOT", frozenset()),
    Requirement("memory_cgroup", _why_no_memory_cgroup, "COACH_TEST_CGROUP", frozenset()),
    Requirement("modules", _why_no_modules, "COACH_TEST_MODULES", frozenset()),
    Requirement("environments", _why_no_environments, "COACH_TEST_SLURM", frozenset()),
    Requirement("nvml", _why_no_nvml, "COACH_TEST_NVML", frozenset({"nvml_stand_in", "nvml"})),
    Requirement("strace", _why_no_strace, "COACH_TEST_STRACE", frozenset()),
    Requirement("gpu", _why_no_gpu, "COACH_TEST_GPU", frozenset()),
)
