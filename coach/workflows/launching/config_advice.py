"""The lines of config files that a fix would change, where coach knows the keys only by their likely names.

Apart from the launch of a fix: a likely key is good enough for advice, but not for a run. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from coach.launch.own_program import likely_keys
from coach.launch.record import request_from
from coach.lookback.history import History
from coach.model.judging.finding import Finding
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.base import Rule
from coach.workflows.launching.foreign_fix import in_program, typed_fixes


def lines_to_change(
    run: Run,
    findings: Iterable[Finding],
    snapshot: TargetSnapshot,
    history: History,
    rules: Iterable[Rule],
) -> tuple[str, ...]:
    """The title of the first fix that changes a key of a config file which coach knows only by its likely
    name, and the lines of the files to change. Empty without such a fix. Raises UserError if the program is
    gone."""
    request = request_from(run)
    keys = likely_keys(request.own, request.set, run.parameters) if request.own is not None else {}
    if not keys:
        return ()
    guessed = {name: key.value for name, key in keys.items()}
    parameters = MappingProxyType({"gradient_accumulation": 1, **guessed, **run.parameters})
    typed = typed_fixes(replace(run, parameters=parameters), snapshot, history, rules)
    for finding in findings:
        for fix in typed.get((finding.rule, finding.subject), ()):
            if keys.keys() & fix.changes.keys():
                return (
                    fix.title,
                    *(keys[name].change(value) for name, value in fix.changes.items() if name in keys),
                    *(in_program(name, fix.changes[name]) for name in fix.changes if name not in keys),
                )
    return ()
