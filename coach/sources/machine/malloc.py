"""Limit the address space that the C library's allocator reserves for threads."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""mallopt(3), `M_ARENA_MAX` of glibc's malloc.h."""
_MAX_ARENAS = 2


def bound_arenas() -> None:
    """Make all threads share two arenas. Does nothing if the C library has no such option.

    glibc gives each new thread its own arena, up to eight for each core, and each reserves 64 MB of address
    space (malloc(3), NOTES). Login nodes limit that space, and most of coach's threads are sources that wait.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _MAX_ARENAS)
