"""What a site hides from its users: PrivateData of slurm.conf, and how the clients show it.

Nodes and partitions are refused outright, so the answer itself tells. Other users' jobs and reservations are
left out in silence: an empty list then says nothing, and the configuration has to be asked.
"""

from __future__ import annotations

from collections.abc import Mapping

_DENIED = "Access/permission denied"
"""ESLURM_ACCESS_DENIED, in the words of every version from 16.05 to 25.05."""


def is_denied(error: str | None) -> bool:
    """True if the controller answered that this user may not see it."""
    return error is not None and _DENIED in error


def private_kinds(config: Mapping[str, str]) -> frozenset[str]:
    """The words of PrivateData: `jobs`, `nodes`, `reservations` …; empty where everybody sees everything."""
    words = (word.strip() for word in config.get("PrivateData", "").split(","))
    return frozenset(word for word in words if word)
