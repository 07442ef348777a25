"""Find the cluster's name without asking the controller.

Answers are stored by cluster, and the screens show the cluster's name; neither justifies a request that can
hang.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coach.sources.slurm.conf_file import conf_files, conf_lines

VARIABLE = "SLURM_CLUSTER_NAME"


def cluster_name(env: Mapping[str, str]) -> str | None:
    """The variable that a module or a job sets, else ClusterName in slurm.conf; None if neither is there."""
    if env.get(VARIABLE):
        return env[VARIABLE]
    for file in conf_files(env):
        if name := _name_in(file):
            return name
    return None


def _name_in(file: str) -> str | None:
    for line in conf_lines(Path(file)):
        key, _, value = line.partition("=")
        if key.strip().lower() == "clustername":
            return value.split("#")[0].split()[0] if value.split("#")[0].strip() else None
    return None
