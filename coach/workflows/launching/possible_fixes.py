"""Tells apart the fixes that a launch can carry out now from those that the target refuses.

A finding proposes its fixes without the target's limits. Apart from the offer of one fix, because here all
fixes of a run are planned, with one look at the partitions and nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coach.analysis.spelling.slurm import format_time, parse_mem_mib
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Resources
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.launching.defaults import with_defaults
from coach.workflows.launching.fix_offer import Remedy
from coach.workflows.launching.further import refuse_further
from coach.workflows.launching.prepare import look_at_site, plan_for

_CPUS = "cpus_per_task"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A fix with its number among the fixes of its rule, from 1, in the order of the finding."""

    remedy: Remedy
    number: int
    why_not: str | None = None
    """Why a launch cannot carry it out, or only in part; None if it can, or if the target could not be
    asked."""


def numbered(found: Sequence[Remedy]) -> tuple[Numbered, ...]:
    """The fixes with their numbers. None is judged."""
    counts: dict[str, int] = {}
    rows = []
    for each in found:
        counts[each.finding.rule] = counts.get(each.finding.rule, 0) + 1
        rows.append(Numbered(each, counts[each.finding.rule]))
    return tuple(rows)


def judged(
    rows: Sequence[Numbered], parent: Run, settings: Settings, env: Mapping[str, str], io: Io
) -> tuple[Numbered, ...]:
    """The fixes of a run, judged by the checks of a launch: those that can be carried out first. Raises
    UserError if the target cannot be asked."""
    if not rows:
        return ()
    site = look_at_site(parent.backend, io, settings)

    def why_not(remedy: Remedy) -> str | None:
        try:
            request = with_defaults(remedy.request, settings)
            plan = plan_for(request, settings, env, io, site, io.now())
            refuse_further(plan, parent, settings, io)
        except UserError as error:
            return error.message
        return _why_reduced(remedy, request, plan.resources, parent)

    told = [Numbered(each.remedy, each.number, why_not(each.remedy)) for each in rows]
    return tuple(sorted(told, key=lambda each: each.why_not is not None))


def _why_reduced(remedy: Remedy, request: LaunchRequest, resources: Resources, parent: Run) -> str | None:
    """The limit of the target to which the launch reduced the time, the CPUs or the memory of the fix; None
    if it reduced nothing. Fewer CPUs than the fix names still help if they are more than the parent had."""
    wanted, given = request.time_limit_s, resources.time_limit_s
    if "time" in remedy.fix.changes and wanted is not None and given is not None and given < wanted:
        return f"{format_time(given)} is the longest time limit there, the fix needs {format_time(wanted)}"
    cpus, most_cpus, had_cpus = request.cpus_per_task, resources.cpus_per_task, parent.resources.get(_CPUS)
    is_more = isinstance(had_cpus, int) and most_cpus > had_cpus
    if _CPUS in remedy.fix.changes and cpus is not None and most_cpus < cpus and not is_more:
        return f"a node has {most_cpus} CPUs there, the fix needs {cpus}"
    if "mem" in remedy.fix.changes and request.mem is not None and resources.mem is not None:
        most_mib, mib = parse_mem_mib(resources.mem, "mem"), parse_mem_mib(request.mem, "mem")
        if 0 < most_mib < mib:
            return f"a node has {most_mib} MiB of memory there, the fix needs {mib} MiB"
    return None
