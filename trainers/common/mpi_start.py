"""MPI's start: the ranks that MPI has started, or else ranks of this trainer started by the mpiexec that
belongs to its Python.

torchrun is not needed here: MPI tells every process its number. This module sets torchrun's variables from
it, for the other modules.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

from common.distributed import Refused, TrainerError
from common.needed import needed

_STARTED_BY = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""Set in a rank by MPICH and Slurm's pmi2, by PMIx, by Open MPI, by Intel MPI."""

_HOW = "install mpi4py, and an MPI where the site has none: `pip install mpi4py mpich`"

_MORE_RANKS_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
}
"""Open MPI refuses some launches that MPICH accepts."""


def start_ranks(num_ranks: int) -> Any:
    """mpi4py's `MPI`, in a process that is a rank. A process that is none becomes the mpiexec of `num_ranks`,
    and does not return."""
    if not any(name in os.environ for name in _STARTED_BY):
        _become_mpiexec(num_ranks)
    mpi = _import_mpi()
    world = mpi.COMM_WORLD
    on_this_node = world.Split_type(mpi.COMM_TYPE_SHARED)
    os.environ.update(RANK=str(world.rank), WORLD_SIZE=str(world.size), LOCAL_RANK=str(on_this_node.rank))
    return mpi


def _import_mpi() -> Any:
    with needed(_HOW):
        from mpi4py import MPI
    return MPI


def _become_mpiexec(num_ranks: int) -> NoReturn:
    if num_ranks < 1:
        raise TrainerError(f"--ranks {num_ranks}: at least 1 is needed")
    with needed(_HOW):  # one process says it, not each rank
        import mpi4py  # noqa: F401 - its MPI would start MPI in this process as well
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.is_file() else shutil.which("mpiexec") or shutil.which("mpirun")
    if mpiexec is None:
        raise Refused(
            "module_not_found", "no mpiexec beside this Python or on the PATH: load the site's MPI module"
        )
    print(f"MPI: {mpiexec} starts {num_ranks} ranks on this node", flush=True)
    # Without Slurm's variables: an mpiexec that sees them starts ranks by srun, as another step of the job.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI"))}
    # Compute threads were counted for one process: more than its share of the cores makes every rank slower.
    said = env.get("OMP_NUM_THREADS", "")
    threads = max(1, int(said) // num_ranks) if said.isdigit() else 1
    env.update(_MORE_RANKS_THAN_CORES, OMP_NUM_THREADS=str(threads))
    command = [mpiexec, "-n", str(num_ranks), sys.executable, *sys.argv]
    os.execve(mpiexec, command, env)
