"""Explain a node's state: the meaning of each of Slurm's words, and if a job could start there now.

Slurm writes a base state with flags (`mixed+drain`, in sinfo's short form `mix*`). A word unknown to coach is
shown as it is, and its node counts as not free.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from coach.model.slurm.cluster import Node

_SUFFIXES = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "power_down",
    "%": "powering_down",
    "$": "maint",
    "@": "reboot_requested",
    "^": "reboot_issued",
    "-": "planned",
}
"""sinfo's suffixes of a state."""

_SHORT = {
    "alloc": "allocated",
    "mix": "mixed",
    "unk": "unknown",
    "comp": "completing",
    "drng": "draining",
    "drained": "drain",
    "failg": "failing",
    "futr": "future",
    "maintenance": "maint",
    "resv": "reserved",
    "plnd": "planned",
    "boot": "reboot_issued",
    "npc": "perfctrs",
    "no_respond": "not_responding",
    "powerdown": "power_down",
    "powerup": "powering_up",
    "power_up": "powering_up",
    "power": "powered_down",  # before Slurm 21.08
    "pow_up": "powering_up",
    "pow_dn": "powering_down",
    "inval": "invalid_reg",
    "cmpl": "completing",
    "block": "blocked",
}

_WORDS: dict[str, tuple[str, bool]] = {
    # base states
    "idle": ("nothing runs on it", True),
    "mixed": ("part of it is in use", True),
    "allocated": ("all of it is in use", False),
    "down": ("it is down", False),
    "error": ("it is in an error state", False),
    "unknown": ("Slurm has not heard of it since it started", False),
    "future": ("it is planned, and does not exist yet", False),
    "fail": ("it is expected to fail, and takes no jobs", False),
    # flags
    "drain": ("it is drained: it takes no new jobs", False),
    "draining": ("it is being drained: its jobs end, and no new ones start", False),
    "failing": ("it is expected to fail: its jobs end, and no new ones start", False),
    "reserved": ("it is kept for a reservation", False),
    "maint": ("it is reserved for maintenance", False),
    "planned": ("it is reserved for a higher-priority job", False),
    "completing": ("a job on it is being cleaned up", True),
    "not_responding": ("its slurmd does not answer", False),
    "powered_down": ("it is powered down, and started when a job needs it", True),
    "power_down": ("it is to be powered down", False),
    "powering_down": ("it is being powered down", False),
    "power_drain": ("it is to be powered down when its jobs have ended", False),
    "powering_up": ("it is being powered up", False),
    "reboot_requested": ("it is to be rebooted", False),
    "reboot_issued": ("it is being rebooted", False),
    "reboot": ("it is being rebooted", False),
    "invalid_reg": ("it has less hardware than its configuration says, and is not used", False),
    "blocked": ("an exclusive job is about to start on it", False),
    "perfctrs": ("its performance counters are in use", False),
    "undrain": ("it is coming back", False),
    "resume": ("it is coming back", False),
    "cloud": ("it is in a cloud", True),
    "dynamic_norm": ("it joined by itself", True),
    "dynamic_future": ("it joined by itself", True),
    "external": ("it is not managed by Slurm", False),
}
STATE_WORDS = frozenset(_WORDS)
"""Every base state and flag that coach knows."""

_NO_CPUS = "all its CPUs are in use"
_UNREMARKABLE = frozenset({"cloud", "dynamic_norm", "dynamic_future"})


@dataclass(frozen=True, slots=True)
class NodeState:
    """A parsed node state. `words` has Slurm's full words: the base state, then its flags."""

    words: tuple[str, ...]
    meaning: str
    takes_jobs: bool
    """True if a job could start on it now, judged by the state alone."""
    unknown: tuple[str, ...]
    """Words that coach does not know."""


@lru_cache(maxsize=1024)
def explain_state(state: str) -> NodeState:
    """Parse `mixed+drain`, as scontrol writes it, or `mix*`, as sinfo does."""
    words = split_state(state)
    unknown = tuple(word for word in words if word not in _WORDS)
    told = [_WORDS[word][0] if word in _WORDS else f"{word} (not known to coach)" for word in words]
    shown = [
        text for text, word in zip(told, words, strict=True) if word not in _UNREMARKABLE or len(words) == 1
    ]
    takes_jobs = bool(words) and not unknown and all(_WORDS[word][1] for word in words)
    return NodeState(words, "; ".join(shown), takes_jobs, unknown)


def split_state(state: str) -> tuple[str, ...]:
    """The full words of a state: `mix-` is (`mixed`, `planned`)."""
    words: list[str] = []
    for part in state.lower().split("+"):
        flags = []
        while part and part[-1] in _SUFFIXES:
            flags.append(_SUFFIXES[part[-1]])
            part = part[:-1]
        words += [_SHORT.get(part, part)] if part else []
        words += flags
    return tuple(dict.fromkeys(words))


def why_no_job(node: Node) -> str | None:
    """Why no job could start on this node now, in a few words; None if one could.

    A node without free CPUs or memory takes no job, even if GPUs are free.
    """
    state = explain_state(node.state)
    if state.unknown:
        return f"its state is {node.state}"
    are_cpus_used = _is_used_up(node.num_cpus_allocated, node.num_cpus)
    if not state.takes_jobs:
        told = {word: _WORDS[word][0] for word in state.words if not _WORDS[word][1]}
        if "allocated" in told and are_cpus_used:
            # Slurm calls a node allocated when its CPUs are; its GPUs may be idle.
            told["allocated"] = _NO_CPUS
        return "; ".join(told.values())
    if node.owner is not None:
        return "it is shared only among jobs of its present user"
    if are_cpus_used:
        return _NO_CPUS
    if _is_used_up(node.memory_allocated_mib, node.memory_mib):
        return "all its memory is in use"
    return None


def _is_used_up(used: int | None, total: int | None) -> bool:
    return used is not None and bool(total) and total is not None and used >= total
