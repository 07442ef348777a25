"""How much address space the C library's allocator takes for the threads of the screens."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""mallopt(3), `M_ARENA_MAX` of glibc's malloc.h."""
_MAX_ARENAS = 2


def bound_arenas() -> None:
    """Let all threads share two arenas. Does nothing where the C library has no such switch.

    glibc gives each new thread an arena of its own, up to eight for each core, and each reserves 64 MB of
    address space (malloc(3), NOTES). Login nodes limit that space, and sources are threads that mostly wait.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _MAX_ARENAS)
