"""`coach fix JOB` for a job that coach did not launch: shows how its batch script would have to change, as a
diff. Nothing is written.

It is apart from the launch of a fix, because it launches nothing and asks nothing: coach can only show the
change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from coach.cli.diagnosis_text import finding_text
from coach.cli.text import print_line
from coach.config import Settings
from coach.model.errors import UserError
from coach.render.finding import fix_lines
from coach.render.text import plain
from coach.sources.io import Io
from coach.workflows.jobs.lost_work import lost_of_job
from coach.workflows.judging.check import Checked
from coach.workflows.judging.judge import rules_of
from coach.workflows.launching.foreign_fix import ForeignFix, ForeignFixes, fixes_of_job


def show_foreign(checked: Checked, rule: str | None, format_: str, settings: Settings, io: Io) -> int:
    """Show the fixes of one rule, or of the primary finding. Exit status: 0 something can be changed, 1 no
    change that a script can express. Raises UserError."""
    job = checked.snapshot.job
    if job is None or checked.parts:
        raise UserError(
            f"{checked.diagnosis.target}: not one job",
            "a job id; of an array the id of one task",
        )
    found = fixes_of_job(checked.snapshot, checked.history, checked.diagnosis, rules_of(settings), io)
    wanted = [each for each in found.fixes if each.finding.is_meant(rule)]
    if not wanted:
        others = other_fixes(job.job_id, (each.finding.rule for each in found.fixes))
        raise UserError(
            f"job {job.job_id}: no fix was found" + (f" for {rule.upper()}" if rule else ""),
            others or f"coach check {job.job_id} shows its findings",
        )
    lost = lost_of_job(io, job.job_id, None, settings) if job.state == "RUNNING" else ()
    if format_ == "json":
        print(json.dumps(_object(job.job_id, found, wanted, lost), indent=2))
    else:
        for line in foreign_lines(found, wanted, lost):
            print_line(line)
    return 0 if any(each.diff for each in wanted) else 1


def other_fixes(name: str, codes: Iterable[str]) -> str:
    """The commands that show the fixes of other findings; empty without such findings."""
    commands = [f"`coach fix {name} {code}`" for code in dict.fromkeys(codes)]
    return f"another finding has one: {' or '.join(commands)}" if commands else ""


def foreign_lines(found: ForeignFixes, wanted: Sequence[ForeignFix], lost: Sequence[str]) -> list[str]:
    """The lines to print."""
    lines = [
        f"script: {found.origin}, {found.framework}" if found.origin else f"no diff: {found.problem or ''}"
    ]
    if lost:
        lines += ["if you cancel it now:", *(f"  {line}" for line in lost)]
    shown = None
    for each in wanted:
        if each.finding is not shown:
            shown = each.finding
            lines += ["", *finding_text(replace(each.finding, fixes=()))]
        lines += ["", *map(plain, fix_lines(each.fix)), *(f"  {line}" for line in each.unsaid)]
        lines += [line.expandtabs(4) for line in each.diff]
    return [*lines, "", "nothing was written: change the script yourself"]


def _object(
    job_id: str, found: ForeignFixes, wanted: Sequence[ForeignFix], lost: Sequence[str]
) -> dict[str, Any]:
    fixes: list[dict[str, Any]] = [
        {
            "rule": each.finding.rule,
            "title": each.fix.title,
            "changes": dict(each.fix.changes),
            "command": each.fix.command,
            "changes_learning": each.fix.changes_learning,
            "diff": "\n".join(each.diff) if each.diff else None,
            "in_program": list(each.unsaid),
        }
        for each in wanted
    ]
    return {
        "schema": 1,
        "job_id": job_id,
        "script_from": found.origin,
        "framework": found.framework,
        "problem": found.problem,
        "lost": list(lost),
        "fixes": fixes,
    }
