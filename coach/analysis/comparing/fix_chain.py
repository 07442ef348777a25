"""A chain of runs, each made from the one before by a fix: its members, its end, and its best run. Pure.

Several faults may need several fixes. After four fixes the launch has little in common with the first, and a
launch tried before would end the same way: then a person has to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from coach.analysis.comparing.steady_state import Estimate
from coach.model.launching.launch import Plan
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run

MAX_FIXES = 4
_FROM_OUTSIDE = frozenset({"CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED"})


@dataclass(frozen=True, slots=True)
class Link:
    """One run of a chain. `is_best` is the one to keep."""

    run_id: str
    fix: str | None
    """The fix that made it from the run before; None for the first."""
    state: str | None
    trial_steps: int | None
    """Number of steps, if it only tried the fix."""
    is_well: bool
    """True if it completed without a finding at warning or above."""
    throughput: Estimate | None
    is_best: bool = False
    found: str | None = None
    """Code of its primary finding, if that is at least a warning."""


def ancestry(run: Run, known: Iterable[Run]) -> tuple[Run, ...]:
    """The runs that led to this one, oldest first, itself last."""
    by_id = {each.run_id: each for each in known}
    chain, seen = [run], {run.run_id}
    while (parent := by_id.get(chain[0].parent_run_id or "")) is not None and parent.run_id not in seen:
        chain.insert(0, parent)
        seen.add(parent.run_id)
    return tuple(chain)


def family(run: Run, known: Iterable[Run]) -> tuple[Run, ...]:
    """The first run of its chain and all runs made from it, in the order of their launches; includes this
    run."""
    by_id = {each.run_id: each for each in known} | {run.run_id: run}

    def root(each: Run) -> str:
        seen = {each.run_id}
        while (parent := by_id.get(each.parent_run_id or "")) is not None and parent.run_id not in seen:
            each = parent
            seen.add(each.run_id)
        return each.run_id

    first = root(run)
    found = [each for each in by_id.values() if root(each) == first]
    return tuple(sorted(found, key=lambda each: each.created_time_s or 0.0))


def siblings(run: Run, known: Iterable[Run]) -> tuple[Run, ...]:
    """Runs that fixes made from this run, without those ended from outside: they say nothing about their
    fix."""
    return tuple(
        each
        for each in known
        if each.parent_run_id == run.run_id and each.fix is not None and each.state not in _FROM_OUTSIDE
    )


def why_no_further(plan: Plan, chain: Sequence[Run], beside: Sequence[Run] = ()) -> str | None:
    """Why this child of the chain's last run must not be launched, considering its other children too; None
    if it may."""
    if is_too_long(chain):
        led = f"{_num_fixes(chain)} fixes in a row have led to {chain[-1].run_id}"
        return f"{led}: not the requested launch any more"
    wanted = _launch_of(
        plan.recipe, plan.parameters, asdict(plan.resources), plan.request.env, plan.request.python
    )
    for run in (*chain, *beside):
        env, python = run.launch.get("env") or {}, run.launch.get("python")
        if _alike(_launch_of(run.recipe, run.parameters, run.resources, env, python), wanted):
            return f"{run.run_id} was launched exactly so{_outcome(run)}"
    return None


def is_too_long(chain: Sequence[Run]) -> bool:
    """True if as many fixes as coach makes in a row have led to the last run."""
    return _num_fixes(chain) >= MAX_FIXES


def _num_fixes(chain: Sequence[Run]) -> int:
    return sum(run.fix is not None for run in chain)


def _outcome(run: Run) -> str:
    if run.state is None:
        return ""
    return f" and {'ended' if is_final(run.state) else 'is'} {run.state}"


def with_best(links: Sequence[Link]) -> tuple[Link, ...]:
    """The chain with the run to keep marked: the fastest, beyond noise, of the runs that are well and no
    trials; the earliest of equally fast ones."""
    best: Link | None = None
    for link in links:
        if (
            link.is_well
            and link.trial_steps is None
            and (best is None or _is_faster(link.throughput, best.throughput))
        ):
            best = link
    return tuple(replace(each, is_best=each is best) for each in links)


def _is_faster(one: Estimate | None, other: Estimate | None) -> bool:
    if one is None or other is None:
        return one is not None
    return one.value - (one.noise or 0.0) > other.value + (other.noise or 0.0)


def _launch_of(
    recipe: str,
    parameters: Mapping[str, Any],
    resources: Mapping[str, Any],
    env: Mapping[str, str],
    python: str | None,
) -> dict[str, Any]:
    named = {f"parameter {name}": value for name, value in parameters.items()}
    named |= {f"resource {name}": value for name, value in resources.items()}
    return {"recipe": recipe, "env": dict(env), "python": python, **named}


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if both agree on every common name. A name that only one has comes from another version of coach,
    and was at its default."""
    return all(one[name] == other[name] for name in one.keys() & other.keys())
