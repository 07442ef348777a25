"""Decide which backend a launch uses.

Wherever a Slurm client or configuration exists, `auto` means Slurm, even if the controller does not answer:
nobody trains on a login node by accident because the controller was down for a minute.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from coach.config import BACKENDS, Settings, Switch
from coach.model.errors import UserError

_NO_CONFIGURATION = "Could not establish a configuration source"
"""Slurm's words where its commands are installed and no slurm.conf is found."""
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def resolve_backend(requested: str, env: Mapping[str, str], settings: Settings | None = None) -> str:
    """Return `slurm` or `local`. Pass settings for a launch: raises UserError if the site allows no launches,
    or no local ones."""
    if requested not in BACKENDS:
        raise UserError(f"backend {requested!r}: expected one of {', '.join(BACKENDS)}")
    resolved = requested if requested != "auto" else _found(env)
    if settings is not None:
        off = settings.why_off(Switch.LAUNCH)
        if off is not None:
            raise UserError(f"coach launches nothing: {off}", "ask the site")
        _refuse_if_locked(requested, resolved, env, settings)
    why = why_no_local_backend(settings) if settings is not None and resolved == "local" else None
    if why is not None:
        said = "--backend local" if requested == "local" else "there is no Slurm here, and a local launch"
        raise UserError(f"{said}: {why}", "launch where Slurm is: --backend slurm")
    return resolved


def _refuse_if_locked(requested: str, resolved: str, env: Mapping[str, str], settings: Settings) -> None:
    lock, wanted = settings.lock_of("launch.backend"), settings.launch.backend
    if lock is not None and resolved != (wanted if wanted != "auto" else _found(env)):
        raise UserError(f"--backend {requested}: {lock.words}", f"leave it out: the site's is {wanted}")


def why_no_local_backend(settings: Settings) -> str | None:
    """Why training on this machine is not allowed; None if it is."""
    return settings.why_off(Switch.LOCAL_BACKEND)


def hint_without_cluster(said: str, settings: Settings) -> str | None:
    """What would help where Slurm's commands are installed and belong to no cluster; None for other failures:
    a controller that is down for a minute is no reason to train on a login node."""
    if _NO_CONFIGURATION not in said:
        return None
    named = "SLURM_CONF names the cluster's slurm.conf"
    return named if why_no_local_backend(settings) else f"{named}; --backend local trains on this machine"


def _found(env: Mapping[str, str]) -> str:
    has_client = any(shutil.which(client, path=env.get("PATH")) for client in ("sbatch", "squeue"))
    has_configuration = bool(env.get("SLURM_CONF")) or any(Path(file).exists() for file in _CONFIGURATIONS)
    return "slurm" if has_client or has_configuration else "local"
