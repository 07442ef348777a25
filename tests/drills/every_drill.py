"""Run every drill, check that its planted cause is found, fix it, and compare its speed with the fault-free
twin: `python -m tests.drills.every_drill --backend local NAME…` prints the results as JSON.

The diagnosis gets no help: the rules judge these runs like any others, and the planted cause is compared only
afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coach.analysis.comparing.same_steps import speedup
from coach.analysis.comparing.steady_state import Estimate
from coach.cli import load_settings
from coach.cli.teaching.drill_all import choose
from coach.cli.text import print_json, say
from coach.launch.recipe import Recipe
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Severity
from coach.model.launching.launch import LaunchRequest
from coach.model.teaching.drill import Drill
from coach.sources.io import Io, SystemIo, scrubbed_environment
from coach.workflows.launching.defaults import with_options
from coach.workflows.launching.fix_offer import Remedy, offer, remedies
from coach.workflows.launching.prepare import look_at_site
from coach.workflows.teaching.drill_answer import tell_answer
from coach.workflows.teaching.drills import why_skipped
from coach.workflows.watching.launch_watch import Launches, Watched

MIN_RATIO = 0.9
"""Least ratio of a fixed run's throughput to its twin's."""


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The result of one drill. All but the first three fields are None if it was skipped, or ended before
    they were known."""

    name: str
    planted: str
    skipped: str | None = None
    run_dir: str | None = None
    found: str | None = None
    """The primary finding's cause."""
    is_diagnosed: bool | None = None
    seconds_to_finding: float | None = None
    mended_by: str | None = None
    """The fix that was applied, or the edit that the learner makes."""
    is_fixed: bool | None = None
    throughput_ratio: Estimate | None = None
    """Throughput of the child divided by its twin's, over the same steps; None if the edit is the twin, or if
    nothing was measured."""
    misses: tuple[str, ...] = ()
    """The bars that were missed, one line each."""


class DrillLaunches(Launches):
    """Launches that also run fixes."""

    def run_fix(self, remedy: Remedy, ran: Watched) -> Watched:
        """Launch a fix of a run as its child, and watch it to the end. Raises like `run`."""
        parent = ran.snapshot.run
        assert parent is not None, "a run that was launched has a record"
        self.wait_for_room()
        seen = (ran.snapshot, ran.history)
        return self.run_plan(offer(parent, remedy, *seen, self._settings, self._env, self._io).plan)


def twin_request(drill: Drill, backend: str = "auto") -> LaunchRequest:
    """The launch of the fault-free twin."""
    return with_options(LaunchRequest(drill.twin.recipe, backend), drill, drill.twin.set, drill.twin.options)


def run_drills(
    drills: Sequence[Recipe], given: LaunchRequest, launches: DrillLaunches, site: Site, io: Io
) -> Iterator[DrillResult]:
    """Yields each drill's result, one drill after the other: so none disturbs the measurement of another. An
    interruption cancels the running one. `given`: the environment for all of them."""
    conduct = _Conduct(given, launches, site, io)
    return map(conduct.drill, drills)


class _Conduct:
    """Runs drills; a twin that several of them share is run once."""

    def __init__(self, given: LaunchRequest, launches: DrillLaunches, site: Site, io: Io) -> None:
        self._given, self._launches, self._site, self._io = given, launches, site, io
        self._twins: dict[str, Watched] = {}

    def drill(self, recipe: Recipe) -> DrillResult:
        drill = recipe.drill
        assert drill is not None
        result = DrillResult(recipe.name, drill.planted, skipped=why_skipped(drill, self._site))
        if result.skipped is not None:
            return result
        causes = (drill.planted, *drill.also)
        try:
            ran = self._launches.run(
                replace(self._given, recipe=recipe.name),
                causes=causes,
                on_launched=lambda submitted: tell_answer(Path(submitted.run_dir), self._io),
            )
        except UserError as refused:
            if recipe.requires:  # the environment lacks what the recipe requires
                return replace(result, skipped=refused.message)
            return replace(result, is_diagnosed=False, misses=(f"it was refused: {refused.message}",))
        result = _diagnosed(replace(result, run_dir=ran.submitted.run_dir), ran, drill)
        try:
            return self._mended(result, ran, drill)
        except UserError as refused:
            return _missing(replace(result, is_fixed=False), f"its fix was refused: {refused.message}")

    def _mended(self, result: DrillResult, ran: Watched, drill: Drill) -> DrillResult:
        asked = twin_request(drill, self._site.backend)
        twin = self._twin(replace(asked, environment=self._given.environment, python=self._given.python))
        if not is_well(twin):
            result = _missing(result, f"its twin {twin.submitted.run_id} is not silent: {_words(twin)}")
        tried = self._tried(result, ran, twin, drill)
        if tried is not None and (tried.is_fixed or drill.mend is None):
            return tried
        if drill.mend is None:
            return _missing(replace(result, is_fixed=False), "its finding has no fix that can be applied")
        in_vain = f"{tried.mended_by}: not enough; " if tried is not None else ""
        return replace(result, mended_by=f"{in_vain}edit: {drill.mend}", is_fixed=is_well(twin))

    def _tried(self, result: DrillResult, ran: Watched, twin: Watched, drill: Drill) -> DrillResult | None:
        """The result of the primary finding's first fix; None if that fix is advice in words, and a learner
        would edit the code.

        If there is nothing to edit, the child's own first fix is tried next, until a child is well or the
        chain of fixes has to end.
        """
        tried, titles = None, []
        while ran.snapshot.run is not None and ran.primary is not None:
            found = remedies(ran.snapshot.run, [ran.primary])
            if not found or (drill.mend is not None and found[0].fix != ran.primary.fixes[0]):
                break
            titles.append(found[0].fix.title)
            ran = self._launches.run_fix(found[0], ran)
            tried = _fixed(replace(result, mended_by="; ".join(titles)), ran, twin)
            if tried.is_fixed or drill.mend is not None:
                break
        return tried

    def _twin(self, request: LaunchRequest) -> Watched:
        key = repr(request)
        if key not in self._twins:
            self._twins[key] = self._launches.run(request)
        return self._twins[key]


def _diagnosed(result: DrillResult, ran: Watched, drill: Drill) -> DrillResult:
    found = ran.primary.cause if ran.primary is not None else None
    is_diagnosed = found in (drill.planted, *drill.also)
    seconds = ran.seconds_to_finding if drill.is_live else None
    result = replace(result, found=found, is_diagnosed=is_diagnosed, seconds_to_finding=seconds)
    if not is_diagnosed:
        return _missing(result, f"{drill.planted} is not its primary finding: {_words(ran)}")
    if drill.is_live and seconds is None:
        return _missing(result, "it was found only after the run's end")
    return result


def _fixed(result: DrillResult, child: Watched, twin: Watched) -> DrillResult:
    """Judge the child: fixed if it is healthy and the cause gone, or if it is as fast as the twin within the
    interval of their ratio."""
    ratio = _ratio(twin, child)
    is_fast = (
        ratio is not None and child.state == "COMPLETED" and ratio.value + (ratio.noise or 0.0) >= MIN_RATIO
    )
    is_healthy = is_well(child) and all(finding.cause != result.found for finding in child.findings)
    result = replace(result, is_fixed=is_healthy or is_fast, throughput_ratio=ratio)
    if result.is_fixed:
        return result
    return _missing(result, f"its child {child.submitted.run_id} is not healthy: {_words(child)}")


def _ratio(twin: Watched, child: Watched) -> Estimate | None:
    series = [ran.history.steps(ran.history.ranks[0]) if ran.history.ranks else () for ran in (twin, child)]
    return speedup(*series)


def _missing(result: DrillResult, miss: str) -> DrillResult:
    return replace(result, misses=(*result.misses, miss))


def loud(ran: Watched) -> list[Finding]:
    """The findings at warning or above."""
    return [finding for finding in ran.findings if finding.severity >= Severity.WARNING]


def is_well(ran: Watched) -> bool:
    return ran.state == "COMPLETED" and not loud(ran)


def _words(ran: Watched) -> str:
    found = ", ".join(f"{each.rule} {each.cause}: {each.summary}" for each in (loud(ran) or ran.findings[:1]))
    return f"{ran.state}; {found or 'nothing was found'}"


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("local", "slurm"), required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args(words)
    settings, io = load_settings(), SystemIo(scrubbed_environment(os.environ))
    launches = DrillLaunches(settings, os.environ, io, args.backend, say)
    given = LaunchRequest("", args.backend)
    results = run_drills(choose(args.names), given, launches, look_at_site(args.backend, io), io)
    print_json("drills", [_as_json(result) for result in sorted(results, key=lambda one: one.name)])


def _as_json(result: DrillResult) -> dict[str, Any]:
    ratio = result.throughput_ratio
    return {
        **asdict(result),
        "throughput_ratio": ratio.value if ratio is not None else None,
        "throughput_ratio_noise": ratio.noise if ratio is not None else None,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
