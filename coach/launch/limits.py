"""Checks a launch against the limits that the site set for coach, and a fix against the target's limits.

Slurm has limits of its own. A site that sets these wants a launch refused at once with a reason, where Slurm
would keep the job pending with a reason that few people read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from coach.analysis.spelling.slurm import format_time, parse_mem_mib
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Resources
from coach.model.launching.site import Limits
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run

OVERDUE_S = 3600.0
"""A run this many seconds past its expected end counts as ended, though nobody recorded the end."""


def num_alive(known: Iterable[Run], now_s: float, without: str | None = None) -> int:
    """Number of runs that wait or run, according to their run directories. `without` is the id of a run that
    is not counted, such as the parent of a fix. A group counts at most as many runs as go at once: the others
    wait for them."""
    alive = [run for run in known if run.run_id != without and _is_alive(run, now_s)]
    groups: dict[str, list[Run]] = {}
    num_single = 0
    for run in alive:
        if run.sweep is None:
            num_single += 1
        else:
            groups.setdefault(run.sweep.group_id, []).append(run)
    return num_single + sum(min(len(members), _pace_of(members)) for members in groups.values())


def _pace_of(members: Sequence[Run]) -> int:
    """The number of runs of a group that go at once: as its launch set it, one for a recipe's own sweep, else
    all of them."""
    launch = members[0].launch
    said = launch.get("at_once")
    if isinstance(said, int) and said > 0:
        return said
    return len(members) if launch.get("sweep") or launch.get("own") else 1


def _is_alive(run: Run, now_s: float) -> bool:
    if run.state is None or is_final(run.state):
        return False
    limit_s = run.resources.get("time_limit_s")
    if run.started_time_s is None or not isinstance(limit_s, (int, float)):
        return True
    return now_s < run.started_time_s + limit_s + OVERDUE_S


def check_limits(
    resources: Resources,
    num_alive_runs: int,
    limits: Limits,
    origins: Mapping[str, str] | None = None,
    *,
    can_cancel: bool = True,
) -> None:
    """Raise UserError for the first limit that the launch exceeds. `origins` maps a limit's key → the place
    that sets it. `can_cancel` is False if the site has switched that off."""
    places = origins or {}
    num_gpus = resources.num_nodes * resources.gpus_per_node
    if limits.max_gpus is not None and num_gpus > limits.max_gpus:
        raise _refusal(
            f"{num_gpus} GPUs ({resources.num_nodes} x {resources.gpus_per_node})",
            f"at most {limits.max_gpus} GPUs in one launch",
            places.get("limits.max_gpus"),
            "ask for fewer with --gpus or --nodes",
        )
    if limits.max_time_s is not None:
        _check_time(resources.time_limit_s, limits.max_time_s, places.get("limits.max_time"))
    check_running(num_alive_runs, limits, places, can_cancel=can_cancel)


def check_running(
    num_alive_runs: int, limits: Limits, origins: Mapping[str, str], *, can_cancel: bool = True
) -> None:
    """Raise UserError if one run more would exceed the limit of runs at a time."""
    if limits.max_running is not None and num_alive_runs >= limits.max_running:
        raise _refusal(
            f"{num_alive_runs} of your runs are pending or running",
            f"at most {limits.max_running} at once",
            origins.get("limits.max_running"),
            f"wait for one to end{', or `coach cancel` one' if can_cancel else ''}; `coach runs` lists them",
        )


def _check_time(asked_s: int | None, most_s: int, place: str | None) -> None:
    if asked_s is None:
        raise _refusal(
            "no time limit",
            f"at most {format_time(most_s)}",
            place,
            f"set one with --time {format_time(most_s)}",
        )
    if asked_s > most_s:
        most = format_time(most_s)
        raise _refusal(
            f"--time {format_time(asked_s)}", f"at most {most}", place, f"ask for --time {most} or less"
        )


def _refusal(asked: str, allowed: str, place: str | None, hint: str) -> UserError:
    return UserError(f"{asked}: the site allows {allowed}{f' ({place})' if place else ''}", hint)


# Limits for a fix. A person who asks for too much gets a refusal and can ask again. A fix only has the
# measured need, so it gets as much as the target has, with a warning that this may not be enough.


def within_cpus(
    request: LaunchRequest, num_cpus: int | None, target: str, warnings: list[str]
) -> LaunchRequest:
    """The request with the CPUs per node that its fix needs, reduced to those of the target's nodes."""
    changes = request.fix.changes if request.fix is not None else {}
    asked = request.cpus_per_task
    if "cpus_per_task" not in changes or asked is None or num_cpus is None or asked <= num_cpus:
        return request
    warnings.append(f"{num_cpus} CPUs per node, all that {target} has: the fix asks for {asked}")
    return replace(request, cpus_per_task=num_cpus)


def within(
    request: LaunchRequest, limit_s: int | None, memory_mib: int | None, target: str, warnings: list[str]
) -> LaunchRequest:
    """The request with the time and the memory per node that its fix needs, reduced to the target's
    limits."""
    changes = request.fix.changes if request.fix is not None else {}
    asked_s, asked_mem = request.time_limit_s, request.mem
    if "time" in changes and limit_s is not None and asked_s is not None and asked_s > limit_s:
        warnings.append(
            f"time limit {format_time(limit_s)}, the most that {target} allows: the fix asks for "
            f"{format_time(asked_s)}, so the run has to resume in a next job"
        )
        request = replace(request, time_limit_s=limit_s)
    wanted_mib = parse_mem_mib(asked_mem, "mem") if "mem" in changes and asked_mem is not None else 0
    if memory_mib is not None and wanted_mib > memory_mib:
        warnings.append(
            f"{memory_mib} MiB per node, all that {target} has: the fix asks for {asked_mem}, so use "
            "less as well"
        )
        request = replace(request, mem=f"{memory_mib}M")
    return request
