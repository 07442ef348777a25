"""The findings of two runs side by side: those that stayed, came and went. Pure."""

from __future__ import annotations

from coach.analysis.comparing.two_runs import AFTER, BEFORE, BOTH, FoundIn
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Severity


def found_in(before: Diagnosis, after: Diagnosis) -> tuple[FoundIn, ...] | None:
    """The findings of both runs without those that another finding caused: first those in both, then the new
    ones. None if the diagnosis of a drill is withheld."""
    if why_withheld(before) is not None or why_withheld(after) is not None:
        return None
    old, new = _roots(before), _roots(after)
    both = [FoundIn(rule, name, BOTH) for rule, name in new.items() if rule in old]
    came = [FoundIn(rule, name, AFTER) for rule, name in new.items() if rule not in old]
    gone = [FoundIn(rule, name, BEFORE) for rule, name in old.items() if rule not in new]
    return (*both, *came, *gone)


def _roots(diagnosis: Diagnosis) -> dict[str, str]:
    """Codes and names of its findings, in their order."""
    return {
        each.rule: each.name
        for each in diagnosis.findings
        if each.severity >= Severity.WARNING and each.consequence_of is None
    }
