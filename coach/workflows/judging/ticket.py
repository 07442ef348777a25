"""Build a ticket: the facts that a help desk asks for about one job, collected once and without secrets.

The ticket is one plain object, and secrets are struck from all of it, so that a part added later cannot be
missed. Facts that are unknown or hidden by the site are marked as such.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coach import installed
from coach.analysis.judging.verdict_object import is_withheld
from coach.config import Settings
from coach.model.errors import UserError
from coach.node.secret_words import MASK, mask_command, mask_values
from coach.render.why import why_lines
from coach.sources.io import Io
from coach.workflows.judging import ticket_facts as facts
from coach.workflows.judging.check import Checker
from coach.workflows.judging.log_ends import error_and_ends, shortened
from coach.workflows.judging.tried import what_was_tried


def ticket(named: str, settings: Settings, io: Io, backend: str | None) -> dict[str, Any]:
    """The ticket of a job, a run, a directory or a log. Raises UserError if it cannot be read, and for an
    open drill. At most 8 RPCs more than `coach check`."""
    checked = Checker(settings, io, backend).target(named)
    verdict = checked.verdict()
    if is_withheld(verdict):
        raise UserError(
            f"{named}: an open drill: its planted fault is yours to find", "`coach drill` says more"
        )
    subject = facts.subject_of(checked.snapshot, settings, io, backend)
    worst = checked.parts[0] if checked.parts else checked  # of an array, the task that failed worst
    script = facts.script(subject, io)
    tried = what_was_tried(checked, settings, io, subject.backend)
    told: dict[str, Any] = {
        "schema": 1,
        "target": named,
        "state": checked.snapshot.state,
        "written": facts.moment(io.now()),
        "written_by": f"coach {installed.version()}",
        "verdict": why_lines(verdict, io.now()),
        "findings": verdict["findings"],
        "not_measured": verdict["not_measured"],
        "times": facts.times(subject, io.now()),
        "job": facts.job_facts(subject),
        "parts": [f"{part.diagnosis.target}: {part.snapshot.state}" for part in checked.parts],
        "nodes": facts.nodes(subject, checked, io),
        "modules": facts.modules(subject, script["text"] or ""),
        "environment": facts.environment(subject, script["text"] or ""),
        **error_and_ends(worst.snapshot, worst.diagnosis),
        "logs": facts.logs(checked),
        "tried": [{**asdict(each), "ended": facts.moment(each.ended_s)} for each in tried],
        "script": script,
        "slurm_record": facts.slurm_record(subject, worst.snapshot.job, io),
    }
    command = script["command"] and shlex.join(mask_command(script["command"]))
    struck: dict[str, Any] = mask_values({**told, "script": {**script, "command": command}})
    return {**struck, **shortened(struck), "num_struck": _num_marks(struck) - _num_marks(told)}


def _num_marks(value: Any) -> int:
    if isinstance(value, str):
        return value.count(MASK)
    if isinstance(value, Mapping):
        return sum(map(_num_marks, (*value, *value.values())))
    return sum(map(_num_marks, value)) if isinstance(value, list | tuple) else 0


def struck_words(num_struck: int) -> tuple[str, str]:
    """Warnings to show before the user passes the ticket on."""
    number = "1 secret was struck" if num_struck == 1 else f"{num_struck} secrets were struck"
    return (
        f"{number if num_struck else 'no secret was found'}: only secrets of known forms are recognized",
        "nothing is sent; your name, your paths and your jobs stay in it: read it before you pass it on",
    )
