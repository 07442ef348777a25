"""Which backend a launch goes to.

Wherever a Slurm client or configuration exists, `auto` means Slurm, answered or not: nobody trains on a login node by accident
because the controller was down for a minute.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from coach.config import BACKENDS
from coach.model.errors import UserError

_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def resolve_backend(requested: str, env: Mapping[str, str]) -> str:
    """`slurm` or `local`."""
    if requested not in BACKENDS:
        raise UserError(f"backend {requested!r}: expected one of {', '.join(BACKENDS)}")
    if requested != "auto":
        return requested
    has_client = any(shutil.which(client, path=env.get("PATH")) for client in ("sbatch", "squeue"))
    has_configuration = bool(env.get("SLURM_CONF")) or any(Path(file).exists() for file in _CONFIGURATIONS)
    return "slurm" if has_client or has_configuration else "local"
