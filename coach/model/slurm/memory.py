"""Memory sizes in Slurm's spelling.

Launches refuse a wrong size with the name of its option; readers of runs take it as unknown. Both read sizes
here, so that they accept the same ones.
"""

from __future__ import annotations

import math
import re

_MEMORY = re.compile(r"(\d{1,9})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_MIB_PER_UNIT = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}


def mem_mib(text: str) -> int | None:
    """MiB of `500M`, `16G`, `1TB`, rounded up; a bare number is MiB. None for any other text."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.groups()
    return -int(-int(number) * _MIB_PER_UNIT[unit.upper()] // 1)


def spell_memory(mib: float, *, is_most: bool = False) -> str:
    """Memory in Slurm's notation, rounded up: to GiB from 4 GiB on, else to 64 MiB. With `is_most` it is not
    rounded up."""
    if is_most:
        return f"{math.floor(mib)}M"
    return f"{math.ceil(mib / 1024)}G" if mib > 4096 else f"{math.ceil(mib / 64) * 64}M"
