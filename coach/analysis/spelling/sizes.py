"""Write sizes of files and disks as people read them: in decimal units, like quotas and disks. Plans, tables
and checks share this spelling."""

from __future__ import annotations


def format_bytes(num_bytes: float) -> str:
    """`0 B`, `512 MB`, `1.5 TB`."""
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
