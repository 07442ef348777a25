"""What a fix may ask for: never more than there is.

A person who asks for too much is told, and asks again. A fix only knows what was measured to be needed, so it gets all there is, and it is
said that this may not be enough.
"""

from __future__ import annotations

from dataclasses import replace

from coach.launch.spelling import format_time, parse_mem_mib
from coach.model.launching.launch import LaunchRequest


def within(
    request: LaunchRequest, limit_s: int | None, memory_mib: int | None, target: str, warnings: list[str]
) -> LaunchRequest:
    """The request with the time and the memory per node that its fix asks for, as far as the target has them."""
    changes = request.fix.changes if request.fix is not None else {}
    asked_s, asked_mem = request.time_limit_s, request.mem
    if "time" in changes and limit_s is not None and asked_s is not None and asked_s > limit_s:
        warnings.append(
            f"time limit {format_time(limit_s)}, the most that {target} allows: the fix asks for {format_time(asked_s)},"
            " so the run has to go on in a next job"
        )
        request = replace(request, time_limit_s=limit_s)
    wanted_mib = parse_mem_mib(asked_mem, "mem") if "mem" in changes and asked_mem is not None else 0
    if memory_mib is not None and wanted_mib > memory_mib:
        warnings.append(
            f"{memory_mib} MiB per node, all that {target} has: the fix asks for {asked_mem}, so use less as well"
        )
        request = replace(request, mem=f"{memory_mib}M")
    return request
