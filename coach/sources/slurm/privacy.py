"""Detect data that a site hides from its users: PrivateData in slurm.conf, and its effect on the clients.

Requests for hidden nodes and partitions are refused, so the answer itself tells. Other users' hidden jobs and
reservations are left out silently: then only the configuration says why a list is empty.
"""

from __future__ import annotations

from collections.abc import Mapping

_DENIED = "Access/permission denied"
"""ESLURM_ACCESS_DENIED, in the wording of all versions from 16.05 to 25.05."""


def is_denied(error: str | None) -> bool:
    """True if the controller answered that this user has no permission."""
    return error is not None and _DENIED in error


def private_kinds(config: Mapping[str, str]) -> frozenset[str]:
    """The words of PrivateData: `jobs`, `nodes`, `reservations` …; empty if nothing is hidden."""
    words = (word.strip() for word in config.get("PrivateData", "").split(","))
    return frozenset(word for word in words if word)
