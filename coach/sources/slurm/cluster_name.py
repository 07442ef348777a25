"""Find the cluster's name without asking the controller.

Answers are stored by cluster, and the screens show the cluster's name; neither justifies a request that can
hang.
"""

from __future__ import annotations

from collections.abc import Mapping

from coach.sources.slurm.conf_file import conf_files

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
    try:
        with open(file, encoding="utf-8", errors="replace") as config:
            for text in config:
                key, _, value = text.partition("=")
                if key.strip().lower() == "clustername":
                    return value.split("#")[0].split()[0] if value.split("#")[0].strip() else None
    except (OSError, ValueError):
        return None
    return None
