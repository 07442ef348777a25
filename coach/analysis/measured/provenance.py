"""Describe the source of a node's numbers, their age, and how many of the job's GPUs they miss.

Without these, numbers are trusted too much: a step in a job may see fewer GPUs than the job has, and a stream
may have stopped.
"""

from __future__ import annotations

from coach.lookback.history import History
from coach.model.training.other_machine import rough_age
from coach.model.training.telemetry import HostSample


def provenance(history: History, node: str, now_s: float) -> str | None:
    """`the sampler beside the training, 2 s ago; 6 of 8 GPUs visible`; None if nothing was measured there."""
    origin = history.origin(node)
    if origin is None:
        return None
    hosts = history.host(node)
    seen = visible_gpus(hosts[-1] if hosts else None)
    told = f"{origin.rung}, {rough_age(max(0.0, now_s - origin.time_s))} ago"
    return f"{told}; {seen}" if seen else told


def visible_gpus(host: HostSample | None) -> str | None:
    """`6 of 8 GPUs visible` if the job has more GPUs on the node than were seen; otherwise, or if that is not
    known, None."""
    if host is None or host.num_gpus is None or host.num_gpus_allotted is None:
        return None
    if host.num_gpus >= host.num_gpus_allotted:
        return None
    return f"{host.num_gpus} of {host.num_gpus_allotted} GPUs visible"
