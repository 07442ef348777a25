"""What `coach fix` shows: the offer before its question, and the new run after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from coach.analysis.comparing.two_runs import Comparison
from coach.cli.compare import comparison_object, print_comparison
from coach.cli.diagnosis_text import finding_text
from coach.cli.text import print_line, say
from coach.model.launching.launch import Submitted
from coach.workflows.launching.relaunch_offer import RelaunchOffer


def show_offer(offered: RelaunchOffer) -> None:
    """Write the offer to stderr, like all output before a question."""
    for line in finding_text(replace(offered.finding, fixes=(offered.fix,))):
        say(line)
    for name, old, new in offered.changes:
        say(f"  {name}: {old} → {new}")
    learning = "changes the training result: it will differ from the parent's"
    say(f"  this {learning if offered.fix.changes_learning else 'does not change the training result'}")
    for line in offered.plan.warnings:
        say(f"warning: {line}")
    if offered.lost:
        say(f"  if {offered.parent.run_id} is cancelled now:")
    for line in offered.lost:
        say(f"    {line}")


def print_answer(
    submitted: Submitted, state: str | None, lost: Sequence[str], comparison: Comparison | None, format_: str
) -> None:
    """Print the new run, as text or JSON. `lost`: the work that an active parent loses."""
    answer = {
        "run_id": submitted.run_id,
        "run_dir": submitted.run_dir,
        "job_id": submitted.job_id,
        "state": state,
    }
    if format_ == "json":
        measured = None if comparison is None else comparison_object(comparison)
        print(json.dumps({"schema": 1, **answer, "lost": list(lost), "comparison": measured}, indent=2))
        return
    for name, value in answer.items():
        print_line(f"{name:<8}{value or '–'}")
    if comparison is not None:
        print_comparison(comparison)
